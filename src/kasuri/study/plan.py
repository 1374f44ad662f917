"""Expected error before any data is touched: closed forms, else simulation on a map that is declared public."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kasuri import notebook
from kasuri.errors import DomainError, PrivacyError, raise_faults
from kasuri.privacy import Exact, asked, decimal
from kasuri.published.area import Area
from kasuri.published.bounds import factor
from kasuri.recipes.mechanism import BlockError, Mechanism, NoForm, square_errors
from kasuri.schema import Domain, Unit
from kasuri.study.evaluate import compare, keys_of, names_of
from kasuri.table import Counts


def block_errors(mechanism: Mechanism, domain: Domain, unit: Unit, epsilon: Exact) -> list[BlockError]:
    """Error of block sums, one entry per height of the recipe's tree from one cell to the whole table; DomainError
    where the recipe has no closed form."""
    found = mechanism.on(domain, unit, epsilon).errors()
    if isinstance(found, NoForm):
        raise DomainError(found.why)
    return found


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
        sizes = sorted({row["cells"] for row in self.rows}, key=lambda size: (isinstance(size, str), size))
        columns = [max(10, len(str(size)) + 2) for size in sizes]
        found = {(row["recipe"], row["epsilon"], row["cells"]): row for row in self.rows}
        names = list(dict.fromkeys((row["recipe"], row["epsilon"]) for row in self.rows))
        width = max(len(f"{recipe}, epsilon {epsilon}") for recipe, epsilon in names) + 2
        heads = "".join(f"{size!s:>{wide}}" for size, wide in zip(sizes, columns, strict=True))
        lines = [f"{metric + ' by cells':{width}}{heads}  basis"]
        for recipe, epsilon in names:
            rows = [found.get((recipe, epsilon, size)) for size in sizes]
            shown = ["-" if not row or row[metric] is None else _short(row[metric]) for row in rows]
            numbers = "".join(f"{text:>{wide}}" for text, wide in zip(shown, columns, strict=True))
            basis = " / ".join(dict.fromkeys(row["basis"] for row in rows if row))
            lines.append(f"{f'{recipe}, epsilon {epsilon}':{width}}{numbers}  {basis}")
        for row in self.budget:
            lines.append(
                f"epsilon {row['epsilon']}: {row['share']:.0%} of the budget {row['budget']}, "
                f"which pays {row['releases']} such releases"
            )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return notebook.text(self.table())

    def to_json(self) -> dict[str, Any]:
        return {"level": self.level, "rows": [dict(r) for r in self.rows], "budget": [dict(r) for r in self.budget]}


EXACT, NOISE, SIMULATED = "closed form", "closed form, before refinement", "simulated on the public map {}"
LEAST = "closed form, least squares on all that is measured"
NOTHING = "no closed form: declare a public map"


def plan(
    recipes: Sequence[Mechanism],
    domain: Domain,
    unit: Unit,
    *,
    epsilons: Sequence[Exact],
    areas: Sequence[int | Area] | None = None,
    budget: Exact | None = None,
    public_map: ArrayLike | None = None,
    public_name: str | None = None,
    trials: int = 10,
    level: float = 0.95,
) -> Plan:
    """Expected error by area size, width of intervals and effect on a budget, before any data is touched.

    areas: numbers of cells (default: the blocks of the tree; squares on a mesh), or an `Area`, which a public map alone
    can judge. Closed forms give the noise of aligned blocks; where a recipe refines, or has no closed form, a
    `public_map` (an array of the domain's shape, declared public under `public_name`, e.g. an earlier census that is
    published) is released `trials` times instead, with seeded noise. Mean absolute errors of closed forms are those of
    a normal law, exact for single cells.

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
    sizes: list[int | Area] = list(areas) if areas is not None else [*_sizes(domain)]
    simulated: dict[tuple[str, str, Any], Mapping[str, Any]] = {}
    if public_map is not None:
        counts = Counts.from_dense(np.asarray(public_map), domain, unit, data=public_name)
        found = compare(counts, recipes, epsilons=losses, areas=sizes, trials=trials)
        simulated = {(row["recipe"], row["epsilon"], row["cells"]): row for row in found.rows}
    rows: list[Mapping[str, Any]] = []
    for recipe, name in zip(recipes, names_of(recipes), strict=True):
        for loss in losses:
            run = recipe.on(domain, unit, loss)
            closed: Mapping[Any, BlockError] = square_errors(
                run, [size for size in sizes if not isinstance(size, Area)]
            )
            for cells in keys_of(sizes):
                start = {"recipe": name, "epsilon": decimal(loss), "cells": cells}
                measured, single = simulated.get((name, decimal(loss), cells)), cells == 1 and run.cells_apart
                rows.append(start | _row(closed.get(cells), measured, single, level, public_name))
    rows += _view_rows(recipes, domain, unit, losses, level) if areas is None else []
    paid = [] if budget is None else [_paid(loss, asked(budget, "a budget", study=True)) for loss in losses]
    return Plan(tuple(rows), tuple(paid), level)


def _view_rows(
    recipes: Sequence[Mechanism], domain: Domain, unit: Unit, losses: Sequence[Any], level: float
) -> list[Mapping[str, Any]]:
    """Declared views, and what cells with noise of their own give for the same sums."""
    rows: list[Mapping[str, Any]] = []
    for loss in losses:
        runs = [recipe.on(domain, unit, loss) for recipe in recipes]
        views = {error.view: error for run in runs for error in run.view_errors()}
        for name, run in zip(names_of(recipes), runs, strict=True):
            found = {error.view: error.rmse for error in run.view_errors()}
            if run.cells_apart:
                found = {view: sqrt(run.noise.variance * domain.size / (e.sums or 1)) for view, e in views.items()}
            basis = EXACT if run.cells_apart else LEAST
            rows += [
                {"recipe": name, "epsilon": decimal(loss), "cells": view, "rmse": rmse,
                 "mae": sqrt(2 / math.pi) * rmse, "half_width": factor(level) * rmse, "basis": basis}
                for view, rmse in found.items() if view != "cells"
            ]  # fmt: skip
    return rows


def _row(
    error: BlockError | None, measured: Mapping[str, Any] | None, single: bool, level: float, name: str | None
) -> dict[str, Any]:
    half = None if error is None else factor(level) * error.rmse
    if measured is not None and (error is None or not error.exact):
        basis = SIMULATED.format(name)
        return {"rmse": measured["rmse"], "mae": measured["mae"], "half_width": half, "basis": basis}
    if error is None:
        return {"rmse": None, "mae": None, "half_width": None, "basis": NOTHING}
    share = sqrt(0.5) if single else sqrt(2 / math.pi)  # mean absolute error of a Laplace law, of a normal one
    basis = EXACT if error.exact else NOISE
    return {"rmse": error.rmse, "mae": share * error.rmse, "half_width": half, "basis": basis}


def _sizes(domain: Domain) -> list[int]:
    """1, 4, 16, ... cells on a mesh, 1, 2, 4, ... elsewhere, at most nine sizes and not beyond the table."""
    meshes = domain.planes
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
