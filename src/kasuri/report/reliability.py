"""How far released numbers may be off after refinement, by size of area: from the intervals of the release itself.

Half the width of a 95 % interval, in people and in per cent: what a reader can rely on, unlike the error of the noise
before refinement, which knows nothing of what the other published numbers add.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.arrays import Float
from kasuri.report import chart, frame
from kasuri.report.frame import Text

GOOD, POOR = 10, 50
"""Per cent: as in the viewer."""
MOST = 50
"""Per cent of the areas of a size that must be good to use, for it to be advised."""
_LEAST = 0.01
"""Per cent below which the chart tells no difference."""
HEADING = Text("Good to use from", "利用できる大きさ")
NOTHING = Text("", "")
_HALVES = 100
"""Medians from which no half is told."""
_SHORT = 14
"""Letters of a name that a phone has room for beside the chart."""
_FEWEST = 8
"""Areas below which a size has no dot."""
_WIDE, _HIGH, _LEFT, _RIGHT, _TOP, _FOOT = 640, 360, 88, 172, 34, 46


@dataclass(frozen=True, eq=False)
class Kind:
    """Areas of one size: what they are called, their values and half the width of their intervals."""

    name: Text
    value: Float
    half: Float
    rest: Text = NOTHING
    """What of the other axes they add up, or that they are of one label each."""
    single: bool = False
    """Whether they are cells of the table."""

    @cached_property
    def share(self) -> Float:
        """Per cent of the value."""
        return 100 * self.half / np.maximum(np.abs(self.value), 1)

    @property
    def good(self) -> float:
        """Per cent of the areas that are good to use."""
        return 100 * float(np.mean(self.share <= GOOD))

    def short(self) -> Text:
        """The name beside a line of the chart."""
        if not (self.single and self.rest.en):
            return self.name
        return self.rest if len(self.rest.en) <= _SHORT else Text("one cell", "1 セル")

    def label(self) -> str:
        """The name and what is added up, as HTML."""
        rest = Text(f" ({self.rest.en})", f"（{self.rest.ja}）").html()
        return self.name.html() + (f'<span class="rest">{rest}</span>' if self.rest.en else "")


def tile(kinds: Sequence[Kind]) -> tuple[str, str, str] | None:
    """The smallest areas of which most are good to use: what a reader wants to know first. None where too few
    intervals are known to say."""
    found = [kind for kind in kinds if kind.value.size]
    if not found:
        return None
    heading = HEADING.html()
    best = next((kind for kind in sorted(found, key=lambda kind: -kind.value.size) if kind.good >= MOST), None)
    if best is None and len(found) == 1 and found[0].value.size > 1:
        return None  # nothing is known of larger areas
    if best is None:
        none = Text(f"no size of area is within ± {GOOD} % for most", f"± {GOOD} % 以内が過半となる大きさはありません")
        return heading, "–", none.html()
    rest = Text(f" ({best.rest.en})", f"（{best.rest.ja}）") if best.rest.en else NOTHING
    if best.value.size == 1:
        words = Text(f"± {GOOD} % or better", f"± {GOOD} % 以内")
    else:
        share, good = f"{best.good:.0f}\u00a0%", f"±\u00a0{GOOD}\u00a0%"  # no line ends within
        words = Text(f"{share} within {good}{rest.en}", f"{share} が {good} 以内{rest.ja}")
    name = best.name if best.value.size == 1 else Text(_plural(best.name.en), best.name.ja)
    return heading, name.html(), words.html()


def _plural(name: str) -> str:
    """Of one kind of place: county -> counties."""
    if " " in name or not name.isalpha() or name.endswith("s"):
        return name
    return f"{name[:-1]}ies" if name.endswith("y") and name[-2:-1] not in "aeiou" else f"{name}s"


def body(kinds: Sequence[Kind], confidence: int, *, secret: bool) -> list[str]:
    """The table and the chart; nothing where no area has an interval."""
    kinds = [kind for kind in kinds if kind.value.size]
    if not kinds:
        return []
    words = Text(
        f"After refinement, from the intervals of this release: half of the {confidence} % range. A number is called "
        f"good to use within ± {GOOD} %, and not to be used alone beyond ± {POOR} %.",
        f"補正後の誤差の目安（この公表の信頼区間による）：{confidence} % 信頼区間の半幅です。± {GOOD} % 以内を"
        f"「利用可」、± {POOR} % 超を「単独では利用不可」としています。",
    )
    head = [
        Text("area", "区域"), Text("median value", "値の中央値"), Text("typical ±", "代表的な\u00a0±"),
        Text("typical ±\u00a0%", "代表的な ±\u00a0%"), Text("good to use", "利用可"),
    ]  # fmt: skip
    rows = [
        [kind.label(), median(kind.value), f"± {np.median(kind.half):,.0f}",
         _share(float(np.median(kind.share))), f"{kind.good:.0f} %"]
        for kind in kinds
    ]  # fmt: skip
    curves = [(kind.short(), found) for kind in kinds if len(found := _by_size(kind)) > 1]
    return [
        f"<p>{words.html()}</p>",
        frame.table([part.html() for part in head], rows, numbers=range(1, 5)),
        *([_chart(curves[:6], secret)] if curves else []),
    ]


def median(values: NDArray[Any]) -> str:
    """The middle value; half of one is told of small numbers only."""
    middle = float(np.median(values))
    return f"{middle:,.0f}" if abs(middle) >= _HALVES else f"{middle:,.1f}".removesuffix(".0")


def _share(value: float) -> str:
    if value < 0.1:
        return "< 0.1 %"
    return f"± {value:,.1f} %" if value < 10 else f"± {value:,.0f} %" if value < 1000 else "> 999 %"


def _round(power: float) -> str:
    """A power of ten in few letters."""
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if power >= unit:
            return f"{power / unit:g}{letter}"
    return f"{power:g}"


def _per_cent(mark: float) -> str:
    return f"≤ {mark:g} %" if mark <= _LEAST * 1.001 else f"{mark:,.10g} %"


def _by_size(kind: Kind) -> list[tuple[float, float]]:
    """(people, median per cent) by half powers of ten."""
    good = kind.value >= 1
    value, share = kind.value[good], kind.share[good]
    step = np.floor(2 * np.log10(value)).astype(np.int16)
    by, ends = np.argsort(step, kind="stable"), np.cumsum(np.bincount(step))
    parts = zip(np.split(value[by], ends), np.split(share[by], ends), strict=True)
    return [
        (float(np.median(values)), float(np.clip(np.median(shares), _LEAST, 1000)))
        for values, shares in parts
        if values.size >= _FEWEST
    ]


def _chart(curves: Sequence[tuple[Text, list[tuple[float, float]]]], secret: bool) -> str:
    points = [point for _, found in curves for point in found]
    low = 10 ** math.floor(math.log10(min(x for x, _ in points)))
    high = 10 ** math.ceil(math.log10(max(x for x, _ in points)) + 1e-9)
    bottom = 10 ** math.floor(math.log10(min(y for _, y in points)) + 1e-9)
    top = max(10 ** math.ceil(math.log10(max(y for _, y in points))), 100, 10 * bottom)  # all may be at the last share

    def x(value: float) -> float:
        return round(_LEFT + math.log(value / low) / math.log(high / low) * (_WIDE - _LEFT - _RIGHT), 1)

    def y(value: float) -> float:
        share = math.log(value / bottom) / math.log(top / bottom)
        return round(_HIGH - _FOOT - share * (_HIGH - _TOP - _FOOT), 1)

    right = _WIDE - _RIGHT
    parts = [
        f'<rect class="usable" x="{_LEFT}" y="{y(GOOD)}" width="{right - _LEFT}" height="{y(bottom) - y(GOOD):g}"/>'
    ]
    parts.append(f'<rect class="alone" x="{_LEFT}" y="{_TOP}" width="{right - _LEFT}" height="{y(POOR) - _TOP:g}"/>')
    mark = bottom
    while mark <= top * 1.001:
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{y(mark)}" y2="{y(mark)}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y(mark) + 4}" text-anchor="end">{_per_cent(mark)}</text>')
        mark *= 10
    mark = low
    while mark <= high * 1.001:
        parts.append(f'<text x="{x(mark)}" y="{_HIGH - _FOOT + 20}" text-anchor="middle">{_round(mark)}</text>')
        mark *= 10
    for at, (_, found) in enumerate(curves):
        path = " ".join(f"{x(a)},{y(b)}" for a, b in found)
        parts.append(f'<polyline class="curve c{at}" points="{path}"/>')
        parts += [f'<circle class="dot c{at}" cx="{x(a)}" cy="{y(b)}" r="3"/>' for a, b in found]
    for at, (name, _) in enumerate(curves):  # what each line is, beside the chart
        place = _TOP + 14 + 20 * at
        parts.append(
            f'<line class="curve c{at}" x1="{right + 8}" x2="{right + 24}" y1="{place - 4}" y2="{place - 4}"/>'
        )
        parts.append(chart.both_text(right + 29, place, name, "start"))
    parts.append(chart.both_text(_LEFT, 20, Text("± % of the value", "値に対する ± %"), "start"))
    parts.append(chart.both_text(right, _HIGH - 6, Text("released value of the area", "区域の公表値"), "end"))
    parts.append(chart.both_text(_LEFT + 8, y(bottom) - 8, Text("good to use", "利用可"), "start"))
    parts.append(chart.both_text(right - 8, _TOP + 16, Text("not alone", "単独では利用不可"), "end"))
    return (
        f'<figure><svg viewBox="0 0 {_WIDE} {_HIGH}" role="img" aria-label="error after refinement by size of area / '
        f'区域の大きさ別の補正後の誤差">{"".join(parts)}{chart.watermark(secret, _WIDE, _HIGH)}</svg></figure>'
    )
