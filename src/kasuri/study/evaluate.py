"""How far releases are from the truth, on data one may look at. Every result here is confidential: it depends on the
counts without protection.

`compare` draws its releases from a seeded source and never hands one out: nothing is charged, and nothing can be
published.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kasuri import notebook
from kasuri.draw import release as draw
from kasuri.errors import DomainError, PrivacyError, raise_faults
from kasuri.noise.rng import seeded
from kasuri.privacy import Exact, Meant, asked, decimal
from kasuri.published.area import Area
from kasuri.published.release import Release
from kasuri.recipes.mechanism import Mechanism
from kasuri.recipes.views import Woven, map_faults
from kasuri.schema import Domain
from kasuri.schema.maps import RegionMap
from kasuri.table import Counts
from kasuri.trees.regions import cells_of
from kasuri.trees.weave import interleaved

CONFIDENTIAL = "CONFIDENTIAL: computed from the counts without protection"
CLASSES = (("0", 0, 0), ("1-9", 1, 9), ("10-99", 10, 99), ("100-999", 100, 999), ("1000+", 1000, 1 << 62))
"""Size classes of the true count of an area."""
METRICS = ("mae", "rmse", "bias", "false_zero", "false_non_zero", "within_5", "within_10", "rank", "moved")
"""mae, rmse; bias: mean signed error; false_zero: share of non-empty areas released as 0 or less; false_non_zero: share
of empty areas not released as 0; within_5, within_10: share of non-empty areas within 5 and 10 % of the truth; rank:
Spearman's correlation of released and true sums over all areas of a row; moved: earth mover's distance, see `moved`."""
REGION = "regions"

_DENSE = 1 << 26


@dataclass(frozen=True, repr=False)
class Comparison:
    """Errors of recipes by epsilon and area size, over all areas and trials. Confidential.

    `rows`: one mapping per (recipe, epsilon, area): the METRICS, `areas` (how many), and `classes`: areas, mae, rmse
    and bias by size class of the true count.
    """

    rows: tuple[Mapping[str, Any], ...]
    trials: int
    data: str | None

    def __repr__(self) -> str:
        return f"Comparison({CONFIDENTIAL}; {len(self.rows)} rows, {self.trials} trials)"

    def table(self, metric: str = "rmse") -> str:
        """One metric as text: a line per recipe and epsilon, a column per area size."""
        if metric not in METRICS:
            raise DomainError(f"metric {metric!r} is not known; use {', '.join(METRICS)}")
        sizes = list(dict.fromkeys(row["cells"] for row in self.rows))
        names = list(dict.fromkeys((row["recipe"], row["epsilon"]) for row in self.rows))
        width = max(len(f"{recipe}, epsilon {epsilon}") for recipe, epsilon in names) + 2
        found = {(row["recipe"], row["epsilon"], row["cells"]): row[metric] for row in self.rows}
        columns = [max(11, len(str(size)) + 2) for size in sizes]
        head = f"{metric + ' by cells':{width}}" + "".join(
            f"{size!s:>{wide}}" for size, wide in zip(sizes, columns, strict=True)
        )
        lines = [CONFIDENTIAL, head]
        for recipe, epsilon in names:
            numbers = zip((_number(found[recipe, epsilon, size]) for size in sizes), columns, strict=True)
            lines.append(
                f"{f'{recipe}, epsilon {epsilon}':{width}}" + "".join(f"{text:>{wide}}" for text, wide in numbers)
            )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return notebook.text(self.table())  # its first line says that it is confidential

    def to_json(self) -> dict[str, Any]:
        """Everything, as plain data, marked confidential."""
        return {
            "confidential": True,
            "note": CONFIDENTIAL,
            "data": self.data,
            "trials": self.trials,
            "rows": [dict(row) for row in self.rows],
        }


def compare(
    counts: Counts,
    recipes: Sequence[Mechanism],
    *,
    epsilons: Sequence[Exact],
    areas: Sequence[int | Area] = (1,),
    trials: int = 20,
    regions: Sequence[ArrayLike] = (),
    views: Sequence[str] = (),
    maps: Sequence[RegionMap] = (),
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> Comparison:
    """Release `counts` `trials` times with each recipe and epsilon, and say how far off the areas were.

    areas: numbers of cells, e.g. [1, 4, 16, 64]: on a mesh squares from the window's corner (the last ones may be cut
    by its edge), else runs of cells; or an `Area`, which has a row of its own. regions: irregular areas as for
    `Release.area(cells=)`, which share a row. views: tables of sums as in `woven_tree`, "age, sex" or the name of one
    of the `maps`, a row each. The noise comes from seeded sources: no ledger is charged, no release is handed out, and
    the same seed gives the same numbers.
    progress: called with the share of the releases that are done.

    Privacy
    -------
    None: the result is computed from the counts and is marked confidential. It must not leave those who may see them,
    and a recipe chosen by it is tuned on the truth.

    Cost: O(n) for n cells, per recipe, epsilon and trial.
    """
    faults = []
    if not isinstance(counts, Counts):
        raise PrivacyError("compare() takes Counts (see count(), Counts.from_dense, Counts.from_coo)")
    if not recipes or any(not isinstance(recipe, Mechanism) for recipe in recipes):
        faults.append("compare: recipes is a list such as [ks.geometric(), ks.refined_tree()]")
    if not epsilons:
        faults.append('compare: epsilons is a list of exact decimals such as ["0.1"]')
    if not isinstance(trials, int) or isinstance(trials, bool) or trials < 1:
        faults.append("compare: trials is a whole number from 1")
    if counts.domain.size > _DENSE:
        faults.append(f"compare: at most {_DENSE} cells; take a part of the table")
    raise_faults(DomainError, faults)
    sizes, shapes = (
        [Meant(asked(epsilon, study=True)) for epsilon in epsilons],
        areas_of(counts.domain, areas, regions, views, maps),
    )
    for recipe in recipes:
        for loss in sizes:
            recipe.on(counts.domain, counts.unit, loss)  # refuses before any work is done
    truth = _dense(counts)
    names = names_of(recipes)
    rows, done = [], 0
    for recipe, name in zip(recipes, names, strict=True):
        for loss in sizes:
            tally = {key: _Tally(area.sums(truth), area.ordered) for key, area in shapes.items()}
            for trial in range(trials):
                out = draw(counts, recipe, epsilon=loss, ledger=None, source=seeded(seed + trial)).to_dense()
                for key, area in shapes.items():
                    tally[key].add(area.sums(out))
                done += 1
                if progress is not None:
                    progress(done / (len(recipes) * len(sizes) * trials))
            start = {"recipe": name, "epsilon": decimal(loss)}
            rows += [start | {"cells": key} | tally[key].row() for key in shapes]
    return Comparison(tuple(rows), trials, counts.data)


def evaluate(
    counts: Counts, release: Release, *, areas: Sequence[int | Area] = (1,), regions: Sequence[ArrayLike] = ()
) -> Comparison:
    """How far one release is from the counts it was made of, as `compare` says it. Confidential."""
    if counts.domain != release.domain:
        raise DomainError("evaluate: the release is over another domain than the counts")
    truth, out = _dense(counts), release.to_dense()
    rows = []
    for key, area in areas_of(counts.domain, areas, regions).items():
        tally = _Tally(area.sums(truth), area.ordered)
        tally.add(area.sums(out))
        start = {"recipe": release.recipe["name"], "epsilon": decimal(release.guarantee.epsilon)}
        rows.append(start | {"cells": key} | tally.row())
    return Comparison(tuple(rows), 1, counts.data)


@dataclass(frozen=True, eq=False)
class Blocks:
    """Sums over a partition: `steps` cells along every dimension."""

    steps: tuple[int, ...]
    ordered: tuple[bool, ...]
    """Which dimensions have an order: people moved along them are counted by steps."""
    inside: tuple[int, ...]
    """The size of every dimension within the window: what is elsewhere is in no block with its cells."""

    def sums(self, dense: NDArray[Any]) -> NDArray[Any]:
        """One number per block, in as many dimensions as the table has."""
        for d, step in enumerate(self.steps):
            if step > 1:
                starts = np.arange(0, self.inside[d], step)
                beyond = np.arange(self.inside[d], dense.shape[d])
                dense = np.add.reduceat(dense, np.append(starts, beyond), axis=d)
        return dense


@dataclass(frozen=True, eq=False)
class Regions:
    """Sums over irregular areas."""

    cells: tuple[NDArray[np.int64], ...]
    ordered: ClassVar[tuple[bool, ...]] = (False,)

    def sums(self, dense: NDArray[Any]) -> NDArray[Any]:
        """One number per area."""
        flat = dense.ravel()
        return np.array([flat[cells].sum() for cells in self.cells])


@dataclass(frozen=True, eq=False)
class Summed:
    """Sums over the groups of a view; a cell in no group is in none of them."""

    group: NDArray[np.int64]
    groups: int
    ordered: ClassVar[tuple[bool, ...]] = (False,)

    def sums(self, dense: NDArray[Any]) -> NDArray[Any]:
        """One number per group."""
        inside = self.group >= 0
        return np.bincount(self.group[inside], dense.ravel()[inside], self.groups)


def areas_of(
    domain: Domain,
    areas: Sequence[int | Area],
    regions: Sequence[ArrayLike],
    views: Sequence[str] = (),
    maps: Sequence[RegionMap] = (),
) -> dict[int | str, Blocks | Regions | Summed]:
    """Areas by number of cells or by their words, and REGION for the irregular ones; every fault at once."""
    meshes = domain.planes
    faults: list[str] = []
    out: dict[int | str, Blocks | Regions | Summed] = {}
    ordered = tuple(axis.ordered or axis.plane is not None for axis in domain.axes for _ in axis.sizes)
    inside = tuple(size for axis in domain.axes for size in axis.declared)
    for cells, key in zip(areas, keys_of(areas), strict=True):
        if isinstance(cells, Area):
            out[key] = Regions((cells.cells_on(domain),))
            continue
        if not isinstance(cells, int) or isinstance(cells, bool) or not 1 <= cells <= domain.size:
            faults.append(f"areas: {cells!r} is not a number of cells of this domain (1..{domain.size})")
            continue
        steps = [1] * len(domain.shape)
        if meshes:
            side = math.isqrt(cells)
            if side * side != cells or side > min(meshes[0].shape):
                faults.append(f"areas: {cells} cells make no square inside the mesh; use 1, 4, 9, 16, ...")
                continue
            for d in domain.positions(meshes[0].name):
                steps[d] = side
        else:
            for d in range(len(steps) - 1, -1, -1):  # runs of cells: whole dimensions from the last
                steps[d] = min(cells, domain.shape[d])
                if cells % steps[d]:
                    faults.append(f"areas: {cells} cells are not a whole number of the last dimensions")
                    break
                cells //= steps[d]
            cells = math.prod(steps)
        out[cells] = Blocks(tuple(steps), ordered, inside)
    if not areas and not len(regions) and not views:
        faults.append("areas: name at least one number of cells, or regions, or views")
    raise_faults(DomainError, faults)
    if views:
        out |= _views(domain, views, maps)
    if len(regions):
        out[REGION] = Regions(tuple(cells_of(region, domain) for region in regions))
    return out


def _views(
    domain: Domain, views: Sequence[str], maps: Sequence[RegionMap]
) -> dict[int | str, Blocks | Regions | Summed]:
    faults = map_faults(domain, maps)
    raise_faults(DomainError, faults)
    weave = Woven(domain, interleaved(domain), tuple(maps))
    found: dict[int | str, Blocks | Regions | Summed] = {}
    keys = weave.tree.keys(np.arange(domain.size))
    for text in views:
        try:
            part = weave.partition(weave.view(text))
            found[text] = Summed(part.of_keys(weave.tree, keys), part.groups)
        except DomainError as fault:
            faults += fault.faults
    raise_faults(DomainError, faults)
    return found


def moved(out: NDArray[Any], truth: NDArray[Any], ordered: Sequence[bool]) -> float | None:
    """How far people are moved, in steps a person: along every dimension by itself, the least number of steps that turn
    one margin into the other (along one without an order: the share that changes label), added up. A lower bound of the
    earth mover's distance of the tables. None where one of them is empty."""
    here, there = np.maximum(out, 0).astype(np.float64), truth.astype(np.float64)
    if not here.sum() or not there.sum():
        return None
    total = 0.0
    for d, steps in enumerate(ordered):
        rest = tuple(other for other in range(here.ndim) if other != d)
        gap = here.sum(rest) / here.sum() - there.sum(rest) / there.sum()
        total += float(np.abs(np.cumsum(gap)).sum() if steps else np.abs(gap).sum() / 2)
    return total


def rank_agreement(out: NDArray[Any], truth: NDArray[Any]) -> float | None:
    """Spearman's correlation, equal numbers at their mean rank; None for fewer than three areas or equal sums."""
    if truth.size < 3:
        return None
    ranks = []
    for numbers in (out.ravel(), truth.ravel()):
        _, at, size = np.unique(numbers, return_inverse=True, return_counts=True)
        ranks.append((np.cumsum(size) - (size - 1) / 2)[at])
    a, b = (rank - rank.mean() for rank in ranks)
    spread = math.sqrt(float((a * a).sum()) * float((b * b).sum()))
    return float((a * b).sum()) / spread if spread else None


def keys_of(areas: Sequence[int | Area]) -> list[int | str]:
    """What the rows call each area: its number of cells, or its words, numbered where two have the same."""
    words = [area.words() if isinstance(area, Area) else area for area in areas]
    return [
        f"{word} #{i + 1}" if isinstance(areas[i], Area) and words.count(word) > 1 else word
        for i, word in enumerate(words)
    ]


class _Tally:
    """Sums of errors over trials, by size class of the true count."""

    def __init__(self, truth: NDArray[Any], ordered: Sequence[bool]) -> None:
        self._shape, self._ordered = truth.shape, ordered
        truth = truth.ravel()
        self._truth = truth.astype(np.float64)
        self._whole: dict[str, list[float]] = {"rank": [], "moved": []}
        self._of = [(truth >= low) & (truth <= high) for _, low, high in CLASSES]
        self._sums = np.zeros((len(CLASSES), 4))  # areas, absolute, squared, signed
        self._shares = np.zeros(4)  # false zero, false non-zero, within 5, within 10
        self._trials = 0

    def add(self, out: NDArray[Any]) -> None:
        truth = self._truth.reshape(self._shape)
        found = {"rank": rank_agreement(out, truth), "moved": moved(out, truth, self._ordered)}
        for name, number in found.items():
            self._whole[name] += [] if number is None else [number]
        out = out.ravel()
        error = out - self._truth
        for i, own in enumerate(self._of):
            e = error[own]
            self._sums[i] += e.size, np.abs(e).sum(), (e**2).sum(), e.sum()
        there = self._truth > 0
        off = np.abs(error[there]) / self._truth[there]
        self._shares += (out[there] <= 0).sum(), (out[~there] != 0).sum(), (off <= 0.05).sum(), (off <= 0.1).sum()
        self._trials += 1

    def row(self) -> dict[str, Any]:
        there, trials = int((self._truth > 0).sum()), self._trials
        empty = self._truth.size - there
        totals = [there, empty, there, there]
        names = ("false_zero", "false_non_zero", "within_5", "within_10")
        shares = {
            name: float(part) / (total * trials) if total else None
            for name, part, total in zip(names, self._shares, totals, strict=True)
        }
        classes = {
            name: {"areas": int(n) // trials} | _errors(n, a, q, s)
            for (name, _, _), (n, a, q, s) in zip(CLASSES, self._sums, strict=True)
        }
        means = {name: float(np.mean(found)) if found else None for name, found in self._whole.items()}
        return {"areas": self._truth.size} | _errors(*self._sums.sum(axis=0)) | shares | means | {"classes": classes}


def _errors(n: float, absolute: float, squared: float, signed: float) -> dict[str, float | None]:
    if n == 0:
        return {"mae": None, "rmse": None, "bias": None}
    return {"mae": float(absolute / n), "rmse": math.sqrt(squared / n), "bias": float(signed / n)}


def _dense(counts: Counts) -> NDArray[np.int64]:
    out = np.zeros(counts.domain.size, dtype=np.int64)
    out[counts.cells] = counts.values
    return out.reshape(counts.domain.shape)


def names_of(recipes: Sequence[Mechanism]) -> list[str]:
    """Names of recipes, with what tells two of one name apart."""
    names = [recipe.name for recipe in recipes]
    out = []
    for recipe, name in zip(recipes, names, strict=True):
        parts = recipe.told_apart()
        out.append(name if names.count(name) == 1 else f"{name}({', '.join(parts)})")
    return [name if out.count(name) == 1 else f"{name} #{i + 1}" for i, name in enumerate(out)]


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if abs(value) < 10 else f"{value:,.1f}"
