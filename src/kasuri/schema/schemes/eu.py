"""The European grid (INSPIRE, GEOSTAT, GISCO): squares of EPSG:3035, 100 m to 100 km.

A code is `1kmN2689E4337` (the south-west corner without the zeros that the size has) or, in metres,
`CRS3035RES1000mN2689000E4337000`. Both are read; the short one is written.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from kasuri.arrays import Bool, Int
from kasuri.schema.schemes.scheme import Lines, Scheme

_METRES = {
    "100km": 100_000, "50km": 50_000, "20km": 20_000, "10km": 10_000, "5km": 5_000, "2km": 2_000, "1km": 1_000,
    "500m": 500, "200m": 200, "100m": 100,
}  # fmt: skip
_END = 10_000_000
"""Metres: where the grid ends to the north and to the east."""
_SHORT = re.compile(r"([0-9]+k?m)N[0-9]+E[0-9]+")
_LONG = re.compile(r"CRS3035RES([0-9]+)mN[0-9]+E[0-9]+")


class European(Scheme):
    """Two ways of nesting share these levels: 100-50-10-5-1 km (the default) and 100-20-10-2-1 km."""

    crs = "EPSG:3035"
    about = "code of the European grid"

    @property
    def levels(self) -> tuple[str, ...]:
        return tuple(_METRES)

    def lines(self, level: str) -> tuple[Lines, Lines]:
        own = Lines(0, _METRES[level])
        return own, own

    def bounds(self, level: str) -> tuple[int, int, int, int]:
        end = _END // _METRES[level]
        return 0, end, 0, end

    def encode(self, level: str, row: Int, col: Int) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        unit = _METRES[level] // _zeros(level)
        north, east = (pa.array(part * unit).cast(pa.string()) for part in (row, col))
        return pc.binary_join_element_wise(f"{level}N", north, "E", east, "")

    def decode(self, level: str, codes: Any) -> tuple[Int, Int, Bool]:
        short, in_short = _corner(codes, f"^{level}N(?P<n>[0-9]{{1,6}})E(?P<e>[0-9]{{1,6}})$")
        long, in_long = _corner(codes, f"^CRS3035RES{_METRES[level]}mN(?P<n>[0-9]{{1,7}})E(?P<e>[0-9]{{1,7}})$")
        metres = [np.where(in_long, m, s * _zeros(level)) for m, s in zip(long, short, strict=True)]
        good = in_short | in_long
        for part in metres:  # a corner inside a cell is a code of another level
            good &= (part % _METRES[level] == 0) & (part < _END)
        row, col = (np.where(good, part // _METRES[level], 0) for part in metres)
        return row, col, good

    def level_of(self, code: str) -> str | None:
        if found := _SHORT.fullmatch(code):
            return found[1] if found[1] in _METRES else None
        found = _LONG.fullmatch(code)
        return next((name for name, metres in _METRES.items() if found and metres == int(found[1])), None)

    def splits(self, level: str) -> tuple[int, ...]:
        """By the levels 100, 50, 10, 5, 1 km, 500, 100 m; a level of the other way ends with its own step."""
        usual = (100_000, 50_000, 10_000, 5_000, 1_000, 500, 100)
        own = _METRES[level]
        above = [size for size in usual if size > own and size % own == 0]
        return tuple(big // small for big, small in zip(above, [*above[1:], own], strict=True))


def _zeros(level: str) -> int:
    """The largest power of ten that divides the size of a cell: what a short code leaves out."""
    return 10 ** (len(str(_METRES[level])) - len(str(_METRES[level]).rstrip("0")))


def _corner(codes: Any, form: str) -> tuple[tuple[Int, Int], Bool]:
    import pyarrow as pa
    import pyarrow.compute as pc

    found = pc.extract_regex(codes, form)
    good = pc.fill_null(pc.is_valid(found), False).to_numpy(zero_copy_only=False)
    north, east = (
        pc.fill_null(pc.struct_field(found, name).cast(pa.int64()), 0).to_numpy(zero_copy_only=False) for name in "ne"
    )
    return (north, east), good


SCHEME = European()
