"""Charts of a report as SVG: no script, both languages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from kasuri.report.frame import Text

_WIDE, _HIGH, _LEFT, _RIGHT, _TOP, _FOOT = 640, 340, 70, 20, 40, 48


def watermark(secret: bool, wide: float = _WIDE, high: float = _HIGH) -> str:
    """The word that is printed across every figure computed from the original data, as large and as steep as fits."""
    if not secret:
        return ""
    steep = min(18.0, math.degrees(math.atan2(high, wide)))
    size = min(44.0, wide / 13, 0.3 * high)
    x, y = wide / 2, high / 2 + size / 3
    at = f'x="{x:g}" y="{y:g}" font-size="{size:.3g}" text-anchor="middle" transform="rotate({-steep:.3g} {x:g} {y:g})"'
    return f'<text class="mark" {at}>CONFIDENTIAL 部外秘</text>'


def errors(rows: Sequence[Mapping[str, Any]], secret: bool, *, refined: bool) -> str:
    """Expected error by size of area, both axes logarithmic; a hollow dot is an upper bound. `refined` errors are those
    after refinement, estimated from the published numbers."""
    points = [(float(row["cells"]), float(row["rmse"])) for row in rows if row["rmse"] > 0]
    words = Text(
        "Expected error of a sum, by number of cells in a square area. The error is that of the noise, in the unit of "
        "the table; it is known before any data is seen.",
        "正方形の区域の合計について、セル数ごとの誤差の期待値。雑音による誤差であり、単位は表と同じです。"
        "データを見る前に計算できます。",
    )
    if refined:
        words = Text(
            "Expected error of a sum after refinement, by number of cells in a square area, in the unit of the table; "
            "estimated from the published noisy numbers.",
            "正方形の区域の合計について、セル数ごとの補正後の誤差の期待値。単位は表と同じです。"
            "公表した雑音入りの数値から推定しています。",
        )
    drawn = _curve(points, [bool(row["exact"]) for row in rows if row["rmse"] > 0], secret) if len(points) > 1 else ""
    return f"<figure>{drawn}<figcaption>{words.html()}</figcaption></figure>" if drawn else ""


def _curve(points: list[tuple[float, float]], exact: list[bool], secret: bool) -> str:
    low_x, high_x = points[0][0], points[-1][0]
    marks = _marks(min(y for _, y in points), max(y for _, y in points))
    low, high = marks[0], marks[-1]

    def x(value: float) -> float:
        share = math.log(value / low_x) / math.log(high_x / low_x)
        return round(_LEFT + share * (_WIDE - _LEFT - _RIGHT), 1)

    def y(value: float) -> float:
        return round(_HIGH - _FOOT - math.log(value / low) / math.log(high / low) * (_HIGH - _TOP - _FOOT), 1)

    parts = []
    for mark in marks:
        at = y(mark)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDE - _RIGHT}" y1="{at}" y2="{at}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{at + 4}" text-anchor="end">{mark:,g}</text>')
    step = max(1, math.ceil(len(points) / 6))
    for value, _ in points[::step]:
        parts.append(f'<text x="{x(value)}" y="{_HIGH - _FOOT + 20}" text-anchor="middle">{value:,.0f}</text>')
    path = " ".join(f"{x(a)},{y(b)}" for a, b in points)
    parts.append(f'<polyline class="curve" points="{path}"/>')
    parts += [
        f'<circle class="{"dot" if sure else "open"}" cx="{x(a)}" cy="{y(b)}" r="4"/>'
        for (a, b), sure in zip(points, exact, strict=True)
    ]
    parts.append(
        both_text(_LEFT, 22, Text("expected error (root mean square)", "誤差の期待値（二乗平均平方根）"), "start")
    )
    parts.append(both_text(_WIDE - _RIGHT, _HIGH - 8, Text("cells in the area", "区域のセル数"), "end"))
    return (
        f'<svg viewBox="0 0 {_WIDE} {_HIGH}" role="img" '
        'aria-label="expected error by size of area / 区域の大きさ別の誤差">'
        f"{''.join(parts)}{watermark(secret)}</svg>"
    )


def _marks(low: float, high: float) -> list[float]:
    """1, 2, 5, 10, ... around low .. high; whole powers of ten where that would be many."""
    power = 10.0 ** math.floor(math.log10(low))
    steps = (1, 2, 5) if high / low < 1000 else (1,)
    out = [power]
    while out[-1] < high * 1.05:
        out += [power * step for step in steps if power * step > out[-1]]
        power *= 10
    first = max(i for i, mark in enumerate(out) if mark <= low * 0.95 or i == 0)
    last = min(i for i, mark in enumerate(out) if mark >= high * 1.05)
    return out[first : last + 1]


def both_text(x: float, y: float, words: Text, anchor: str) -> str:
    """Words at a place of a figure, in the language the page is in."""
    return (
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" lang="en">{words.en}</text>'
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" lang="ja">{words.ja}</text>'
    )
