"""Error to expect by area size, from closed forms and released values alone; never from counts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kasuri.errors import FormatError, unknown
from kasuri.noise import laplace_variance
from kasuri.privacy import written
from kasuri.published import Described, Release
from kasuri.schema import Domain, Mesh
from kasuri.transform import node_variance

ADVISED = 0.25
"""An area is advised from the size where the expected error is at most this share of a typical released value."""


_KNOWN = {
    "transform": (("identity", "sum_difference", "haar", "haar_nd"), ("nominal", "counts", "matrix", "fourier")),
    "refine": (("none", "inverse", "topdown"),
               ("least squares", "bayes", "chosen", "consistency", "simplex", "nonneg lasso", "lasso", "threshold",
                "linear program")),
}  # fmt: skip
"""Words of a recipe with a closed form, and without."""


def by_area(release: Described) -> list[dict[str, Any]] | None:
    """[{cells, rmse, exact}]: root mean square error of aligned square blocks (of a cell and the total where the
    domain is no single mesh), before refinement. None where a recipe has no closed form.

    Tree recipes: see `transform.node_variance`; where padding or a mask leaves a split unmeasured a child keeps its
    parent's variance, and that of a single draw is an upper bound (`exact` false).
    """
    recipe, domain = release.recipe, release.domain
    for name, (form, none) in _KNOWN.items():
        if recipe[name] not in (*form, *none):
            raise unknown(FormatError, f"the release's {name}", recipe[name], (*form, *none))
    if any(recipe[name] in none for name, (_, none) in _KNOWN.items()):
        return None
    variance = laplace_variance(written(recipe["scale"]), recipe["noise"])
    rows = []
    for cells, depths, places in _blocks(domain):
        exact = not domain.mask and all(size & (size - 1) == 0 for size in domain.shape)
        if recipe["transform"] == "identity":
            value, exact = cells * variance, True
        elif recipe["transform"] == "haar_nd":
            value = variance * math.prod(node_variance(depth) for depth in depths) if exact else variance
        elif recipe["order"] == "1d" and 1 < cells < places:
            continue  # a square block is no node of this tree
        elif recipe["order"] != "1d" and not str(recipe["order"]).startswith("morton"):
            raise unknown(FormatError, "the release's order", recipe["order"], ("1d", "morton"))
        else:
            value = variance * node_variance(sum(depths)) if exact else variance
        rows.append({"cells": cells, "rmse": float(f"{math.sqrt(value):.4g}"), "exact": exact})
    return rows


def _blocks(domain: Domain) -> list[tuple[int, tuple[int, ...], int]]:
    """(cells, depth of the block along each dimension, cells of the domain), from one cell to all."""
    bits = tuple((size - 1).bit_length() for size in domain.shape)
    out = [(1, bits)]
    if len(domain.axes) == 1 and isinstance(domain.axes[0], Mesh):
        out += [(4**level, tuple(bit - level for bit in bits)) for level in range(1, min(bits) + 1)]
    if out[-1][0] < domain.size:
        out.append((domain.size, (0,) * len(bits)))
    return [(cells, depths, domain.size) for cells, depths in out]


def advised(release: Release, errors: list[dict[str, Any]] | None) -> dict[str, Any] | None:
    """The smallest square block whose expected error is at most a quarter of the median released non-empty block."""
    domain = release.domain
    if errors is None or len(domain.axes) != 1 or not isinstance(domain.axes[0], Mesh) or release.cells.size == 0:
        return None
    row, col = domain.unravel(release.cells)
    values: Any = release.values
    rmse = {error["cells"]: error["rmse"] for error in errors}
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
        keys, inverse = np.unique(row * (domain.shape[1] + 1) + col, return_inverse=True)
        values = np.bincount(inverse, weights=values)
        row, col = np.divmod(keys, domain.shape[1] + 1)
    return None
