"""The page of a series: its claim and prices, a line of one place with its intervals, flags, what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from kasuri.report.frame import Section, Text, facts, note, page, table

_WIDE, _HIGH, _EDGE = 720, 260, 56


def series(status: Mapping[str, Any], place: str, rows: Sequence[tuple[str, float, float, float]],
           flags: Sequence[tuple[str, str]]) -> str:  # fmt: skip
    """The whole page. `rows` are (slot, value, lower, upper) of `place`, oldest first; `flags` (slot, where)."""
    lead = [f"<p>{escape(status['claim'])}</p>"]
    prices = [(row["span"], str(row["slots"]), row["epsilon"]) for row in status["prices"]]
    claims = "".join(f"<li>{escape(one)}</li>" for one in status["must_not_be_claimed"])
    said = Text(
        "Price for somebody who is counted in every slot of the span, at the same delta. Do not claim:",
        "期間中すべての時間枠で数えられる人についての損失（同じ δ）。次のことは主張できません：",
    )
    line = Text(
        f"{place}: the filtered value of each slot and the 95 % interval from that slot's own noisy numbers.",
        f"{place}：各時間枠の平滑化した値と、その時間枠だけの雑音入りの数値から求めた 95 % 区間。",
    )
    told = [("published", str(status["published"])), ("last", str(status["last"])),
             ("late", ", ".join(status["late"]) or "-"), ("lost", ", ".join(status["lost"]) or "-"),
             ("missing", "; ".join(f"{slot}: {why}" for slot, why in status["missing"].items()) or "-")]  # fmt: skip
    sections = [
        Section("line", Text("One place over time", "一つの区域の推移"), [_line(rows), f"<p>{line.html()}</p>"]),
        Section("prices", Text("What is lost over longer spans", "期間ごとの損失"),
                [table(("span", "slots", "epsilon"), prices, numbers=(1, 2)), note(said), f"<ul>{claims}</ul>"]),
        Section("flags", Text("Departures from the profile", "平常と異なる区域"),
                [table(("slot", "where"), [tuple(map(escape, row)) for row in flags]) if flags else "<p>-</p>"]),
        Section("state", Text("State of the series", "系列の状態"),
                [facts([(name, escape(value)) for name, value in told])]),
    ]  # fmt: skip
    return page(Text(f"Series {status['series']}", f"系列 {status['series']}"), lead, sections)


def _line(rows: Sequence[tuple[str, float, float, float]]) -> str:
    """A line with its band, as SVG."""
    if len(rows) < 2:
        return ""
    high = max(max(row[1:]) for row in rows) or 1.0
    low = min(0.0, *(min(row[1:]) for row in rows))

    def at(index: int, value: float) -> str:
        x = _EDGE + index / (len(rows) - 1) * (_WIDE - _EDGE - 12)
        return f"{x:.1f},{_HIGH - 28 - (value - low) / (high - low) * (_HIGH - 44):.1f}"

    upper = [at(index, row[3]) for index, row in enumerate(rows)]
    lower = [at(index, row[2]) for index, row in enumerate(rows)][::-1]
    middle = [at(index, row[1]) for index, row in enumerate(rows)]
    ends = f'<text x="{_EDGE}" y="{_HIGH - 8}" font-size="11">{escape(rows[0][0])}</text>'
    ends += f'<text x="{_WIDE - 12}" y="{_HIGH - 8}" font-size="11" text-anchor="end">{escape(rows[-1][0])}</text>'
    ends += f'<text x="{_EDGE - 6}" y="20" font-size="11" text-anchor="end">{high:,.0f}</text>'
    shape = f'<polygon points="{" ".join(upper + lower)}" fill="currentColor" fill-opacity="0.15"/>'
    shape += f'<polyline points="{" ".join(middle)}" fill="none" stroke="currentColor" stroke-width="1.5"/>'
    return f'<figure><svg viewBox="0 0 {_WIDE} {_HIGH}" role="img">{shape}{ends}</svg></figure>'
