"""What a recipe does to the mean of released sums, by kind of area: the one place where bias is put into words.

A sentence is proved (the recipe's page in docs/proofs) or was measured by `benchmarks/bias.py`: people by place, sex
and age (3 groups), at epsilon 0.1, once 34 million and once 4,000 of them (docs/guide/accuracy.md). What is neither is
not said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kasuri.recipes.mechanism import Bias, OwnBias, Run

Sentence = dict[str, str]
"""{"area": a kind of area, "en": what is said of it, "ja": the same}"""

MEASURED: dict[str, dict[str, int | float]] = {
    "haar_topdown": {"blocks": 22, "places": 15, "margin": 22, "small margin": 78},
    "refined_tree": {"blocks": 7, "places": 33, "margin": 11, "small margin": 68},
    "bayes_tree": {"blocks": 123, "places": 34, "margin": 0.8, "small margin": 52},
    "auto": {"blocks": 98, "places": 29, "margin": 0.6, "small margin": 38},
    "simplex": {"large blocks": 7, "places": 15, "margin": 2, "small margin": 35},
    "neg_l2_simplex": {"large blocks": 5, "places": 8, "margin": 1, "small margin": 31},
    "nonneg_lasso": {"large blocks": 5, "places": 7, "margin": 0.9, "small margin": 36},
    "lasso": {"large blocks": 3, "places": 14, "margin": 2, "small margin": 27},
    "woven_tree": {"blocks": 49, "places": 15, "margin": 0.01, "small margin": 16},
    "sparse": {"large blocks": 56, "places": 100, "margin": 38, "small margin": 93},
}
"""Mean errors in per cent, with each recipe's defaults. blocks: of 50 people on average; large blocks: of 400,000;
places: those of 1-99 people together; margin: the smallest age group of 34 million; small margin: that of 4,000. Those
of `lasso` and `sparse` are too low, all others too high."""


def by_area(run: Run) -> list[Sentence]:
    """What is known of the bias (the mean of released less true) of each kind of area."""
    if isinstance(run.bias, OwnBias):
        return [_said(area, (en, ja)) for area, en, ja in run.bias.sentences]
    figures = {key: f"{value:g} %" for key, value in MEASURED.get(run.mechanism.name, {}).items()}
    return _SENTENCES[run.bias](figures, "total" in run.guarantee.public)


def _said(area: str, words: tuple[str, str], figures: Mapping[str, str] | None = None) -> Sentence:
    en, ja = (text.format_map(figures or {}) for text in words)
    return {"area": area, "en": en, "ja": ja}


AREAS = {
    "every area": "すべての区域",
    "cells": "セル",
    "blocks of the tree": "木のブロック",
    "areas of other shapes": "そのほかの形の区域",
    "areas of any shape": "任意の形の区域",
    "areas and margins": "区域と軸ごとの合計",
    "margins over an axis": "軸ごとの合計（性別、年齢など）",
    "sums and the total": "合計と総数",
    "the total": "総数",
}
"""Kinds of areas, and their Japanese names."""

_UNBIASED = (
    "unbiased, whatever its shape: a released sum is the true one plus noise of mean 0. Values may be negative.",
    "形によらず偏りはありません。公表値の合計は、真の合計に平均 0 の雑音を加えたものです。負の値になることもあります。",
)
_RAISED = (
    "biased, since none may be negative: empty and small cells come out too high, large ones too low on average.",
    "負の値をなくすため偏りがあります。平均して、空のセルや小さなセルは高め、大きなセルは低めになります。",
)
_BLOCKS = (
    "those of few people are biased like cells (of 50 people: {blocks} too high, measured at epsilon 0.1); in blocks "
    "of 400,000 people no bias above 0.01 % was measured.",
    "人数の少ないブロックにはセルと同じ偏りがあります（50 人のブロックは {blocks} 高め。epsilon 0.1 での測定値）。"
    "40 万人のブロックでは 0.01 % を超える偏りは測定されていません。",
)
_OTHER = (
    "the biases of its cells add up. Areas where few people live come out too high, however many cells they have "
    "(all places of 1-99 people together: {places} too high); areas drawn without regard to where people live showed "
    "no bias above 0.1 % (34 million people, epsilon 0.1).",
    "セルの偏りが積み重なります。人の少ない区域は、セルの数が多くても高めになります"
    "（1〜99 人の場所の合計は {places} 高め）。"
    "人口と無関係に引いた区域では 0.1 % を超える偏りは測定されていません（3400 万人、epsilon 0.1）。",
)
_MARGINS = (
    "sums over all places of one sex or age add up the biases of many small cells and blocks: small groups come out "
    "too high at the cost of large ones (the smallest of three age groups: {margin} too high among 34 million people, "
    "{small margin} among 4,000, at epsilon 0.1). Publish margins you need as a table of their own.",
    "性別や年齢ごとに全域で合計すると、多数の小さなセルやブロックの偏りが積み重なります。"
    "少数の区分は高めに、多数の区分は低めになります"
    "（3 区分のうち最も少ない年齢区分は、3400 万人の表で {margin}、4000 人の表で {small margin} 高め。epsilon 0.1）。"
    "必要な周辺集計は、別の表として公表してください。",
)
_ADD_UP = (
    "the biases of its cells add up, however large it is: areas of mostly empty or small cells come out too high, full "
    "ones too low (blocks of 400,000 people: {large blocks} too high; all places of 1-99 people together: {places}; at "
    "epsilon 0.1).",
    "区域の大きさによらず、セルの偏りが積み重なります。空のセルや小さなセルの多い区域は高め、人の多い区域は低めになります"
    "（40 万人のブロックは {large blocks}、1〜99 人の場所の合計は {places} 高め。epsilon 0.1）。",
)
_PULLED = (
    "biased: small cells are pulled to 0, and what they lose goes to the larger ones, so that the total is met.",
    "偏りがあります。小さなセルは 0 に引き寄せられ、失われた分は総数が合うように大きなセルに加わります。",
)
_PULLED_DOWN = (
    "the biases of the cells add up: where cells are small the sum comes out too low (blocks of 400,000 people: "
    "{large blocks}; all places of 1-99 people together: {places}; the smallest of three age groups: {margin} among 34 "
    "million people, {small margin} among 4,000; at epsilon 0.1).",
    "セルの偏りが積み重なります。小さなセルの多い区域や区分の合計は低めになります"
    "（40 万人のブロックは {large blocks}、1〜99 人の場所の合計は {places}、3 区分のうち最も少ない年齢区分は"
    "3400 万人の表で {margin}、4000 人の表で {small margin} 低め。epsilon 0.1）。",
)
_DROPPED = (
    "cells below the threshold come out as 0: small cells are lost, and few empty ones appear.",
    "閾値に満たないセルは 0 になります。小さなセルは失われ、空のセルが現れることはまれです。",
)
_LOST = (
    "too low by what the cells below the threshold hold, however large the area (blocks of 400,000 people: "
    "{large blocks}; places of 1-99 people: {places}; the smallest of three age groups: {margin} among 34 million "
    "people, {small margin} among 4,000; at epsilon 0.1).",
    "区域の大きさによらず、閾値に満たないセルの分だけ低めになります（40 万人のブロックは {large blocks}、"
    "1〜99 人の場所の合計は {places}、3 区分のうち最も少ない年齢区分は 3400 万人の表で {margin}、4000 人の表で "
    "{small margin} 低め。epsilon 0.1）。",
)
_ALL_LOST = (
    "too low likewise (15 % among 34 million people, 56 % among 4,000, at epsilon 0.1).",
    "同様に低めになります（3400 万人の表で 15 %、4000 人の表で 56 %。epsilon 0.1）。",
)
_MADE_UP = (
    "only sums over as many axes as the recipe names are measured; anything finer is made up.",
    "測定されるのは、レシピが指定する数までの軸についての合計だけです。それより細かい値は作られたものです。",
)
_NEAREST = (
    "the table is the nearest one without negative values to all measured sums at once, and need not keep any of them, "
    "the total included: 4,000 people came out as 6,700 on average (two axes, 384 cells, epsilon 0.1).",
    "表は、すべての測定値に同時に最も近い、負の値のない表です。総数を含め、個々の測定値は保たれるとは限りません。"
    "4000 人の表の総数が平均 6700 人になりました（2 軸、384 セル、epsilon 0.1）。",
)
_CUT = (
    "unbiased, but for being cut at 0 where the whole table holds hardly more than the noise.",
    "偏りはありません（表全体の人数が雑音と同程度のとき、0 で打ち切られることを除く）。",
)
_DECLARED = (
    "the declared number, without noise.",
    "宣言した値そのもので、雑音は加わりません。",
)


def _total(declared: bool) -> Sentence:
    return _said("the total", _DECLARED if declared else _CUT)


_SENTENCES: dict[Bias, Callable[[Mapping[str, str], bool], list[Sentence]]] = {
    Bias.UNBIASED: lambda figures, declared: [_said("every area", _UNBIASED)],
    Bias.NEAREST: lambda figures, declared: [_said("cells", _MADE_UP), _said("sums and the total", _NEAREST)],
    Bias.DROPPED: lambda figures, declared: [
        _said("cells", _DROPPED), _said("areas and margins", _LOST, figures), _said("the total", _ALL_LOST),
    ],
    Bias.TREES: lambda figures, declared: [
        _said("cells", _RAISED), _said("blocks of the tree", _BLOCKS, figures),
        _said("areas of other shapes", _OTHER, figures), _said("margins over an axis", _MARGINS, figures),
        _total(declared),
    ],
    Bias.PROJECTED: lambda figures, declared: [
        _said("cells", _RAISED), _said("areas of any shape", _ADD_UP, figures),
        _said("margins over an axis", _MARGINS, figures), _total(declared),
    ],
    Bias.PULLED: lambda figures, declared: [
        _said("cells", _PULLED), _said("areas and margins", _PULLED_DOWN, figures), _total(declared),
    ],
}  # fmt: skip
