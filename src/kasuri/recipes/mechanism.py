"""A recipe is a value that answers for itself.

A `Mechanism` is public: no data, no epsilon. `on(domain, unit, epsilon)` makes every refusal and gives a `Run`, which
knows its claim, its words, its error, its error bars and how to draw. Nothing outside a family's file asks what kind it
is: a new family is one file with these two classes. A run sees no data either but in `draw`, which `draw.release` and
`spark` alone call, with plain arrays.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kasuri.arrays import Int
from kasuri.budget.accounting import Losses, generic
from kasuri.budget.declared import Declared
from kasuri.budget.gaussian import Normal
from kasuri.budget.window import slot_epsilon
from kasuri.errors import DomainError, PrivacyError
from kasuri.noise.evidence import Chances
from kasuri.noise.laws import Noise
from kasuri.noise.rng import Streams
from kasuri.privacy import Exact, Guarantee, asked, decimal, exact
from kasuri.public import PublicTable
from kasuri.published.bars import Bars, NoBars
from kasuri.published.measurements import Measurements
from kasuri.schema import Domain, Unit, Window
from kasuri.trees.order import Order

Words = Mapping[str, Any]
"""A recipe as a release stores it: the vocabulary that saved releases, manifests and certificates are read by."""

DENSE_CELLS = 1 << 26
"""Most cells (padding included) a dense recipe takes."""
MAX_SCALE = 1 << 55
"""Largest noise scale: a value beyond 2^61 then has probability below 2 e^-64."""
TOO_SMALL = "epsilon is too small: the noise would not fit 64-bit integers (scale above 2^55)"

_UNSET: dict[str, Any] = {
    "order": "none", "interleave": (), "descent": "none", "shares": (), "options": (), "tuning": None, "facts": (),
    "prior": None, "areas": (), "metric": "",
}  # fmt: skip
"""Fields of the plan's text that a family may leave out. The text never changes: declared series in ledgers hold its
fingerprint."""


@dataclass(frozen=True)
class Drawn:
    """What a draw gives: rising cells and their values, the noisy numbers it may publish, and words about what noisy
    numbers chose."""

    cells: Int
    values: NDArray[Any]
    measurements: Measurements | None = None
    words: Words = field(default_factory=dict)
    bars: Bars | NoBars | None = None
    """What the measurements say, where it was made already."""


@dataclass(frozen=True)
class BlockError:
    """Root mean square error of the sum over one aligned block of `cells` cells: of the release if `exact`, else of
    its noise before refinement. Refinement lowers it on average over a map, most for small and empty cells, and raises
    it for single large cells, which it pulls down: no bound for any one cell. `bound`: the noise's own error is at most
    this, where padding or a mask leaves splits unmeasured."""

    cells: int
    rmse: float
    exact: bool
    bound: bool = False
    about: bool = False
    """Computed as if nothing were padded or masked."""


@dataclass(frozen=True)
class AreaError:
    """Root mean square error of released sums over aligned blocks of `cells` cells, or over the sums of a `view`, in
    words: by a closed form where no refinement follows, else estimated from the noisy numbers alone. `bound`: at most
    this."""

    cells: int | None
    rmse: float
    bound: bool = False
    view: str | None = None
    sums: int | None = None


@dataclass(frozen=True)
class NoForm:
    """No closed form for a recipe's error, and why."""

    why: str


class Bias(Enum):
    """What a refinement does to the mean of released sums; `words.bias` puts it into words."""

    UNBIASED = "linear in the noise, which has mean 0"
    TREES = "from the top of a tree to numbers that are not negative"
    PROJECTED = "cells projected to numbers that are not negative"
    PULLED = "cells pulled towards 0"
    DROPPED = "small cells dropped"
    NEAREST = "the nearest table to some of its sums"


@dataclass(frozen=True)
class OwnBias:
    """A bias that no other family has, in its own words: (kind of area, English, Japanese); the kinds are those
    of `words.bias.AREAS`."""

    sentences: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class Replay:
    """The published numbers of a release, refined once more: what they give (None: not computed), what is wrong with
    them or with the values, what was not computed and why, and the noisy numbers that show whether there is too little
    noise (None: none does)."""

    found: tuple[Int, Int] | None = None
    wrong_measurements: str | None = None
    wrong_values: str | None = None
    notes: tuple[str, ...] = ()
    shown: tuple[Chances, ...] | None = None
    apart: tuple[Chances, ...] | None = None


_ARGUMENT = {"prior": "prior", "tuning": "tune_on"}


@dataclass(frozen=True)
class Mechanism(ABC):
    """A recipe: no data, no epsilon. Its guarantee is computed from domain, unit and epsilon alone."""

    name: str
    basis: str
    """Its proof page."""
    along_trees: Mechanism | None = field(default=None, kw_only=True, compare=False, repr=False)
    """The recipe of this name that follows declared trees, where the caller left the order to it; None where the order
    was asked for."""

    def suited(self, domain: Domain) -> Mechanism:
        """The recipe itself, or, on a domain with declared trees, the one of its name that follows them."""
        return self if self.along_trees is None or not domain.grouped else self.along_trees

    def on(self, domain: Domain, unit: Unit, epsilon: Exact) -> Run:
        """The recipe on a domain: scale, trees, guarantee. Sees no data; every refusal is here, before a charge.

        A declared tree of labels is followed or refused: whoever declares regions expects their sums to be good.
        """
        if not isinstance(unit, Unit):
            raise PrivacyError("a unit of protection is needed: unit=Unit(id=..., change=..., max_cells=...)")
        own = self.suited(domain)
        if own is not self:
            return own.on(domain, unit, epsilon)
        if self.ignores_trees is not None and domain.grouped:
            raise DomainError(
                f"axis {domain.grouped[0]!r} has a public tree, which {self.name} with order={self.ignores_trees!r} "
                f"would ignore; use {self.follows_trees}, or declare the axis without its tree"
            )
        if unit.per == "slot" and domain.timed:
            raise PrivacyError(
                'a unit of one slot (per="slot") goes with tables of one slot; this domain has a time axis, along '
                "which a unit is counted again and again. Say in how many cells of it one unit is counted"
            )
        return self.run(domain, unit, epsilon)

    @abstractmethod
    def run(self, domain: Domain, unit: Unit, epsilon: Exact) -> Run:
        """`on` without the refusal of trees that it ignores: releases were made so once, and are read back."""

    @property
    def ignores_trees(self) -> str | None:
        """The order that walks past the declared trees of labels; None where they are followed, or there is no tree."""
        return None

    @property
    def follows_trees(self) -> str:
        """What to use instead where labels have a tree."""
        return "haar_topdown(transform='nominal')"

    @abstractmethod
    def stored(self) -> dict[str, Any]:
        """transform, noise, refine and those of _UNSET that differ: what the plan's fingerprint is made of."""

    def long(self, domain: Domain) -> bool:
        """Does a release on this domain, or its plan, take longer than a person waits at a page?"""
        return False

    @property
    def tables(self) -> tuple[tuple[PublicTable, str], ...]:
        """The public tables it uses, each with its use."""
        return ()

    @property
    def declared(self) -> tuple[str, ...]:
        """The names that tables and a matrix are declared public under."""
        return tuple(table.name for table, _ in self.tables)

    def parts(self) -> dict[str, Any]:
        """The words and values it is made of, every field of the plan's text."""
        return {"name": self.name, "basis": self.basis, **_UNSET, **self.stored()}

    def once_told_alike(self) -> list[Mechanism]:
        """Recipes that an earlier kasuri told with the same words."""
        return []

    def told_apart(self) -> list[str]:
        """What tells two recipes of one name apart, in a word each."""
        stored = self.stored()
        return [str(stored[word]) for word in ("order", "shares") if stored.get(word)]

    def guarantee(self, domain: Domain, unit: Unit, epsilon: Exact) -> Guarantee:
        """The claim a release of this recipe makes, before any data is touched."""
        return self.on(domain, unit, epsilon).guarantee

    def scale(self, domain: Domain, unit: Unit, epsilon: Exact) -> Fraction:
        """Noise scale of a coefficient of weight 1: c * cost / epsilon."""
        return self.on(domain, unit, epsilon).noise.scale

    def losses(self, domain: Domain, unit: Unit, epsilon: Exact) -> Losses | Normal:
        """The privacy-loss pair of one release: independent parts, the epsilon of each (docs/proofs/composition.md)."""
        return self.on(domain, unit, epsilon).losses

    def plan(self, domain: Domain, unit: Unit, epsilon: Exact) -> str:
        """Fingerprint of everything public about a release: recipe, domain, unit, epsilon. Nothing of the data."""
        parts = self.suited(domain).parts()
        public = {
            "recipe": parts | {name: parts[name] and parts[name].fingerprint() for name in ("prior", "tuning")},
            "domain": domain.to_json(),
            "unit": unit.to_json(),
            "epsilon": decimal(asked(epsilon, study=True)),
        }
        text = json.dumps(public, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def series(self, domain: Domain, unit: Unit, epsilon: Exact, releases: int) -> Declared:
        """`releases` equal releases, to be declared when a ledger is opened with accounting="pld"."""
        run = self.on(domain, unit, epsilon)
        named, claim = (self.name, self.plan(domain, unit, epsilon)), run.guarantee
        return Declared(*named, claim.epsilon, run.losses, releases, claim.delta)

    def recurring(self, domain: Domain, unit: Unit, window: Window, epsilon: Exact, delta: Exact) -> Declared:
        """One release in every slot, for ever: as many as a window has, which cost at most (epsilon, delta)."""
        whole, small = exact(epsilon), exact(delta, "delta")
        own = self.settled(domain, unit, window, whole, small)
        each = slot_epsilon(lambda tried: own.on(domain, unit, tried).losses, window.slots, whole, small)
        return own.series(domain, unit, each, window.slots)

    def settled(self, domain: Domain, unit: Unit, window: Window, epsilon: Exact, delta: Exact) -> Mechanism:
        """The recipe of every slot, where this one chooses its noise by what is asked of it."""
        return self

    def claim(
        self, domain: Domain, unit: Unit, epsilon: Exact, law: type[Noise], public: tuple[str, ...] = ()
    ) -> Guarantee:
        """The guarantee of a release on `domain`, with what else is `public`; tables on another grid are refused."""
        named = []
        for table, use in self.tables:
            if table.domain != domain:
                raise DomainError(f"the public table {table.name!r} is on another grid than the table released")
            named.append(f"table {table.name} ({use})")
        known = ("domain", *(("mask",) if domain.mask else ()), *public, *named)
        loss = asked(epsilon, study=True)  # who promises it has asked whether it is meant
        return Guarantee("central", loss, Fraction(0), unit, known, (law.caveat,), self.basis)


@dataclass(frozen=True, eq=False)
class Run(ABC):
    """A recipe on a domain, made before the ledger is charged. Public: it sees no data.

    `cost` is the most one count changes the measured numbers by, all together (in L1, a coefficient of weight w counts
    1/w): the sensitivity is c * cost, c = counts a unit adds. `noise` is that of a coefficient of weight 1.
    """

    mechanism: Mechanism
    domain: Domain
    guarantee: Guarantee
    cost: Fraction
    noise: Noise
    chosen: Words | None = field(default=None, kw_only=True)
    """Who chose the recipe from public facts, and why, where somebody did."""
    signed: ClassVar[bool]
    """May a released value be negative?"""
    bias: ClassVar[Bias | OwnBias]
    """What refinement does to the mean of released sums."""
    refined_ja: ClassVar[str] = ""
    """Its refinement in Japanese, where no recipe of `words.japanese.REFINED` stores that word."""
    cells_apart: ClassVar[bool] = False
    """Does every cell have noise of its own and nothing else?"""
    squares: ClassVar[bool] = True
    """Are the squares of 4^l cells of a mesh nodes of its tree, where it has one?"""

    def __post_init__(self) -> None:
        for word in ("signed", "bias"):
            if not hasattr(self, word):
                raise TypeError(f"{type(self).__name__} does not say {word}")

    @property
    def scale(self) -> Fraction:
        """Noise scale of a coefficient of weight 1."""
        return self.noise.scale

    @property
    def sensitivity(self) -> Fraction:
        return self.guarantee.unit.most * self.cost

    @property
    def order(self) -> str:
        """The word for the tree, as releases store it."""
        return str(self.mechanism.stored().get("order", "none"))

    @property
    def descent(self) -> str:
        """The word for the walk down the tree, as releases store it."""
        return str(self.mechanism.stored().get("descent", "none"))

    @property
    def losses(self) -> Losses | Normal:
        """One part of all of epsilon; a family with a finer pair says so (docs/proofs/composition.md)."""
        return generic(self.guarantee.epsilon)

    @abstractmethod
    def draw(self, cells: Int, values: Int, streams: Streams, threads: int) -> Drawn:
        """transform, noise, refine: true rising `cells` and their `values` in, rising cells and values not 0 out."""

    @abstractmethod
    def errors(self, sizes: Sequence[int] = ()) -> list[BlockError] | NoForm:
        """The one closed form of its error: of blocks of so many cells that are nodes of its tree; of every height of
        the tree where no sizes are given."""

    def view_errors(self) -> list[AreaError]:
        """Errors of declared views by a closed form, before any data is touched; none where a recipe has no views."""
        return []

    @property
    def cautions(self) -> tuple[str, ...]:
        """What public facts say against the choice, with figures: told before the charge."""
        return ()

    def after(self, drawn: Drawn, sizes: Sequence[int] = ()) -> list[AreaError] | NoForm:
        """Errors of released sums after refinement, from the published noisy numbers alone and without a random number:
        of aligned blocks of these sizes that are nodes of its tree, and of its declared views."""
        found = square_errors(self, sizes)
        if found and all(error.exact for error in found.values()):
            return [AreaError(size, error.rmse) for size, error in sorted(found.items())]
        return NoForm(f"no estimate for {self.mechanism.name}: it publishes no noisy numbers to estimate it from")

    @abstractmethod
    def bars(self, measurements: Measurements | None) -> Bars | NoBars:
        """The error bars of a release with these measurements, or why there are none."""

    @abstractmethod
    def blocks(self) -> Any | None:
        """How it is cut into blocks for a cluster; None where it is not drawn block by block."""

    def counted(self) -> Any | None:
        """The run as noisy counts along a tree, which a series filters; None where it is something else."""
        return None

    def words(self) -> dict[str, Any]:
        """The recipe as a release carries it. Nothing of it depends on the counts."""
        stored = self.mechanism.stored()
        return {
            "name": self.mechanism.name,
            "transform": stored["transform"],
            "noise": self.noise.name,
            "scale": decimal(self.noise.scale),
            "sensitivity": decimal(self.sensitivity),
            "refine": stored["refine"],
            "order": self.order,
            "interleave": list(stored.get("interleave", ())),
            "descent": self.descent,
            **({"arguments": asked_for} if (asked_for := self.arguments()) else {}),
            **({"fingerprints": known} if (known := self.fingerprints()) else {}),
            **({"chosen": dict(self.chosen)} if self.chosen is not None else {}),
        } | self.further()

    def arguments(self) -> dict[str, Any]:
        """What the recipe was asked for, where nothing else that is stored tells it."""
        return {}

    def fingerprints(self) -> dict[str, str]:
        """Digests of the public tables it uses, by the argument that names them."""
        return {_ARGUMENT[use]: table.fingerprint() for table, use in self.mechanism.tables}

    def further(self) -> dict[str, Any]:
        """Words that only some recipes have, in the order they are stored: shares, options, threshold, rows,
        mechanisms, tuning."""
        return {}

    def retold(self, words: Words, measurements: Measurements | None) -> tuple[dict[str, Any], list[str]]:
        """The words that a release of this run must have, given its measurements where noisy numbers chose; and what of
        them could not be computed again. FormatError where no such choice exists."""
        return self.words(), []

    chooses: ClassVar[tuple[str, ...]] = ()
    """Further words that its releases carry, since noisy numbers chose what they say: `retold` computes them again."""
    optimised: ClassVar[bool] = False
    """Does its scale follow from an optimisation, which another machine may round otherwise?"""
    publishes: ClassVar[bool] = False
    """Does a release have measurements?"""
    fractions: ClassVar[bool] = False
    """Are released values floating-point numbers?"""
    untold: ClassVar[str] = "{name} with these options publishes no measurements"
    """Why values cannot be computed again, where there are no measurements."""

    def lawful(self, values: NDArray[Any]) -> bool:
        """Are these values of the kind that it releases: whole or not, none of them 0?"""
        kind = np.float64 if self.fractions else np.int64
        return values.dtype == kind and bool((values != 0).all()) and bool(np.isfinite(values).all())

    def replay(self, drawn: Drawn) -> Replay:
        """What its published numbers say of a release when they are refined once more."""
        return Replay(notes=(f"values: {self.untold.format(name=self.mechanism.name)}",))


@dataclass(frozen=True, eq=False)
class TreeRun(Run):
    """A run along one tree over all cells."""

    tree: Order

    @property
    def order(self) -> str:
        return self.tree.name

    @property
    def squares(self) -> bool:  # type: ignore[override]  # not where the cells follow row by row, as one dimension
        return len(self.tree.dims) == len(self.domain.shape)


def square_errors(run: Run, sizes: Sequence[int]) -> dict[int, BlockError]:
    """Errors of aligned blocks by their number of cells: squares on a mesh, runs on one axis; of a single cell and of
    all cells alone where other blocks are not nodes of the recipe's tree. Empty where there is no closed form."""
    found = run.errors(sizes)
    if isinstance(found, NoForm):
        return {}
    nodes = blocks_are_nodes(run)
    return {error.cells: error for error in found if nodes or error.cells in (1, run.domain.size)}


def blocks_are_nodes(run: Run) -> bool:
    return run.cells_apart or len(run.domain.shape) == 1 or (run.domain.one_mesh and run.squares)


def of_sizes(found: Sequence[BlockError], sizes: Sequence[int]) -> list[BlockError]:
    """Those of `found` that have one of the sizes; all of them where none are named."""
    return [error for error in found if not sizes or error.cells in sizes]


def single(unit: Unit) -> bool:
    """Does a unit add one count and no more? Then its privacy loss has parts."""
    return unit.change == "add-remove" and unit.most == 1


def equal_losses(run: Run) -> Losses:
    """The pair where every measured number has the same exact noise: a single count moves `cost` of them by 1."""
    if run.noise.loss is None or not single(run.guarantee.unit):
        return generic(run.guarantee.epsilon)
    return ((run.noise.loss, int(run.cost)),)


def scale_of(unit: Unit, cost: Fraction, epsilon: Fraction) -> Fraction:
    """c * cost / epsilon, where 64-bit integers hold noise of it."""
    scale = unit.most * cost / epsilon
    if scale <= 0:
        raise PrivacyError("the noise scale must be positive; make a Mechanism by its recipe")
    if scale > MAX_SCALE:
        raise PrivacyError(TOO_SMALL)
    return scale


def dense(name: str, leaves: int) -> None:
    """Refuse a table too large to be written out whole."""
    if leaves > DENSE_CELLS:
        raise DomainError(
            f"{name} writes every one of {leaves} cells (padding included); it takes at most {DENSE_CELLS}. "
            "haar_topdown() follows the non-zero cells instead"
        )


def possible_cells(domain: Domain) -> Int:
    """Every cell that is not masked."""
    return np.flatnonzero(domain.possible_dense().ravel())


def kept(cells: Int, values: NDArray[Any]) -> tuple[Int, NDArray[Any]]:
    """Without zeros: an absent cell is 0."""
    keep = values != 0
    return (cells, values) if keep.all() else (cells[keep], values[keep])
