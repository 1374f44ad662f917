"""What a page says of its own numbers: which have intervals and which have none, what is rounded, what is summed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from kasuri.report import frame, levels, margins
from kasuri.report.frame import Text
from kasuri.report.sheet import Sheet
from kasuri.words import japanese


def of(
    about: Mapping[str, Any], sheet: Sheet, drawn: Sheet, kinds: Collection[margins.Key], confidence: int
) -> list[str]:
    """As HTML. `drawn` is what the page shows of `sheet`; `kinds` are the sums that have intervals."""
    out = []
    if drawn.domain != sheet.domain:
        was, now = next(pair for pair in zip(sheet.meshes, drawn.meshes, strict=True) if pair[0] != pair[1])
        side = -(-max(was.shape) // max(now.shape))
        coarse = now.level or f"{side} x {side}"
        out.append(
            frame.note(
                Text(
                    f"The released table is too large for one page: the map shows its sums at {coarse}. Every cell is "
                    "in release.parquet.",
                    f"公表した表は一つのページに収まらないため、地図は {coarse} に集計した値を示します。"
                    "すべてのセルの値は release.parquet にあります。",
                )
            )
        )
    elif drawn is not sheet:
        out.append(
            frame.note(
                Text(
                    f"The released table is too large for one page: its {drawn.cells.size:,} largest values are shown, "
                    "the others as 0. Every cell is in release.parquet.",
                    f"公表した表は一つのページに収まらないため、絶対値の大きい {drawn.cells.size:,} 件のみを示し、"
                    "ほかは 0 として表示します。すべてのセルの値は release.parquet にあります。",
                )
            )
        )
    if sheet.cells.size:
        full = drawn is sheet or not sheet.has_intervals
        told = about.get("intervals") or {}
        out.append(frame.note(_bars(sheet, told, kinds, confidence) if full else _larger(drawn, kinds, confidence)))
    return out


def _larger(drawn: Sheet, kinds: Collection[margins.Key], confidence: int) -> Text:
    """Which intervals there are where the page does not show every cell."""
    named = [levels.kind(drawn.domain.axes, key) for key in sorted(kinds, key=_finest)]
    some = Text("No interval is shown here.", "ここでは信頼区間を示していません。")
    if named and len(drawn.domain.axes) == 1:
        some = Text(
            f"A {confidence} % interval is shown with larger areas: {', '.join(name.en for name in named)}.",
            f"{confidence} % 信頼区間は、より広い区域（{'、'.join(name.ja for name in named)}）に付いています。",
        )
    elif named:
        some = Text(f"A {confidence} % interval is shown with sums of {len(named)} kinds.",
                    f"{confidence} % 信頼区間は、{len(named)} 種類の合計に付いています。")  # fmt: skip
    return Text(
        f"{some.en} Release.load(folder).interval(...) computes that of any other.",
        f"{some.ja}そのほかは Release.load(folder).interval(...) で計算できます。",
    )


def _finest(key: margins.Key) -> int:
    """The order in which levels are named: from the smallest areas to everything."""
    return key[0] % 99


def _bars(sheet: Sheet, told: Mapping[str, Any], kinds: Collection[margins.Key], confidence: int) -> Text:
    """Which values have an interval and which have none, and why: from what the release says of its own recipe."""
    if not sheet.has_intervals:
        why = str(told.get("why") or "the release does not say")
        return Text(
            f"No value on this page has an interval (the columns lower and upper are empty): {why}. The expected error "
            "below says how far a value may be off.",
            f"このページの値には信頼区間がありません（lower 列と upper 列は空です）。理由：{japanese.ja(why)}。"
            "値のずれの目安は下の「誤差の目安」をご覧ください。",
        )
    without = int((~np.isfinite(sheet.lower)).sum())
    some = Text("", "") if not without else Text(
        f" {without:,} of them have none: their columns lower and upper are empty.",
        f"そのうち {without:,} 個には信頼区間がありません（lower 列と upper 列が空です）。",
    )  # fmt: skip
    if sheet.grain:
        some = Text(
            f"{some.en} So that the page stays small, values are rounded to multiples of {sheet.grain} ("
            "larger areas are off by hardly more), and the ends of the cells' intervals outwards to multiples of "
            f"{sheet.step}; release.parquet has them to the last digit.",
            f"{some.ja}ページを小さくするため、値は {sheet.grain} の倍数に（より広い区域のずれも同程度）、"
            f"セルの信頼区間の両端は {sheet.step} の倍数へ外側に丸めています。"
            "丸める前の値は release.parquet にあります。",
        )
    elif sheet.step > 1:
        some = Text(
            f"{some.en} So that the page stays small, their ends are rounded outwards to multiples of {sheet.step}; "
            "release.parquet has them to the last digit.",
            f"{some.ja}ページを小さくするため、セルの信頼区間の両端は {sheet.step} の倍数へ外側に丸めています。"
            "丸める前の値は release.parquet にあります。",
        )
    also = Text("", "")
    if kinds and len(sheet.domain.axes) == 1:
        named = [levels.kind(sheet.domain.axes, key) for key in sorted(kinds, key=_finest)]
        also = Text(
            " and each of their sums (" + ", ".join(name.en for name in named) + ")",
            "と" + "、".join(name.ja for name in named) + "の区域",
        )
    elif kinds:
        also = Text(f" and with those of {len(kinds)} kinds of sums (larger areas, all labels of an axis)",
                    f"と {len(kinds)} 種類の合計（より広い区域、軸の合計）")  # fmt: skip
    return Text(
        f"A {confidence} % interval is shown with {_each(sheet.cells.size)}{also.en}.{some.en} "
        "The page shows none for cells that are not listed (released as 0), nor for other sums, since intervals do not "
        "add up: Release.load(folder).interval(...) computes the right one for any area, empty cells "
        "included.",
        f"{confidence} % 信頼区間は、掲載した {sheet.cells.size:,} 個のセル{also.ja}のそれぞれに付いています。{some.ja}"
        "掲載のないセル（0 として公表）や、そのほかの合計には表示しません。"
        "信頼区間は足し合わせられないためです。"
        "Release.load(folder).interval(...) により、空のセルを含む任意の区域の信頼区間を計算できます。",
    )


def _each(many: int) -> str:
    return "the one listed cell" if many == 1 else f"each of the {many:,} listed cells"
