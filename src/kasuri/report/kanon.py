"""One-file HTML reports on k-anonymised releases: class sizes and the trees with the cut drawn. Plain data in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

_ROWS = 70  # lines of one tree that are drawn; a longer tree is cut off and says so
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1c2330;background:#fff}
h1{font-size:1.5rem} h2{font-size:1.1rem;margin-top:2rem} table{border-collapse:collapse;margin:.5rem 0}
td,th{padding:.2rem .8rem .2rem 0;text-align:left;vertical-align:top;border-bottom:1px solid #e3e7ee}
td.n{text-align:right;font-variant-numeric:tabular-nums} .secret{background:#8c1d18;color:#fff;padding:.5rem .8rem}
.note{background:#f3f5f9;border-left:4px solid #3a5a8c;padding:.5rem .8rem} svg{max-width:100%;height:auto}
svg text{font:12px system-ui,sans-serif;fill:#1c2330} .bar{fill:#3a5a8c} .small{fill:#b3261e}
.edge{stroke:#9aa5b8;fill:none} .above{fill:#9aa5b8} .cut{fill:#b3261e} .below{fill:#d5dbe6}
.faint{fill:#8a94a6!important}
"""


def release_page(release: Mapping[str, Any], trees: Sequence[Mapping[str, Any]]) -> str:
    """The report on a release, from `Anonymized.to_json()` and `Hierarchy.to_json(cut)` of each attribute."""
    facts = [
        ("Rows", _whole(release["rows"])),
        ("Rows suppressed", "not told" if release["suppressed"] is None else _whole(release["suppressed"])),
        ("Classes", _whole(release["classes"])),
        ("Smallest class (k)", _whole(release["k"])),
        ("Loss of detail (NCP, 0 to 1)", f"{release['ncp_share']:.4f}"),
        ("Discernibility", _whole(release["discernibility"])),
    ]
    body = [
        _note(release["words"]),
        *_conditions(release["guarantee"]),
        _table(facts + _sensitive_facts(release)),
        "<h2>Class sizes</h2>",
        sizes_svg(release["class_sizes"]),
        *_trees(trees),
    ]
    return _page("k-anonymised release", body)


def audit_page(audit: Mapping[str, Any], trees: Sequence[Mapping[str, Any]]) -> str:
    """The report on an audit, from `Audit.to_json()`; marked confidential."""
    release, loss, bounds = audit["release"], audit["realised_loss"], audit["if_generalised_beforehand"]
    per, alone = loss["per_class"], loss["sampling_alone"]
    facts = [
        ("Original rows", f"{_whole(audit['original']['rows'])}, {_whole(audit['original']['unique'])} of them unique"),
        ("Sampling rate", escape(audit["sampling_rate"])),
        ("Released rows", f"{_whole(release['rows'])} in {_whole(release['classes'])} classes"),
        ("Smallest class (k)", f"{release['k']} (asked: {audit['k_asked']})"),
        ("Rows alone in their class", _whole(release["unique"])),
        ("Loss of detail (NCP, 0 to 1)", f"{release['ncp_share']:.4f}"),
        ("Discernibility", _whole(release["discernibility"])),
    ]
    losses = [
        ("Classes with an infinite loss", f"{_whole(per['infinite'])} of {_whole(per['groups'])}"),
        ("Classes whose loss cannot be computed (values overlap)", _whole(per["not_computable"])),
        ("Largest finite loss", _number(per["largest_finite"])),
        ("Largest backward loss", f"{_number(per['largest_backward'])} (never above {loss['floor']:.4f})"),
        ("Classes where the formula may fail (2k condition)", _whole(loss["classes_that_could_split"])),
    ]
    if alone is not None:
        losses.append(
            (
                "Sampling without generalisation",
                f"infinite for {_whole(alone['infinite'])} of {_whole(alone['groups'])}",
            )
        )
    rows = [
        (f"epsilon {at['epsilon']}", f"delta {_tiny(at['delta_exact'])}", f"delta {_tiny(at['delta_theorem'])}")
        for at in bounds["at"]
    ]
    least = bounds["for_delta"]
    rows.append(
        (f"delta {least['delta']}", f"epsilon {least['epsilon_exact'] or 'none'}",
         f"epsilon {least['epsilon_theorem'] or 'none'}")
    )  # fmt: skip
    body = [
        '<p class="secret">Confidential: computed from the original rows. Do not publish.</p>',
        _note(audit["words"]),
        _table(facts + _sensitive_facts(release)),
        "<h2>Class sizes of the release</h2>",
        sizes_svg(release["class_sizes"]),
        "<h2>Realised loss of this one output: not a guarantee</h2>",
        _table(losses),
        _note(loss["words"]),
        "<h2>Had the generalisation been fixed beforehand</h2>",
        _grid(("", "exact", "Li, Qardaji and Su"), rows),
        _note(bounds["words"]),
        *_trees(trees),
    ]
    return _page("Audit of k-anonymisation", body)


def sizes_svg(bins: Sequence[Mapping[str, Any]]) -> str:
    """Bars: how many classes have a size in each range; ranges that are not there have no class."""
    if not bins:
        return "<p>No class is shown.</p>"
    most, step = max(item["classes"] for item in bins), 24
    parts = []
    for i, item in enumerate(bins):
        low, high = item["from"], item["below"] - 1
        name = f"{low:,}" if low == high else f"{low:,} or more" if high > 10**9 else f"{low:,} to {high:,}"
        width = max(2, round(460 * item["classes"] / most))
        kind = "small" if high < 5 else "bar"
        parts.append(
            f'<text x="150" y="{i * step + 17}" text-anchor="end">{name} rows</text>'
            f'<rect class="{kind}" x="160" y="{i * step + 4}" width="{width}" height="{step - 8}"/>'
            f'<text x="{168 + width}" y="{i * step + 17}">{item["classes"]:,} classes</text>'
        )
    height = len(bins) * step + 6
    return f'<svg viewBox="0 0 720 {height}" width="720" role="img" aria-label="class sizes">{"".join(parts)}</svg>'


def tree_svg(tree: Mapping[str, Any]) -> str:
    """One line per node, children below their parent; what is written stands in red, what is merged into it faintly."""
    labels, parent, cut = tree["labels"], tree["parent"], set(tree["cut"] or ())
    depth = [0] * len(labels)
    below = [False] * len(labels)  # under a node of the cut
    for node in range(1, len(labels)):
        depth[node] = depth[parent[node]] + 1
        below[node] = below[parent[node]] or parent[node] in cut
    lines = [n for n in range(len(labels)) if not below[n]] if len(labels) > _ROWS else list(range(len(labels)))
    left_out = max(len(lines) - _ROWS, 0)
    lines = lines[:_ROWS]
    step, parts, at = 20, [], {node: i for i, node in enumerate(lines)}
    for node, i in at.items():
        x, y = 14 + 26 * depth[node], i * step + 14
        if node and parent[node] in at:
            px, py = 14 + 26 * depth[parent[node]], at[parent[node]] * step + 14
            parts.append(f'<path class="edge" d="M{px} {py + 5}V{y}H{x - 5}"/>')
        kind = "cut" if node in cut else "below" if below[node] else "above"
        faint = ' class="faint"' if below[node] else ""
        bold = ' style="font-weight:600"' if node in cut else ""
        parts.append(
            f'<circle class="{kind}" cx="{x}" cy="{y}" r="5"/>'
            f'<text x="{x + 10}" y="{y + 4}"{faint}{bold}>{escape(labels[node])}</text>'
        )
    height = len(lines) * step + 8
    name = escape(tree["name"])
    svg = f'<svg viewBox="0 0 480 {height}" width="480" role="img" aria-label="{name}">{"".join(parts)}</svg>'
    return svg + (f"<p>and {left_out:,} more nodes</p>" if left_out else "")


def _trees(trees: Sequence[Mapping[str, Any]]) -> list[str]:
    if not trees:
        return []
    out = ["<h2>What is written</h2><p>Red: the values that stand in the release; below them what they stand for.</p>"]
    for tree in trees:
        written = f", {len(tree['cut']):,} written" if tree["cut"] is not None else ""
        out.append(f"<h3>{escape(tree['name'])}</h3><p>{tree['leaves']:,} leaves{written}</p>{tree_svg(tree)}")
    return out


def _conditions(guarantee: Mapping[str, Any] | None) -> list[str]:
    """What a guarantee rests on: as much a part of it as its epsilon."""
    if guarantee is None:
        return []
    out = [_note("Assumes: " + "; ".join(guarantee["assumes"]))] if guarantee["assumes"] else []
    return [*out, _note("Treated as public: " + ", ".join(guarantee["public"]))]


def _sensitive_facts(release: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        (f"Column {escape(s['column'])}", f"l = {s['distinct_l']}, {s['entropy_l']:.2f} by entropy; t = {s['t']:.4f}")
        for s in release["sensitive"]
    ]


def _page(title: str, body: Sequence[str]) -> str:
    head = f'<meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body><h1>{title}</h1>{"".join(body)}</body></html>\n'


def _table(facts: Sequence[tuple[str, str]]) -> str:
    return (
        "<table>" + "".join(f'<tr><td>{name}</td><td class="n">{value}</td></tr>' for name, value in facts) + "</table>"
    )


def _grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["".join(f"<th>{cell}</th>" for cell in head)]
    lines += ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def _note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'


def _whole(number: int) -> str:
    return f"{number:,}"


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4f}"


def _tiny(text: str | None) -> str:
    return "not defined" if text is None else f"{float(text):.3g}"
