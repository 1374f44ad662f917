"""Whether the page in a release's folder is the one of its release."""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kasuri.report import reliability, sums
from kasuri.report.pack import Rows, pack, squeezed_in, unpack


def same(found: str, made: str, *, rounding: float = 1) -> bool:
    """Bytes may differ where another zlib squeezed the rows; what they hold may not, but by `rounding` in the limits of
    larger areas, which are computed: none on the machine that made them, any (infinity) where an earlier rule did."""
    if found == made:
        return True
    (head, packed, foot), (head_here, packed_here, foot_here) = around(found), around(made)
    try:
        view, view_here = (_view(part) for part in (head, head_here))
        dated = math.isinf(rounding)
        texts, texts_here = ((_without(part, dated=dated), end) for part, end in ((head, foot), (head_here, foot_here)))
        if texts != texts_here or _letters(_plainly(view)) != _letters(_plainly(view_here)):
            return False
        told, told_here = ([{"what": "rows", "about": each["data"]}, *each["parts"]] for each in (view, view_here))
        pairs = list(zip(told, packed.split("."), told_here, packed_here.split("."), strict=True))
        if not _exactly(*pairs[0]):
            return False
        rows = unpack(told[0]["about"], pairs[0][1])
        ranges = rounding > 0
        return all(
            _exactly(*pair) or (ranges and pair[0]["what"] == "range" and _nearly(view["axes"], rows, *pair, rounding))
            for pair in pairs[1:]
        )
    except (AttributeError, ValueError, KeyError, TypeError, zlib.error):
        return False


def _view(head: str) -> dict[str, Any]:
    """What the viewer is told; ValueError where it is not written as `frame` writes it: a key that is there twice, say,
    of which readers see one."""
    text = head.rpartition('id="view">')[2].partition("</script>")[0]
    view: dict[str, Any] = json.loads(text)
    if json.dumps(view, ensure_ascii=False, sort_keys=True).replace("<", "\\u003c") != text:
        raise ValueError("not as it was written")
    return view


def _without(head: str, *, dated: bool) -> str:
    """What precedes the rows, but for what tells their lengths, and where limits are `dated` how wide they are."""
    before, mark, after = head.rpartition('id="view">')
    if dated:
        own = f"<div><dt>{re.escape(reliability.HEADING.html())}</dt>.*?</div>"
        for part in ('<section id="error".*?</section>', own):
            before = re.sub(part, "", before, flags=re.DOTALL)
    return before + mark + after.partition("</script>")[2]


def _plainly(view: Mapping[str, Any]) -> dict[str, Any]:
    """The view, but for the lengths of packed streams."""
    parts = [{key: value for key, value in part.items() if key != "about"} for part in view["parts"]]
    return {**{key: value for key, value in view.items() if key != "data"}, "parts": parts}


def _exactly(told: Mapping[str, Any], one: str, told_here: Mapping[str, Any], other: str) -> bool:
    """Whether two packed texts hold the same to the last byte, whatever squeezed them."""
    size = 1 + sum(length for _, length in told["about"]["streams"])
    alike = _letters(told["about"]) == _letters(told_here["about"])
    return alike and squeezed_in(one, size) == squeezed_in(other, size)


def _letters(told: Mapping[str, Any]) -> str:
    """What is told, to the letter: 1, 1.0 and true are equal numbers."""
    return json.dumps(told, sort_keys=True)


def _nearly(
    axes: Sequence[Mapping[str, Any]], rows: Rows, told: Mapping[str, Any], one: str, told_here: Mapping[str, Any],
    other: str, rounding: float,
) -> bool:  # fmt: skip
    """Whether two packed texts hold the same sums, with limits that differ by `rounding` at most."""
    abouts = told["about"], told_here["about"]
    (names, names_here) = ([name for name, _ in about["streams"]] for about in abouts)
    known = None if "value" in names else sums.of(axes, rows, told["key"])
    if sorted(abouts[0]) != sorted(abouts[1]) or names != names_here or (known is None) != ("value" in names):
        return False
    found = unpack(abouts[0], one, known)
    again, text = pack(found, sums=known is not None)  # nothing but its numbers: some are never shown
    written = _exactly({"about": again}, text, told, one)
    return written and _alike(found, unpack(abouts[1], other, known), rounding)


def _alike(one: Rows, other: Rows, rounding: float) -> bool:
    if (one.unit, one.step, one.grain) != (other.unit, other.step, other.grain):
        return False
    return all(np.array_equal(a, b) for a, b in zip(one.index, other.index, strict=True)) and all(
        np.abs(one.columns[name] - other.columns[name]).max(initial=0)
        <= (rounding if name in ("below", "above") else 0)
        for name in one.columns
    )


def around(text: str) -> tuple[str, str, str]:
    """The page before its packed rows, these, and what follows."""
    head, mark, rest = text.partition('id="rows">')
    packed, _, foot = rest.partition("</script>")
    return head + mark, packed, foot
