"""Questions that the table answers by itself: quartiles along ordered axes, and the certified order of places.

*Privacy.* From the published measurements, like the columns lower and upper (docs/proofs/questions.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from kasuri.published import intervals, questions
from kasuri.published.area import Area
from kasuri.published.protected import Protected
from kasuri.report import frame, levels, margins
from kasuri.report.frame import Text
from kasuri.schema import Axis
from kasuri.words import japanese

QUARTERS = (0.25, 0.5, 0.75)
MOST_STEPS = 128
"""Of an axis whose quartiles are told."""
MOST_RANKED = 400
"""Places that are put in order: each has a share of the error, so the order of more is hardly ever certain."""
TOP = 10
_WHOLE = '<span class="whole">{}</span>'
"""What no line ends within."""


def has(axis: Axis) -> bool:
    """Is there anything to be asked of this axis?"""
    return _stepped(axis) or bool(_places(axis)[1])


def section(release: Protected, confidence: int) -> list[str]:
    """Tables of quartiles and ranks; none where the release has no intervals, or no axis to ask about."""
    if intervals.missing(release) is not None:
        return []
    return [*_quartiles(release, confidence), *_ranks(release, confidence)]


def _quartiles(release: Protected, confidence: int) -> Iterator[str]:
    rows = []
    for axis in release.domain.axes:
        if _stepped(axis):
            found = questions.quantiles(release, axis.name, QUARTERS, Area(), confidence / 100)
            rows.append([_name(axis.name).html(), *(_range(one) for one in found)])
    if not rows:
        return
    said = Text(
        "A quarter, half and three quarters of all records lie at these values or below. In brackets: the values "
        f"between which the true one lies with {confidence} % confidence, each by itself.",
        "全記録の 4 分の 1、半数、4 分の 3 がこの値以下にあります。括弧内は、真の値が入る範囲です"
        f"（それぞれ {confidence} % 信頼区間）。",
    )
    head = [
        Text("along", "軸").html(),
        Text("a quarter", "4 分の 1").html(),
        Text("half (the median)", "半数（中央値）").html(),
        Text("three quarters", "4 分の 3").html(),
    ]
    yield f"<p>{said.html()}</p>"
    yield frame.table(head, rows, numbers=(1, 2, 3))


def _stepped(axis: Axis) -> bool:
    return axis.ordered and 2 < axis.sizes[0] <= MOST_STEPS


def _range(found: questions.Quantile) -> str:
    shown, low, high = (_name(word) for word in (found.label, found.lower_label, found.upper_label))
    ends = Text(f"{low.en} to {high.en}", f"{low.ja}～{high.ja}") if found.lower != found.upper else low
    return _WHOLE.format(shown.html()) + " " + _WHOLE.format(Text(f"({ends.en})", f"（{ends.ja}）").html())


def _ranks(release: Protected, confidence: int) -> Iterator[str]:
    for axis in release.domain.axes:
        level, areas = _places(axis)
        if not areas:
            continue
        names = _called(axis, level)
        found = questions.ranking(release, areas, Area(), confidence / 100)
        rows = [
            [_rank(one), names.get(one.name, _name(one.name)).html(), levels.number(one.value),
             f"{levels.number(one.lower)}–<wbr>{levels.number(one.upper)}"]
            for one in found.ranks[:TOP]
        ]  # fmt: skip
        of, along = _name(level), _name(axis.name)
        which = Text("", "") if level == axis.name or len(release.domain.axes) == 1 else Text(
            f" ({along.en})", f"（{along.ja}）"
        )  # fmt: skip
        said = Text(
            f"The largest of {len(areas)} by {of.en}{which.en}, with the ranks that each may have: all ranks and "
            f"ranges of this list hold together with {confidence} % confidence.",
            f"{of.ja}別{which.ja}の上位（全 {len(areas)} 区分）。順位は取りうる範囲で示します。"
            f"順位と範囲のすべてが同時に成り立つ信頼度は {confidence} % です。",
        )
        head = [
            Text("rank", "順位").html(),
            of.html(),
            Text("released", "公表値").html(),
            Text("range of the true count", "真の値の範囲").html(),
        ]
        yield f"<p>{said.html()}</p>"
        yield frame.table(head, rows, numbers=(0, 2, 3))


def _places(axis: Axis) -> tuple[str, Mapping[str, Area]]:
    """The finest level of an axis with names that has few enough areas to be put in order: its name, and they."""
    if axis.ordered or axis.plane is not None:
        return "", {}
    inside = axis.mapped()
    for at, ((first, last),) in enumerate(margins.spans(inside)):
        level = axis.own_level or axis.name if at == 0 else axis.level_names[at - 1]
        shown = (inside if at == 0 else inside.coarsened(level)[0]).shown()
        if shown is not None and 2 < first.size <= MOST_RANKED and len(set(shown)) == first.size:
            return level, {
                word: Area.along(axis.name, slice(int(low), int(high)))
                for word, low, high in zip(shown, first, last, strict=True)
            }
    return "", {}


def _called(axis: Axis, level: str) -> dict[str, Text]:
    """The places of a tree by what they are shown as, with their names in both languages where these are given."""
    if not axis.level_names:
        return {}
    inside = axis.mapped()
    own = inside.coarsened(level)[0] if level in axis.level_names else inside
    shown, many = own.shown(), own.declared[0]
    told = {key.removeprefix(f"{own.name}_"): part.to_pylist() for key, part in own.column([np.arange(many)]).items()}
    en, ja = told.get("name_en") or told.get("name_romaji"), told.get("name_ja")
    if shown is None or en is None:
        return {}
    codes = told[own.name]
    return {
        word: Text(f"{code} {latin}", f"{code} {local}" if local else word) if latin else _name(word)
        for word, code, latin, local in zip(shown, codes, en, ja or [""] * many, strict=False)
    }


def _rank(one: questions.Rank) -> str:
    return f"{one.best}" if one.best == one.worst else f"{one.best}–{one.worst}"


def _name(word: str) -> Text:
    return Text(word, japanese.name(word))
