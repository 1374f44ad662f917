"""One-file HTML reports on k-anonymised releases: class sizes and the trees with the cut drawn. Plain data in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Any

from kasuri.report import chart, frame
from kasuri.report.frame import Section, Text
from kasuri.words.japanese import claim, ja, name

_ROWS = 70  # lines of one tree that are drawn; a longer tree is cut off and says so


def _quoted(words: str) -> Text:
    end = "" if words.endswith((".", "!", "?")) else "."
    return Text(words + end, ja(words))


_CLASSES = Text("Class sizes", "同値類の大きさ")
_FACTS = {
    "rows": Text("Rows", "行数"),
    "suppressed": Text("Rows suppressed", "削除した行数"),
    "classes": Text("Classes", "同値類の数"),
    "k": Text("Smallest class (k)", "最小の同値類（k）"),
    "ncp": Text("Loss of detail (NCP, 0 to 1)", "詳細さの損失（NCP、0〜1）"),
    "discernibility": Text("Discernibility", "識別不能性の指標（discernibility）"),
}


def release_page(release: Mapping[str, Any], trees: Sequence[Mapping[str, Any]]) -> str:
    """The report on a release, from `Anonymized.to_json()` and `Hierarchy.to_json(cut)` of each attribute."""
    not_told = Text("not told", "非公表").html()
    facts = [
        (_FACTS["rows"].html(), _whole(release["rows"])),
        (_FACTS["suppressed"].html(), not_told if release["suppressed"] is None else _whole(release["suppressed"])),
        (_FACTS["classes"].html(), _whole(release["classes"])),
        (_FACTS["k"].html(), _whole(release["k"])),
        (_FACTS["ncp"].html(), f"{release['ncp_share']:.4f}"),
        (_FACTS["discernibility"].html(), _whole(release["discernibility"])),
    ]
    promised, words = release["guarantee"], release["words"]
    lead = [frame.note(Text(words, ja(words) if promised is None else claim(promised))), *_conditions(promised)]
    sections = [
        Section("facts", Text("In numbers", "概要"), [frame.facts(facts + _sensitive_facts(release))]),
        Section("sizes", _CLASSES, [sizes_svg(release["class_sizes"])]),
        *_trees(trees),
    ]
    rows, k = _whole(release["rows"]), _whole(release["k"])
    title = Text(
        f"{rows} rows in which everybody is like at least {_whole(release['k'] - 1)} others",
        f"どの行も、自身を含めて同じ値の行が {k} 行以上ある、{rows} 行の匿名化データ",
    )
    tiles = frame.tiles(
        [
            (_FACTS["rows"].html(), rows, ""),
            (_FACTS["classes"].html(), _whole(release["classes"]), ""),
            (_FACTS["k"].html(), k, Text("larger is safer", "大きいほど安全").html()),
            (_FACTS["ncp"].html(), f"{release['ncp_share']:.2f}", Text("smaller is finer", "小さいほど詳細").html()),
        ]
    )
    return frame.page(title, [tiles, *lead], sections)


def audit_page(audit: Mapping[str, Any], trees: Sequence[Mapping[str, Any]]) -> str:
    """The report on an audit, from `Audit.to_json()`; marked confidential."""
    release, loss, bounds = audit["release"], audit["realised_loss"], audit["if_generalised_beforehand"]
    original = audit["original"]
    rows, unique = _whole(original["rows"]), _whole(original["unique"])
    facts = [
        (Text("Original rows", "元の行数"),
         Text(f"{rows}, {unique} of them unique", f"{rows}（うち唯一のもの {unique}）")),
        (Text("Sampling rate", "抽出率"), Text(audit["sampling_rate"], audit["sampling_rate"])),
        (Text("Released rows", "公表した行数"),
         Text(f"{_whole(release['rows'])} in {_whole(release['classes'])} classes",
              f"{_whole(release['rows'])}（同値類 {_whole(release['classes'])}）")),
        (_FACTS["k"],
         Text(f"{release['k']} (asked: {audit['k_asked']})", f"{release['k']}（要求：{audit['k_asked']}）")),
        (Text("Rows alone in their class", "同値類に一つだけの行"), _same(_whole(release["unique"]))),
        (_FACTS["ncp"], _same(f"{release['ncp_share']:.4f}")),
        (_FACTS["discernibility"], _same(_whole(release["discernibility"]))),
    ]  # fmt: skip
    lead = [frame.note(_quoted(audit["words"]))]
    sections = [
        Section("facts", Text("In numbers", "概要"), [frame.facts(_html(facts) + _sensitive_facts(release))]),
        Section("sizes", Text("Class sizes of the release", "公表物の同値類の大きさ"),
                [sizes_svg(release["class_sizes"], secret=True)]),
        Section("loss", Text("Realised loss of this one output: not a guarantee",
                             "この一つの出力の実現損失（保証ではない）"),
                [frame.facts(_html(_losses(loss))), frame.note(_quoted(loss["words"]))]),
        Section("bounds", Text("Had the generalisation been fixed beforehand", "一般化をあらかじめ固定していた場合"),
                [_bounds(bounds), frame.note(_quoted(bounds["words"]))]),
        *_trees(trees, secret=True),
    ]  # fmt: skip
    k, asked = _whole(release["k"]), _whole(audit["k_asked"])
    title = Text(
        f"Audit: everybody in this release is like at least {_whole(release['k'] - 1)} others ({asked}-anonymity was "
        "asked for)",
        f"監査：どの行も、自身を含めて同じ値の行が {k} 行以上あります（要求は {asked}-匿名性）",
    )
    tiles = frame.tiles(
        [
            (Text("Original rows", "元の行数").html(), rows, Text(f"{unique} unique", f"うち唯一 {unique}").html()),
            (Text("Released rows", "公表した行数").html(), _whole(release["rows"]),
             Text(f"in {_whole(release['classes'])} classes", f"同値類 {_whole(release['classes'])}").html()),
            (_FACTS["k"].html(), k, Text("larger is safer", "大きいほど安全").html()),
            (_FACTS["ncp"].html(), f"{release['ncp_share']:.2f}", Text("smaller is finer", "小さいほど詳細").html()),
        ]
    )  # fmt: skip
    return frame.page(title, [tiles, *lead], sections, secret=True)


def _losses(loss: Mapping[str, Any]) -> list[tuple[Text, Text]]:
    per, alone = loss["per_class"], loss["sampling_alone"]
    infinite, groups, floor = _whole(per["infinite"]), _whole(per["groups"]), f"{loss['floor']:.4f}"
    backward = _number(per["largest_backward"])
    never = Text(f"{backward.en} (never above {floor})", f"{backward.ja}（{floor} を超えない）")
    out = [
        (Text("Classes with an infinite loss", "損失が無限大の同値類"),
         Text(f"{infinite} of {groups}", f"{groups} 中 {infinite}")),
        (Text("Classes whose loss cannot be computed (values overlap)", "損失を計算できない同値類（値が重なる）"),
         _same(_whole(per["not_computable"]))),
        (Text("Largest finite loss", "有限な損失の最大値"), _number(per["largest_finite"])),
        (Text("Largest backward loss", "逆向きの損失の最大値"), never),
        (Text("Classes where the formula may fail (2k condition)", "式が成り立たない恐れのある同値類（2k 条件）"),
         _same(_whole(loss["classes_that_could_split"]))),
    ]  # fmt: skip
    if alone is not None:
        infinite, groups = _whole(alone["infinite"]), _whole(alone["groups"])
        out.append((Text("Sampling without generalisation", "一般化しない抽出のみの場合"),
                    Text(f"infinite for {infinite} of {groups}", f"{groups} 中 {infinite} で無限大")))  # fmt: skip
    return out


def _bounds(bounds: Mapping[str, Any]) -> str:
    rows = [
        [f"ε {escape(at['epsilon'])}", *(f"δ {_tiny(at[name])}" for name in ("delta_exact", "delta_theorem"))]
        for at in bounds["at"]
    ]
    least = bounds["for_delta"]
    pair = (least[name] for name in ("epsilon_exact", "epsilon_theorem"))
    none = Text("none", "なし").html()
    rows.append([f"δ {_tiny(least['delta'])}", *(f"ε {escape(found) if found else none}" for found in pair)])
    head = (Text("given", "条件").html(), Text("exact", "厳密").html(), "Li, Qardaji, Su")
    return frame.table(head, rows)


def sizes_svg(bins: Sequence[Mapping[str, Any]], *, secret: bool = False) -> str:
    """Bars: how many classes have a size in each range; ranges between them that are not there have no class."""
    if not bins:
        return f"<p>{Text('No class is shown.', '表示する同値類はありません。').html()}</p>"
    gaps = [
        {"from": one["below"], "below": two["from"], "classes": 0}
        for one, two in pairwise(bins)
        if one["below"] < two["from"]
    ]
    bins = sorted((*bins, *gaps), key=lambda item: item["from"])
    most, step = max(item["classes"] for item in bins), 24
    parts = []
    for i, item in enumerate(bins):
        low, high = item["from"], item["below"] - 1
        many = f"{item['classes']:,}"
        name = Text(f"{low:,} rows", f"{low:,} 行") if low == high else Text(
            f"{low:,} or more rows" if high > 10**9 else f"{low:,} to {high:,} rows",
            f"{low:,} 行以上" if high > 10**9 else f"{low:,}〜{high:,} 行",
        )  # fmt: skip
        size = Text(f"{many} class" + ("es" if item["classes"] != 1 else ""), f"{many} 個")
        width = max(2, round(260 * item["classes"] / most)) if item["classes"] else 0
        kind = "rect few" if high < 5 else "rect"
        parts.append(
            chart.both_text(190, i * step + 17, name, "end")
            + f'<rect class="{kind}" x="200" y="{i * step + 4}" width="{width}" height="{step - 8}"/>'
            + chart.both_text(208 + width, i * step + 17, size, "start")
        )
    height = len(bins) * step + 6
    body = "".join(parts) + chart.watermark(secret, 560, height)
    told = f"{_CLASSES.en} / {_CLASSES.ja}"
    return f'<figure><svg viewBox="0 0 560 {height}" role="img" aria-label="{told}">{body}</svg></figure>'


def tree_svg(tree: Mapping[str, Any], *, secret: bool = False) -> str:
    """One line per node, children below their parent; what is written is in red, what is merged into it is faint."""
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
    body = "".join(parts) + chart.watermark(secret, 480, height)
    svg = f'<figure><svg viewBox="0 0 480 {height}" role="img" aria-label="{name}">{body}</svg></figure>'
    more = Text(f"and {left_out:,} more nodes", f"ほか {left_out:,} 個の節点").html()
    return svg + (f"<p>{more}</p>" if left_out else "")


def _trees(trees: Sequence[Mapping[str, Any]], *, secret: bool = False) -> list[Section]:
    if not trees:
        return []
    words = Text(
        "Red: the values in the release; below them the values that they cover. * is any value: nothing is told.",
        "赤は公表物に書かれる値、その下はそれが表す値です。* は任意の値であり、何も示しません。",
    )
    out = [f"<p>{words.html()}</p>"]
    for tree in trees:
        leaves, written = f"{tree['leaves']:,}", 0 if tree["cut"] is None else len(tree["cut"])
        about = Text(
            f"{leaves} values" + (f", written as {written:,}" if written else ""),
            f"{leaves} 個の値" + (f"を {written:,} 個にまとめて表記" if written else ""),
        )
        heading = Text(tree["name"], name(tree["name"]))
        out.append(f"<h3>{heading.html()}</h3><p>{about.html()}</p>{tree_svg(tree, secret=secret)}")
    return [Section("written", Text("What is written", "書かれる値"), out)]


def _conditions(guarantee: Mapping[str, Any] | None) -> list[str]:
    """What a guarantee rests on: as much a part of it as its epsilon."""
    if guarantee is None:
        return []
    assumes, public = guarantee["assumes"], guarantee["public"]
    out = [
        frame.note(Text("Assumes: " + "; ".join(assumes), "前提：" + "；".join(_quoted(item).ja for item in assumes)))
    ]
    known = Text("Treated as public: " + ", ".join(public), "公開情報として扱うもの：" + "、".join(map(ja, public)))
    return [*(out if assumes else []), frame.note(known)]


def _sensitive_facts(release: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        (Text(f"Column {s['column']}", f"列 {s['column']}").html(),
         Text(f"l = {s['distinct_l']}, {s['entropy_l']:.2f} by entropy; t = {s['t']:.4f}",
              f"l = {s['distinct_l']}（エントロピー {s['entropy_l']:.2f}）、t = {s['t']:.4f}").html())
        for s in release["sensitive"]
    ]  # fmt: skip


def _html(facts: Sequence[tuple[Text, Text]]) -> list[tuple[str, str]]:
    return [(name.html(), value.html()) for name, value in facts]


def _same(words: str) -> Text:
    return Text(words, words)


def _whole(number: int) -> str:
    return f"{number:,}"


def _number(value: float | None) -> Text:
    return Text("none", "なし") if value is None else _same(f"{value:.4f}")


def _tiny(text: str | None) -> str:
    """A small number as people write it, as HTML."""
    if text is None:
        return Text("not defined", "定義されません").html()
    number, _, power = f"{float(text):.3g}".partition("e")
    return f"{number} × 10<sup>{int(power)}</sup>" if power else number
