"""The page of a series: its claim and prices, a line of one place with its intervals, flags, what is missing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from kasuri.arrays import Int
from kasuri.report.frame import Section, Text, facts, note, page, small, table, tiles, viewer
from kasuri.report.sheet import Sheet
from kasuri.report.view import names, places
from kasuri.schema import Domain, Time, Window
from kasuri.words import japanese

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

    def gaps(self) -> list[int]:
        """Slots between the first and the last that are not here: no value, rather than 0."""
        first, last = self.slots[0][0], self.slots[-1][0]
        return sorted(set(range(last - first + 1)) - {slot - first for slot, _, _ in self.slots})


def series(status: Mapping[str, Any], place: str, rows: Sequence[tuple[str, float, float, float]],
           flags: Sequence[tuple[str, str]], maps: Maps) -> str:  # fmt: skip
    """The whole page. `rows` are (slot, value, lower, upper) of `place`, oldest first; `flags` (slot, where)."""
    claim, title, lead = _spoken(status)
    prices = [(row["span"], str(row["slots"]), row["epsilon"]) for row in status["prices"]]
    claims = "".join(f"<li>{_MUST_NOT.get(one, Text(one, one)).html()}</li>" for one in status["must_not_be_claimed"])
    said = Text(
        "Price for somebody who is counted in every slot of the span, at the same delta. Do not claim:",
        "期間中すべての時間枠で数えられる人についての損失（同じ δ）。次のことは主張できません：",
    )
    line = Text(
        f"{place}: the filtered value of each slot and the 95 % interval from that slot's own noisy numbers.",
        f"{place}：各時間枠の平滑化した値と、その時間枠だけの雑音入りの数値から求めた 95 % 区間。",
    )
    told = [
        (Text("published", "公表済み"), str(status["published"])),
        (Text("last", "最新"), str(status["last"])),
        (Text("late", "遅延"), ", ".join(status["late"]) or "–"),
        (Text("lost", "失われたもの"), ", ".join(status["lost"]) or "–"),
        (Text("missing", "欠測"), "; ".join(f"{slot}: {why}" for slot, why in status["missing"].items()) or "–"),
    ]
    packed, drawn = maps.sheet().shown()
    axes, parts, credit = places(drawn.domain.axes)
    view = {
        "axes": axes, "mask": [], "unit": "", "confidence": 95,
        "parts": [{**what, "about": told} for what, told, _ in parts], "names": names(drawn.domain.axes),
        "gaps": maps.gaps(),
    }  # fmt: skip
    packed = packed[0], ".".join([packed[1], *(text for _, _, text in parts)])
    slider = Text(
        "Filtered values. Choose a slot with the slider, or play them; without a choice all slots are added up, and "
        "somebody who is counted in several of them counts as often.",
        "平滑化した値。スライダーで時間枠を選ぶか、再生してください。選ばない場合はすべての時間枠の合計で、"
        "複数の時間枠で数えられた人はその回数だけ含まれます。",
    )
    placed = any("globe" in axis for axis in axes)
    spans = (Text("span", "期間").html(), Text("slots", "時間枠数").html(), "epsilon")
    seen = (Text("slot", "時間枠").html(), Text("where", "場所").html())
    heading = Text("Slot by slot", "時間枠ごと")
    sections = [
        Section("map", heading, [viewer(placed), f"<p>{slider.html()}</p>", claim, *credit]),
        Section("line", Text("One place over time", "一つの区域の推移"), [_line(rows), f"<p>{line.html()}</p>"]),
        Section("prices", Text("What is lost over longer spans", "期間ごとの損失"),
                [table(spans, prices, numbers=(1, 2)), note(said), f"<ul>{claims}</ul>"]),
        Section("flags", Text("Departures from the profile", "平常と異なる区域"),
                [table(seen, [tuple(map(escape, row)) for row in flags]) if flags else f"<p>{_NO_FLAG.html()}</p>"]),
        Section("state", Text("State of the series", "系列の状態"),
                [facts([(name.html(), escape(value)) for name, value in told])]),
    ]  # fmt: skip
    return page(title, lead, sections, view=view, packed=packed)


_NO_FLAG = Text("None.", "ありません。")
_CLAIM = re.compile(
    r"whatever one (?P<unit>.+) did in any (?:(?P<many>\d+) consecutive )?(?P<length>[a-z]+?)s? "
    r"\((?P<slots>\d+) whole slots?\) .* e\^(?P<epsilon>\S+), but for delta (?P<delta>\S+)"
)
_LENGTHS = {"second": "秒間", "minute": "分間", "hour": "時間", "day": "日間", "week": "週間"}
_MUST_NOT = {
    text.en: text
    for text in (
        Text("epsilon per person: the claim is about one window",
             "ε が一人についての値であること（主張は一つの期間についてのものです）"),
        Text("that the budget is renewed: what a window has lost is never undone",
             "予算が更新されること（ある期間に失われたものは元に戻りません）"),
        Text("a figure for a window whose slots were also published elsewhere without being charged to this ledger",
             "この台帳に計上せず、別に公表した時間枠を含む期間についての値"),
        Text("protection of habits repeated over weeks at the price of one window: see the rows of longer spans",
             "何週間も繰り返される習慣が一つの期間の損失で守られること（より長い期間の行をご覧ください）"),
    )
}  # fmt: skip


def _spoken(status: Mapping[str, Any]) -> tuple[str, Text, list[str]]:
    """The claim in two languages, the title, and the numbers that come first."""
    claim, name, many = str(status["claim"]), status["series"], status["published"]
    own = claim[:1].upper() + claim[1:] + "."
    found = _CLAIM.fullmatch(claim)
    if found is None:
        return f"<p>{escape(own)}</p>", Text(f"Series {name}", f"系列 {name}"), []
    said = {**found.groupdict(), "delta": small(found["delta"])}
    unit, span = japanese.unit(said["unit"]), f"{said['many'] or 1} {_LENGTHS.get(said['length'], said['length'])}"
    spoken = Text(
        own,
        f"どの連続する {span}（{said['slots']} 時間枠）に {unit} 1 単位が行ったことも、この系列の公表物の確率を、"
        f"δ {said['delta']} の例外を除き、最大でも e^{said['epsilon']} 倍しか変えません。",
    )
    length = said["length"] if said["many"] is None else f"{said['many']} {said['length']}s"
    title = Text(
        f"{name}: {many:,} slots published; random noise protects each {said['unit']} in any {length}.",
        f"{name}：{many:,} 時間枠を公表。どの連続する {span}についても、雑音により{unit}を保護しています。",
    )
    first = tiles([
        (Text("Published slots", "公表した時間枠").html(), f"{many:,}", ""),
        (Text("Last", "最新").html(), escape(str(status["last"])[:16].replace("T", " ")), ""),
        (Text("Privacy loss", "プライバシー損失").html(), f"ε {escape(said['epsilon'])}",
         Text(f"in any {length}, δ {said['delta']}", f"どの連続する {span}でも、δ {said['delta']}").html()),
        (Text("Protected", "保護の単位").html(), Text(f"one {said['unit']}", unit).html(),
         Text(f"in {said['slots']} slots together", f"{said['slots']} 時間枠をまとめて").html()),
    ])  # fmt: skip
    return f"<p>{spoken.html()}</p>", title, [first]


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
    marks = "".join(
        f'<line class="grid" x1="{_EDGE}" x2="{_WIDE - 12}" y1="{y}" y2="{y}"/>'
        f'<text x="{_EDGE - 6}" y="{float(y) + 4:.1f}" font-size="11" text-anchor="end">{value:,.0f}</text>'
        for value in (low, (low + high) / 2, high)
        for y in [at(0, value).partition(",")[2]]
    )
    ends = f'<text x="{_EDGE}" y="{_HIGH - 8}" font-size="11">{escape(rows[0][0])}</text>'
    ends += f'<text x="{_WIDE - 12}" y="{_HIGH - 8}" font-size="11" text-anchor="end">{escape(rows[-1][0])}</text>'
    shape = f'<polygon points="{" ".join(upper + lower)}" fill="currentColor" fill-opacity="0.15"/>'
    shape += f'<polyline points="{" ".join(middle)}" fill="none" stroke="currentColor" stroke-width="1.5"/>'
    return (
        f'<figure><svg viewBox="0 0 {_WIDE} {_HIGH}" role="img" aria-label="{len(rows)} slots / 時間枠: '
        f'{min(row[1] for row in rows):,.0f} – {max(row[1] for row in rows):,.0f}">{marks}{shape}{ends}</svg></figure>'
    )
