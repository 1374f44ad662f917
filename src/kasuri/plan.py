"""Expected error before any data is touched: closed forms, else simulation on a map that is declared public."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kasuri.errors import DomainError, PrivacyError, raise_faults, unknown
from kasuri.evaluate import compare, names_of
from kasuri.intervals import factor
from kasuri.mechanism import Mechanism, Run, resolve
from kasuri.noise import laplace_variance
from kasuri.privacy import asked, decimal
from kasuri.schema import Domain, Mesh, Unit
from kasuri.table import Counts
from kasuri.transform import node_variance
from kasuri.visited import LEAST_SCALE


@dataclass(frozen=True)
class BlockError:
    """Root mean square error of the sum over one block of `cells` cells: of the release if `exact`, else of its noise
    before refinement. Refinement lowers it on average over a map, most for small and empty cells, and raises it for
    single large cells, which it pulls down: no bound for any one cell."""

    cells: int
    rmse: float
    exact: bool


_FORM = ("none", "inverse", "topdown", "least squares", "consistency")
_NO_FORM = ("bayes", "chosen", "simplex", "nonneg lasso", "lasso", "threshold", "linear program")
"""Refinements with a closed form of their error, and without."""


def block_errors(mechanism: Mechanism, domain: Domain, unit: Unit, epsilon: object) -> list[BlockError]:
    """Error of block sums, one entry per height of the tree from one cell to the whole table.

    Trees of k levels: Var = v (4^(l-k) + sum_{i=l+1..k} 4^(l-i)) for a block of 2^l cells, v the variance of one
    coefficient's noise; it is (2/3) lambda^2 (1 + 2/q^2) with q = 2^(k-l) [Terada2015, eq. 51]. Cells by themselves:
    Var = 2^l v. Standard decomposition: the product of the axes' factors. Count trees: see `_count_tree`; where nothing
    is made non-negative (hierarchy) and no node is missing, this is the error itself.
    """
    run = resolve(mechanism, domain, unit, epsilon)
    if mechanism.transform == "matrix":
        raise DomainError("no closed form for matrix: its error differs from cell to cell, as the strategy does")
    if mechanism.refine in _NO_FORM:
        raise DomainError(f"no closed form for {mechanism.name}: its error depends on the table")
    if mechanism.refine not in _FORM:
        raise unknown(PrivacyError, "the refinement", mechanism.refine, (*_FORM, *_NO_FORM))
    whole = all(tree.whole for tree in run.trees)
    if mechanism.refine == "consistency" and not whole:
        raise DomainError(
            "no closed form for hierarchy where padding or a mask leaves nodes out: its error differs from node to node"
        )
    v = laplace_variance(run.scale, mechanism.noise)
    if mechanism.transform == "identity":
        steps = (domain.size - 1).bit_length()
        return [BlockError(1 << at, sqrt(v * (1 << at)), True) for at in range(steps + 1) if 1 << at <= domain.size]
    if mechanism.transform == "nominal":
        raise DomainError("no closed form for the nominal transform: its noise differs from node to node")
    if mechanism.transform == "counts":
        linear = mechanism.refine == "consistency"
        return [BlockError(cells, sqrt(variance), linear) for cells, variance in _count_tree(run)]
    if mechanism.transform == "haar_nd":
        depths = [tree.depth for tree in run.trees]
        if len(set(depths)) > 1:
            raise DomainError("closed forms of the standard decomposition need axes of one depth")
        factors = [
            (1 << (at * len(depths)), node_variance(depths[0] - at) ** len(depths)) for at in range(depths[0] + 1)
        ]
    elif mechanism.transform in ("sum_difference", "haar"):
        k = run.trees[0].depth
        factors = [(1 << at, node_variance(k - at)) for at in range(k + 1)]
    else:
        known = ("identity", "haar_nd", "sum_difference", "haar", "counts", "nominal", "matrix")
        raise unknown(PrivacyError, "the transform", mechanism.transform, known)
    exact = mechanism.refine == "inverse" and whole
    return [BlockError(cells, sqrt(v * factor), exact) for cells, factor in factors]


def _count_tree(run: Run) -> list[tuple[int, float]]:
    """(cells, variance) of the least-squares estimate of a node, without sign constraint, where every node of the
    measured levels is drawn; from one cell to the whole tree.

    Up: 1/v_j = 1/s_j + 1/(n_{j+1} v_{j+1}) for noise variance s_j and n children. Down: f_0 = v_0 and
    f_j = v_j (1 - 1/n_j) + f_{j-1}/n_j^2; m of n siblings together have m v_j (1 - m/n_j) + (m/n_j)^2 f_{j-1}.
    """
    visit, tree = run.visit(run.cuts or run.choices["middle"]), run.trees[0]
    cuts, noise = visit.cuts, [laplace_variance(max(scale, LEAST_SCALE)) for scale in visit.scales]
    starts = (0, *cuts[:-1])
    width = [tree.stride(start) // tree.stride(cut) for start, cut in zip(starts, cuts, strict=True)]
    v = noise[:]
    for j in range(len(cuts) - 2, -1, -1):
        v[j] = 1 / (1 / noise[j] + 1 / (width[j + 1] * v[j + 1]))
    f = [v[0]]
    for j in range(1, len(cuts)):
        f.append(v[j] * (1 - 1 / width[j]) + f[-1] / width[j] ** 2)
    out = []
    for depth in range(tree.depth, -1, -1):
        j = next(j for j, cut in enumerate(cuts) if cut >= depth)
        m = tree.stride(depth) // tree.stride(cuts[j])
        above = m / width[j] if j else 0.0
        variance = m * v[j] * (1 - above) + above**2 * f[j - 1] if j else m * v[0]
        out.append((tree.stride(depth), f[j] if m == 1 else variance))
    return out


@dataclass(frozen=True)
class Plan:
    """What releases would be like: nothing here depends on the data to be released.

    `rows`: one mapping per recipe, epsilon and number of cells: rmse, mae, half_width (of an interval of `level`) and
    `basis`, how they were found. `budget`: per epsilon how many such releases a budget pays.
    """

    rows: tuple[Mapping[str, Any], ...]
    budget: tuple[Mapping[str, Any], ...]
    level: float

    def table(self, metric: str = "rmse") -> str:
        """One of rmse, mae, half_width as text: a line per recipe and epsilon, a column per area size."""
        if metric not in ("rmse", "mae", "half_width"):
            raise DomainError(f"metric {metric!r} is not known; use rmse, mae or half_width")
        sizes = sorted({row["cells"] for row in self.rows})
        found = {(row["recipe"], row["epsilon"], row["cells"]): row for row in self.rows}
        names = list(dict.fromkeys((row["recipe"], row["epsilon"]) for row in self.rows))
        width = max(len(f"{recipe}, epsilon {epsilon}") for recipe, epsilon in names) + 2
        lines = [f"{metric + ' by cells':{width}}" + "".join(f"{size:>10}" for size in sizes) + "  basis"]
        for recipe, epsilon in names:
            rows = [found.get((recipe, epsilon, size)) for size in sizes]
            numbers = "".join(f"{'-' if not row or row[metric] is None else _short(row[metric]):>10}" for row in rows)
            basis = " / ".join(dict.fromkeys(row["basis"] for row in rows if row))
            lines.append(f"{f'{recipe}, epsilon {epsilon}':{width}}{numbers}  {basis}")
        for row in self.budget:
            lines.append(
                f"epsilon {row['epsilon']}: {row['share']:.0%} of the budget {row['budget']}, "
                f"which pays {row['releases']} such releases"
            )
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        return {"level": self.level, "rows": [dict(r) for r in self.rows], "budget": [dict(r) for r in self.budget]}


EXACT, NOISE, SIMULATED = "closed form", "closed form, before refinement", "simulated on the public map {}"
NOTHING = "no closed form: declare a public map"


def plan(
    recipes: Sequence[Mechanism],
    domain: Domain,
    unit: Unit,
    *,
    epsilons: Sequence[object],
    areas: Sequence[int] | None = None,
    budget: object | None = None,
    public_map: ArrayLike | None = None,
    public_name: str | None = None,
    trials: int = 10,
    level: float = 0.95,
) -> Plan:
    """Expected error by area size, width of intervals and effect on a budget, before any data is touched.

    areas: numbers of cells (default: the blocks of the tree; squares on a mesh). Closed forms give the noise of aligned
    blocks; where a recipe refines, or has no closed form, a `public_map` (an array of the domain's shape, declared
    public under `public_name`, e.g. an earlier census that is published) is released `trials` times instead, with
    seeded noise. Mean absolute errors of closed forms are those of a normal law, exact for single cells.

    Privacy
    -------
    Nothing is charged and nothing of the data is read. The public map is taken as public because you say so.

    Cost: closed forms O(depth); simulation as `compare`.
    """
    faults = []
    if not recipes or any(not isinstance(recipe, Mechanism) for recipe in recipes):
        faults.append("plan: recipes is a list such as [ks.geometric(), ks.refined_tree()]")
    if not epsilons:
        faults.append('plan: epsilons is a list of exact decimals such as ["0.1"]')
    raise_faults(DomainError, faults)
    if isinstance(public_map, Counts):
        raise PrivacyError("plan: public_map is a plain array that is public already, never Counts")
    if (public_map is None) != (public_name is None):
        raise PrivacyError("plan: a public map is declared by name: public_map= and public_name= go together")
    losses = [asked(epsilon, study=True) for epsilon in epsilons]
    sizes = list(areas) if areas is not None else _sizes(domain)
    simulated: dict[tuple[str, str, Any], Mapping[str, Any]] = {}
    if public_map is not None:
        counts = Counts.from_dense(np.asarray(public_map), domain, unit, data=public_name)
        found = compare(counts, recipes, epsilons=losses, areas=sizes, trials=trials)
        simulated = {(row["recipe"], row["epsilon"], row["cells"]): row for row in found.rows}
    rows: list[Mapping[str, Any]] = []
    for recipe, name in zip(recipes, names_of(recipes), strict=True):
        for loss in losses:
            closed = _closed(recipe, domain, unit, loss)
            for cells in sizes:
                start = {"recipe": name, "epsilon": decimal(loss), "cells": cells}
                rows.append(
                    start | _row(closed, simulated.get((name, decimal(loss), cells)), cells, level, public_name)
                )
    paid = [] if budget is None else [_paid(loss, asked(budget, "a budget", study=True)) for loss in losses]
    return Plan(tuple(rows), tuple(paid), level)


def _closed(recipe: Mechanism, domain: Domain, unit: Unit, loss: Any) -> dict[int, BlockError] | Run:
    """Errors by number of cells; for cells by themselves the run, which has one for every number."""
    run = resolve(recipe, domain, unit, loss)
    if recipe.transform == "identity" and recipe.refine == "none":
        return run
    try:
        errors = {error.cells: error for error in block_errors(recipe, domain, unit, loss)}
    except DomainError:
        return {}
    meshes = any(isinstance(axis, Mesh) for axis in domain.axes)
    # elsewhere areas are no nodes of the tree
    squares = meshes and len(domain.axes) == 1 and recipe.order in ("morton", "hierarchy", "2d")
    return errors if squares or len(domain.shape) == 1 else {1: errors[1]}


def _row(
    closed: dict[int, BlockError] | Run, measured: Mapping[str, Any] | None, cells: int, level: float, name: str | None
) -> dict[str, Any]:
    if isinstance(closed, Run):
        rmse = sqrt(cells * laplace_variance(closed.scale, closed.mechanism.noise))
        error: BlockError | None = BlockError(cells, rmse, True)
    else:
        error = closed.get(cells)
    half = None if error is None else factor(level) * error.rmse
    if measured is not None and (error is None or not error.exact):
        basis = SIMULATED.format(name)
        return {"rmse": measured["rmse"], "mae": measured["mae"], "half_width": half, "basis": basis}
    if error is None:
        return {"rmse": None, "mae": None, "half_width": None, "basis": NOTHING}
    share = sqrt(0.5) if isinstance(closed, Run) and cells == 1 else sqrt(2 / math.pi)
    basis = EXACT if error.exact else NOISE
    return {"rmse": error.rmse, "mae": share * error.rmse, "half_width": half, "basis": basis}


def _sizes(domain: Domain) -> list[int]:
    """1, 4, 16, ... cells on a mesh, 1, 2, 4, ... elsewhere, at most nine sizes and not beyond the table."""
    meshes = [axis for axis in domain.axes if isinstance(axis, Mesh)]
    if meshes:
        return [4**at for at in range(9) if 2**at <= min(meshes[0].shape)]
    return [2**at for at in range(9) if 2**at <= domain.shape[-1]]


def _paid(loss: Any, budget: Any) -> dict[str, Any]:
    return {
        "epsilon": decimal(loss),
        "budget": decimal(budget),
        "share": float(loss / budget),
        "releases": int(budget // loss),
    }


def _short(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:,.0f}"
