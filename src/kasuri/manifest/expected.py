"""Error to expect by area size, from closed forms and released values alone; never from counts."""

from __future__ import annotations

from typing import Any

import numpy as np

from kasuri.arrays import added_up
from kasuri.published import intervals
from kasuri.published.protected import Described, Protected
from kasuri.recipes.mechanism import Drawn, NoForm, Run, square_errors

ADVISED = 0.25
"""An area is advised from the size where the expected error is at most this share of a typical released value."""


NOTES = {
    True: "of released sums: a closed form where nothing is refined, else estimated from the published noisy numbers",
    False: "not estimated: the noisy numbers it would be estimated from are not published with this release",
}


def by_area(run: Run) -> list[dict[str, Any]] | None:
    """[{cells, rmse, exact}]: root mean square error of aligned square blocks (of a cell and the total where the
    domain is not a single mesh), before refinement. None where a recipe has no closed form. Where padding or a mask
    leaves splits unmeasured it is an upper bound (`exact` false).
    """
    found = [error for error in square_errors(run, _sizes(run)).values() if not error.about]
    rows = [
        {"cells": error.cells, "rmse": float(f"{error.rmse:.4g}"), "exact": not error.bound}
        for error in sorted(found, key=lambda error: error.cells)
    ]
    return rows or None


def after(run: Run, release: Described) -> list[dict[str, Any]] | None:
    """[{cells, rmse, exact}, or {view, sums, rmse, exact}]: root mean square error of released sums, of the same blocks
    and of the views that a recipe tells, estimated from the published noisy numbers; `exact` false: at most. None where
    there are none to estimate it from, or they are not at hand (on a cluster)."""
    if not isinstance(release, Protected):
        return None
    known = intervals.known(release)
    drawn = Drawn(release.cells, release.values, release.measurements, release.recipe, known)
    found = run.after(drawn, _sizes(run))
    if isinstance(found, NoForm):
        return None
    return [
        ({"cells": error.cells} if error.view is None else {"view": error.view, "sums": error.sums})
        | {"rmse": float(f"{error.rmse:.3g}"), "exact": not error.bound}
        for error in found
    ]


def _sizes(run: Run) -> list[int]:
    domain = run.domain
    sizes = [1, *(4**level for level in range(1, min(domain.shape).bit_length()) if domain.one_mesh), domain.size]
    return sorted({size for size in sizes if size <= domain.size})


def advised(release: Protected, errors: list[dict[str, Any]] | None) -> dict[str, Any] | None:
    """The smallest square block whose expected error is at most a quarter of the median released non-empty block."""
    domain = release.domain
    if errors is None or not domain.one_mesh or release.cells.size == 0:
        return None
    row, col = domain.unravel(release.cells)
    values: Any = release.values
    rmse = {error["cells"]: error["rmse"] for error in errors if "cells" in error}
    level = 0
    while 4**level <= domain.size:
        typical = float(np.median(values[values > 0])) if (values > 0).any() else 0.0
        if 4**level in rmse and rmse[4**level] <= ADVISED * typical:
            return {
                "cells": 4**level,
                "expected_rmse": rmse[4**level],
                "typical_released_value": typical,
                "rule": f"expected error at most {ADVISED} of the median released non-empty block",
            }
        row, col, level = row >> 1, col >> 1, level + 1
        wide = (domain.shape[1] >> level) + 1
        keys, values = added_up(row * wide + col, values.astype(np.float64), ((domain.shape[0] >> level) + 1) * wide)
        row, col = np.divmod(keys, wide)
    return None
