"""How far off a release would be, in percent of the people in an area: every recipe tried on a public model of the
table, before any data is touched.

The model is a table of the same kind as the declared domain, filled with people whom everybody may know: the census
map that is shipped with kasuri, and fixed shares for further axes. It is smaller than a large domain, so that a person
can move a slider and look.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri import examples, meshcode
from kasuri.draw import release as draw
from kasuri.errors import KasuriError
from kasuri.noise.laws import IDEALISED
from kasuri.noise.rng import seeded
from kasuri.privacy import Exact, asked, decimal
from kasuri.recipes import RECIPES, auto, bayes_tree, best, geometric, haar_topdown, refined_tree, woven_tree
from kasuri.recipes.mechanism import Mechanism, Run
from kasuri.recipes.woven import WIDE
from kasuri.schema import Axis, Domain, Mesh, Ordered, Unit
from kasuri.table import Counts

PEOPLE = (0, 100, 1_000, 5_000, 50_000)
"""Typical sizes of areas: an empty one, a hamlet, a quarter, a town, a city."""
CELLS = 1 << 16
"""Most cells of a model."""
QUICK = 1 << 22
"""Cells of the largest table of several axes that every recipe plans in a second or two."""
_SIDE = 128
_LONG = 64
_FEW = 4
"""Areas of a size that a model must have before it says something about them."""
_NAME = "public model"
USUAL, PLAIN = best(), geometric()
"""What a release takes where nobody asks for a recipe, and noise on every cell by itself: what others are held to."""
_FIRST = (USUAL, woven_tree(), bayes_tree(), refined_tree(), haar_topdown(), PLAIN)
_LATER = (auto(),)
"""Recipes that are tried first where a person waits at a page, and those that take too long for that."""


@dataclass(frozen=True)
class Model:
    """A public table like the declared one. `words` say what it is; `whole`: it has the domain's own shape."""

    counts: Counts
    words: str
    whole: bool

    @property
    def picture(self) -> NDArray[np.int64]:
        """People by row and column (or by the first axis), over all other axes."""
        return _flat(self.counts.domain, _dense(self.counts))


def model(domain: Domain, unit: Unit, *, cells: int = CELLS) -> Model:
    """The public model of a table over `domain`, with at most about `cells` cells; the same for the same domain."""
    rng = np.random.default_rng(0)
    others = [axis for axis in domain.axes if axis.plane is None]
    kept = [_shorter(axis) for axis in others]
    room = cells // 256 if domain.planes else cells  # of a plane at least 16 x 16 cells are kept
    while math.prod(_size(axis) for axis in kept) > room:
        longest = max(range(len(kept)), key=lambda i: _size(kept[i]))
        kept[longest] = Ordered(kept[longest].name, max(2, _size(kept[longest]) // 4))
    planes = domain.planes
    axes: list[Axis] = []
    base = np.full((), 1_000_000, dtype=np.int64)
    whole = all(axis == own for axis, own in zip(kept, others, strict=True))
    words = "a million people, shared out by a fixed rule"
    if planes:
        most = math.isqrt(cells // math.prod(_size(axis) for axis in kept))
        side = 1 << min(int(math.log2(most)), int(math.log2(_SIDE)) if len(domain.axes) > 1 else 9)
        shape = (min(side, planes[0].shape[0]), min(side, planes[0].shape[1]))
        base = _people(planes[0].jis_level, shape)
        axes.append(Mesh(planes[0].name, shape=shape))
        whole = whole and shape == planes[0].shape and len(planes) == 1
        words = f"{shape[0]} x {shape[1]} cells of the 2020 census west of Tokyo, which is public"
        if kept:
            words += "; further axes by fixed shares"
    axes += kept
    if not whole:
        words += "; your table is larger, and its errors are somewhat larger too"
    values = base
    for axis in kept:
        values = _spread(values, _shares(_size(axis)), rng)
    small = Domain.of(*axes)
    return Model(Counts.from_dense(values.reshape(small.shape), small, unit, data=_NAME), words, whole)


def _size(axis: Axis) -> int:
    return math.prod(axis.sizes)


def _shorter(axis: Axis) -> Axis:
    return axis if _size(axis) <= _LONG else Ordered(axis.name, _LONG)


def _people(level: str | None, shape: tuple[int, int]) -> NDArray[np.int64]:
    """A piece of the shipped map with as many cells as asked, of about the asked level; mirrored where it ends."""
    found = examples.kanto_map()
    times = Fraction(meshcode.level("500m").per_first, meshcode.level(level).per_first) if level else Fraction(1)
    step = min(8, max(1, round(times)))
    if step > 1:
        rows, cols = (size // step * step for size in found.shape)
        found = found[:rows, :cols].reshape(rows // step, step, cols // step, step).sum((1, 3))
    if times < 1:
        split = min(4, round(1 / times))
        rng = np.random.default_rng(1)
        parts = rng.multinomial(found.ravel(), np.full(split * split, 1 / split**2)).reshape(*found.shape, split, split)
        found = parts.transpose(0, 2, 1, 3).reshape(found.shape[0] * split, found.shape[1] * split)
    # where a large city ends and mountains begin: about a third of the cells are empty
    start = [max(0, (size - asked) * part // 10) for size, asked, part in zip(found.shape, shape, (6, 3), strict=True)]
    piece = found[start[0] : start[0] + shape[0], start[1] : start[1] + shape[1]]
    missing = [(0, asked - size) for size, asked in zip(piece.shape, shape, strict=True)]
    return np.pad(piece, missing, mode="symmetric")


def _shares(size: int) -> NDArray[np.float64]:
    """Shares that differ as those of ages, hours or wards do: up to four times, without a pattern of powers of two."""
    raw = 1 + 0.6 * np.sin(2.3 * np.arange(size) + 0.4)
    return raw / raw.sum()


def _spread(values: NDArray[np.int64], shares: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    return rng.multinomial(values.ravel(), shares).reshape(*values.shape, shares.size)


def _dense(counts: Any) -> NDArray[np.int64]:
    out = np.zeros(counts.domain.size, dtype=np.int64)
    out[counts.cells] = counts.values
    return out.reshape(counts.domain.shape)


def _flat(domain: Domain, values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Over the plane where there is one, else over the first axis."""
    keep = 2 if domain.planes else 1
    return values.sum(axis=tuple(range(keep, values.ndim)))


def drawn(public: Model, recipe: Mechanism, epsilon: Exact, trial: int = 0) -> NDArray[np.int64]:
    """The model as a release would show it, in whole numbers; seeded, so that only epsilon moves the picture."""
    loss = asked(epsilon, study=True)
    out = draw(public.counts, recipe, epsilon=loss, ledger=None, source=seeded(trial), threads=1)
    return np.rint(_dense(out)).astype(np.int64)


def resolved(recipe: Mechanism, domain: Domain, unit: Unit, epsilon: Exact, small: Domain) -> Run:
    """The run of a recipe on the declared domain; on the model's where to plan the margins of the large one takes
    longer than a person waits."""
    large = len(domain.axes) > 1 and QUICK < domain.size <= WIDE
    return recipe.on(small if large else domain, unit, epsilon)


def sums(domain: Domain, values: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Sums that people look up: squares of 1 to 32 cells a side; without a plane, cells and the margins of axes."""
    if domain.planes:
        flat = _flat(domain, values)
        side = 1
        while side <= 32 and side <= min(flat.shape):
            rows, cols = (size // side for size in flat.shape)
            yield flat[: rows * side, : cols * side].reshape(rows, side, cols, side).sum((1, 3)).ravel()
            side *= 2
        return
    yield values.ravel()
    if values.ndim > 1:
        for axis in range(values.ndim):
            yield values.sum(axis=tuple(i for i in range(values.ndim) if i != axis)).ravel()


@dataclass(frozen=True)
class Outlook:
    """`rows`: a mapping per recipe and size: recipe, epsilon, people, off (the usual error, a root mean square) and
    percent; None where the model has no such area. `refused`: recipe -> why it cannot be used here. `model`: words."""

    rows: tuple[Mapping[str, Any], ...]
    refused: Mapping[str, str]
    model: str
    chosen: str
    why: str
    lesser: frozenset[str] = frozenset()
    """Recipes whose promise rests on more than others' do: floating-point noise, or a public total."""

    def scores(self) -> dict[str, float]:
        """The usual error of each recipe over all sizes (a geometric mean), but for those whose promise is lesser."""
        found: dict[str, list[float]] = {}
        for row in self.rows:
            if row["off"] is not None and row["recipe"] not in self.lesser:
                found.setdefault(row["recipe"], []).append(math.log(max(row["off"], 0.5)))
        return {name: math.exp(sum(logs) / len(logs)) for name, logs in found.items()}

    def better(self) -> str | None:
        """The recipe with the smallest errors over all sizes; None where none is a tenth better than the usual one."""
        scores = self.scores()
        if not scores or scores.get(USUAL.name, math.inf) <= 1.1 * min(scores.values()):
            return None
        return min(scores, key=lambda name: scores[name])

    def recommendation(self) -> dict[str, Any]:
        """What to take, and what it chooses here; `best` where no other is a tenth better."""
        least = self.better()
        return {"recipe": least or USUAL.name, "chosen": least or self.chosen, "scores": self.scores()}

    def untried(self) -> list[str]:
        """The recipes that were neither tried nor refused."""
        return sorted(set(RECIPES) - {row["recipe"] for row in self.rows} - set(self.refused))

    def to_json(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "rows": [dict(row) for row in self.rows],
            "refused": dict(self.refused),
            "recommended": self.recommendation(),
            "best": {"chosen": self.chosen, "why": self.why},
        }

    def table(self) -> str:
        """Percent by people, a line per recipe, and what to take."""
        if not self.rows:
            return f"No recipe can be tried on a public model of this table: {'; '.join(self.refused.values())}"
        sizes = sorted({row["people"] for row in self.rows})
        names = list(dict.fromkeys((row["recipe"], row["epsilon"]) for row in self.rows))
        found = {(row["recipe"], row["epsilon"], row["people"]): shown(row) for row in self.rows}
        width = max(len(f"{name}, epsilon {loss}") for name, loss in names) + 2
        head = "".join(f"{f'{size:,}' if size else 'empty':>10}" for size in sizes)
        lines = [f"{'usual error by people there':{width}}{head}"]
        for name, loss in names:
            numbers = "".join(f"{found[name, loss, size]:>10}" for size in sizes)
            lines.append(f"{f'{name}, epsilon {loss}':{width}}{numbers}")
        lines += [f"{name}: not for this table ({why})" for name, why in self.refused.items()]
        lines.append(f"Simulated on {self.model}.")
        lines.append(self.advice())
        return "\n".join(lines)

    def advice(self) -> str:
        """The recommendation in a sentence."""
        least = self.better()
        name = least or USUAL.name
        said = least or f"{name} (here {self.chosen}: {self.why})"
        loss = self.rows[0]["epsilon"] if self.rows else ""
        percents: dict[str, dict[int, float]] = {}
        for row in self.rows:
            if row["epsilon"] == loss and row["people"] and row["percent"] is not None:
                percents.setdefault(row["recipe"], {})[row["people"]] = row["percent"]
        own, plain = percents.get(name, {}), percents.get(PLAIN.name, {})
        both = sorted(own.keys() & plain.keys())
        if not both or own is plain:
            return f"Recommended: {said}."
        size = min(both, key=lambda people: abs(math.log(people / 5_000)))
        return (
            f"Recommended: {said}. At epsilon {loss} an area of {size:,} people is then off by {about(own[size])}; "
            f"with plain noise on every cell by {about(plain[size])}."
        )


def shown(row: Mapping[str, Any]) -> str:
    """The error of an area: in percent of its people, or, where it is empty, in people."""
    if row["people"] or row["off"] is None:
        return percent(row["percent"])
    return f"{row['off']:,.0f}" if row["off"] >= 9.5 else f"{row['off']:.1f}"


def percent(share: float | None) -> str:
    """A share of the truth for people to read: two digits that count."""
    if share is None:
        return "-"
    if share >= 0.095:
        return f"{100 * share:,.0f} %"
    return f"{100 * share:.1f} %" if share >= 0.0005 else "< 0.1 %"


def about(share: float) -> str:
    """The same in a sentence."""
    return f"about {percent(share)}" if share >= 0.0005 else "less than 0.1 %"


def everything(domain: Domain) -> dict[str, Mechanism]:
    """Every recipe that can be made without arguments, by name, but for those that take long here; the shares of
    `bayes_tree` by its pilot."""
    found: dict[str, Mechanism] = {}
    for name, make in (RECIPES | {"bayes_tree": partial(bayes_tree, pilot=True)}).items():
        try:
            found[name] = make()
        except (TypeError, KasuriError):
            continue
    return {name: recipe for name, recipe in found.items() if not recipe.long(domain)}


def at_once(domain: Domain, *, every: bool) -> dict[str, Mechanism]:
    """Those of `everything` that a person at a page can wait for: the usual ones, or `every` one."""
    known = everything(domain)
    first, later = ([one.name for one in some if one.name in known] for some in (_FIRST, _LATER))
    rest = [name for name in known if every and name not in (*first, *later)]
    return {name: known[name] for name in (*first, *rest)}


def outlook(
    recipes: Mapping[str, Mechanism],
    domain: Domain,
    unit: Unit,
    epsilons: Sequence[Exact],
    *,
    people: Sequence[int] = PEOPLE,
    trials: int = 3,
    progress: Callable[[float], None] | None = None,
) -> Outlook:
    """Errors of `recipes` on the public model of `domain`, by the number of people in an area.

    An area of p people is any square of 1 to 32 cells a side (without a mesh: a cell or a margin) that holds between
    p / 1.5 and 1.5 p of them; squares of each side count alike, however many there are. `trials`
    releases of the model are drawn with seeded noise and none is kept.

    Privacy
    -------
    Nothing is charged and nothing of the data is read: the model depends on the declared domain alone.

    Cost: trials x recipes releases of at most CELLS cells.
    """
    public = model(domain, unit)
    small, truth = public.counts.domain, _dense(public.counts)
    parts = [(own, [_near(own, size) for size in people]) for own in sums(small, truth)]
    rows: list[Mapping[str, Any]] = []
    refused: dict[str, str] = {}
    steps, done = max(1, len(recipes) * len(epsilons) * trials), 0
    chosen = why = ""
    lesser: set[str] = set()
    for name, recipe in recipes.items():
        for epsilon in epsilons:
            loss = asked(epsilon, study=True)
            try:
                run = resolved(recipe, domain, unit, loss, small)
                if "total" in run.guarantee.public or IDEALISED in run.guarantee.assumes:
                    lesser.add(name)
                if run.chosen is not None:
                    chosen, why = run.mechanism.name, str(run.chosen["why"])
                squares = np.zeros((len(people), len(parts)))
                for trial in range(trials):
                    found = sums(small, drawn(public, run.mechanism, loss, trial))
                    for kind, ((own, near), out) in enumerate(zip(parts, found, strict=True)):
                        for i, at in enumerate(near):
                            squares[i, kind] += ((out[at] - own[at]).astype(float) ** 2).mean() if at.any() else 0
                    done += 1
                    if progress is not None:
                        progress(done / steps)
            except KasuriError as error:
                refused[name] = "; ".join(error.faults)
                continue
            for i, size in enumerate(people):
                kinds = [kind for kind, (_, near) in enumerate(parts) if near[i].sum() >= _FEW]
                off = math.sqrt(squares[i, kinds].mean() / trials) if kinds else None
                share = None if off is None or size == 0 else off / size
                rows.append({"recipe": name, "epsilon": decimal(loss), "people": size, "off": off, "percent": share})
    return Outlook(tuple(rows), refused, public.words, chosen, why, frozenset(lesser))


def _near(values: NDArray[np.int64], people: int) -> NDArray[np.bool_]:
    return (values >= people / 1.5) & (values <= people * 1.5)
