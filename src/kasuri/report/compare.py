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
from kasuri.report.pack import Rows, squeezed_in, unpack


def same(found: str, made: str, *, dated: bool = False) -> bool:
    """Bytes may differ where another zlib squeezed the rows; what they hold may not, but for the limits of larger
    areas where they are `dated`: made by an earlier rule."""
    if found == made:
        return True
    (head, packed, foot), (head_here, packed_here, foot_here) = around(found), around(made)
    try:
        view, view_here = (_view(part) for part in (head, head_here))
        texts, texts_here = ((_without(part, dated=dated), end) for part, end in ((head, foot), (head_here, foot_here)))
        if texts != texts_here or _plainly(view) != _plainly(view_here):
            return False
        told, told_here = ([{"what": "rows", "about": each["data"]}, *each["parts"]] for each in (view, view_here))
        if [_form(part) for part in told] != [_form(part) for part in told_here]:
            return False
        texts_of = packed.split("."), packed_here.split(".")
        rows, here = (unpack(part[0]["about"], text[0]) for part, text in zip((told, told_here), texts_of, strict=True))
        if not _alike(rows, here, 0):
            return False
        pairs = zip(told[1:], texts_of[0][1:], told_here[1:], texts_of[1][1:], strict=True)
        return all(_same_part(view["axes"], rows, *part, dated=dated) for part in pairs)
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


def _form(part: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """What is told about packed rows, but for numbers that are compared with the rows."""
    return sorted(part["about"]), [name for name, _ in part["about"]["streams"]]


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


def _same_part(
    axes: Sequence[Mapping[str, Any]], rows: Rows, told: Mapping[str, Any], one: str, told_here: Mapping[str, Any],
    other: str, *, dated: bool,
) -> bool:  # fmt: skip
    """Whether two packed texts hold the same. Limits of sums are computed, and may be off by their rounding."""
    if told["what"] == "range":
        abouts = told["about"], told_here["about"]
        listed = [any(name == "value" for name, _ in about["streams"]) for about in abouts]
        known = None if all(listed) else sums.of(axes, rows, told["key"])
        if listed[0] != listed[1] or (known is None) != listed[0]:
            return False
        return _alike(unpack(abouts[0], one, known), unpack(abouts[1], other, known), math.inf if dated else 1)
    size = 1 + sum(length for _, length in told["about"]["streams"])
    return squeezed_in(one, size) == squeezed_in(other, size)


def _alike(one: Rows, other: Rows, rounding: float) -> bool:
    """Whether two tables are the same, but for `rounding` in limits, which are computed and not read."""
    if (one.unit, one.step) != (other.unit, other.step):
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
