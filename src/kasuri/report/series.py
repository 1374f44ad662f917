"""The page of a series: its claim and prices, a line of one place with its intervals, flags, what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from kasuri.arrays import Int
from kasuri.report.frame import Section, Text, facts, note, page, table, viewer
from kasuri.report.sheet import Sheet
from kasuri.report.view import places
from kasuri.schema import Domain, Time, Window

_WIDE, _HIGH, _EDGE = 720, 260, 56


@dataclass(frozen=True, eq=False)
class Maps:
    """Filtered maps of some slots: (number of the slot, rising cells, values), oldest first."""

    domain: Domain
    window: Window
    slots: Sequence[tuple[int, Int, Int]]

    def sheet(self) -> Sheet:
        """One table with time as its first axis, for a slider; slots that are not published are empty."""
        first, last = self.slots[0][0], self.slots[-1][0]
        start = self.window.start(first).replace(tzinfo=None).isoformat(timespec="minutes")
        name = next(name for name in ("slot", "time", "start") if name not in [axis.name for axis in self.domain.axes])
        domain = Domain((Time(name, start, self.window.seconds, last - first + 1), *self.domain.axes))
        cells = np.concatenate([cells + (slot - first) * self.domain.size for slot, cells, _ in self.slots])
        values = np.concatenate([values for _, _, values in self.slots])
        return Sheet(domain, cells, values, *np.full((2, cells.size), np.nan))


def series(status: Mapping[str, Any], place: str, rows: Sequence[tuple[str, float, float, float]],
           flags: Sequence[tuple[str, str]], maps: Maps) -> str:  # fmt: skip
    """The whole page. `rows` are (slot, value, lower, upper) of `place`, oldest first; `flags` (slot, where)."""
    lead = [f"<p>{escape(status['claim'][:1].upper() + status['claim'][1:])}.</p>"]
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
    packed, drawn = maps.sheet().shown()
    axes, parts, credit = places(drawn.domain.axes)
    view = {
        "axes": axes, "mask": [], "unit": "", "confidence": 95,
        "parts": [{**what, "about": told} for what, told, _ in parts],
    }  # fmt: skip
    packed = packed[0], ".".join([packed[1], *(text for _, _, text in parts)])
    slider = Text(
        "Filtered values. Choose a slot with the slider, or play them; without a choice all slots are added up, and "
        "somebody who is counted in several of them counts as often.",
        "平滑化した値。スライダーで時間枠を選ぶか、再生してください。選ばない場合はすべての時間枠の合計で、"
        "複数の時間枠で数えられた人はその回数だけ含まれます。",
    )
    placed = any("globe" in axis for axis in axes)
    heading = Text("Slot by slot", "時間枠ごと")
    sections = [
        Section("map", heading, [f"<p>{slider.html()}</p>", viewer(placed), *credit]),
        Section("line", Text("One place over time", "一つの区域の推移"), [_line(rows), f"<p>{line.html()}</p>"]),
        Section("prices", Text("What is lost over longer spans", "期間ごとの損失"),
                [table(("span", "slots", "epsilon"), prices, numbers=(1, 2)), note(said), f"<ul>{claims}</ul>"]),
        Section("flags", Text("Departures from the profile", "平常と異なる区域"),
                [table(("slot", "where"), [tuple(map(escape, row)) for row in flags]) if flags else "<p>-</p>"]),
        Section("state", Text("State of the series", "系列の状態"),
                [facts([(name, escape(value)) for name, value in told])]),
    ]  # fmt: skip
    title = Text(f"Series {status['series']}", f"系列 {status['series']}")
    return page(title, lead, sections, view=view, packed=packed)


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
