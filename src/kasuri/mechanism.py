"""Mechanism: a recipe's parts, and what follows from them on a domain, before any data is touched.

A release is refine(transform(counts) + noise): only counts is secret, only noise is random, and refine sees neither.
This module sees none of the three; `recipes` names the mechanisms that were proved, `draw` runs them.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Literal

from kasuri import order, transform
from kasuri.accounting import Losses, Series, generic
from kasuri.errors import DomainError, PrivacyError
from kasuri.order import Order
from kasuri.privacy import Guarantee, decimal, exact
from kasuri.schema import Domain, Ordered, Unit
from kasuri.visit import Visit

DENSE_CELLS = 1 << 26
"""Most cells (padding included) a dense recipe takes."""
MEASURED_CELLS = 1 << 24
"""haar_topdown draws every node, and so publishes its measurements, up to this many leaves; above it jumps."""

MAX_SCALE = 1 << 55
"""Largest noise scale: a value beyond 2^61 then has probability below 2 e^-64."""

KEYSTREAM = "the keystream (AES-256-CTR under BLAKE2b keys) is as good as ideal random bits"
IDEALISED = "idealised numerics: floating-point noise, for reproducing papers only"


_COMBINATIONS = {
    ("identity", "float Laplace", "none"): ("none",),
    ("identity", "discrete Laplace", "none"): ("none",),
    ("haar_nd", "discrete Laplace", "inverse"): ("none",),
    ("sum_difference", "discrete Laplace", "inverse"): ("none",),
    ("sum_difference", "discrete Laplace", "topdown"): ("auto", "dense", "plain", "jump"),
    ("haar", "float Laplace", "topdown"): ("dense",),
    ("nominal", "discrete Laplace", "topdown"): ("plain",),
    ("counts", "discrete Laplace", "least squares"): ("plain",),
}
"""The parts that were proved together, with the descents each allows."""


@dataclass(frozen=True)
class Mechanism:
    """A recipe: no data, no epsilon. Its guarantee is computed from domain, unit and epsilon alone.

    `transform`, `noise` and `refine` name the parts; `order` the tree over the cells; `descent` how the refinement
    walks it; `shares` the part of epsilon each measured height gets (count trees: a preset, or pairs of height and
    exact decimal); `basis` the proof.
    """

    name: str
    transform: Literal["identity", "sum_difference", "haar", "haar_nd", "nominal", "counts"]
    noise: Literal["discrete Laplace", "float Laplace"]
    refine: Literal["none", "inverse", "topdown", "least squares"]
    basis: str
    order: str = "none"
    interleave: tuple[str, ...] = ()
    descent: Literal["none", "auto", "dense", "plain", "jump"] = "none"
    shares: str | tuple[tuple[int, str], ...] = ()

    def __post_init__(self) -> None:
        parts = (self.transform, self.noise, self.refine)
        if parts not in _COMBINATIONS or self.descent not in _COMBINATIONS[parts]:
            raise PrivacyError("no proof covers this combination of parts; make a Mechanism by its recipe")

    def guarantee(self, domain: Domain, unit: Unit, epsilon: object) -> Guarantee:
        """The claim a release of this recipe makes, before any data is touched."""
        return resolve(self, domain, unit, epsilon).guarantee

    def scale(self, domain: Domain, unit: Unit, epsilon: object) -> Fraction:
        """Noise scale of a coefficient of weight 1: c * cost / epsilon."""
        return resolve(self, domain, unit, epsilon).scale

    def losses(self, domain: Domain, unit: Unit, epsilon: object) -> Losses:
        """The privacy-loss pair of one release: independent parts and the epsilon of each (docs/proofs/composition.md).

        Where one unit adds a single count (add-remove) and every coefficient has the same exact noise, it moves at
        most `cost` numbers by 1, and each of them alone is (epsilon / cost)-DP. Anything else, and every recipe that
        does not stand here by name: the generic pair. A count tree moves one count per measured level, each under
        noise of that level's own share.
        """
        run = resolve(self, domain, unit, epsilon)
        if self.name == "refined_tree" and unit.change == "add-remove" and unit.most == 1:
            return tuple((share * run.guarantee.epsilon, 1) for _, share in run.cuts)
        known = self.name in ("geometric", "privelet", "haar_topdown")
        equal = self.transform in ("identity", "sum_difference", "haar_nd") and self.noise == "discrete Laplace"
        if not known or not equal or unit.change != "add-remove" or unit.most != 1:
            return generic(run.guarantee.epsilon)
        return ((1 / run.scale, int(run.scale * run.guarantee.epsilon)),)

    def plan(self, domain: Domain, unit: Unit, epsilon: object) -> str:
        """Fingerprint of everything public about a release: recipe, domain, unit, epsilon. Nothing of the data."""
        public = {
            "recipe": asdict(self),
            "domain": domain.to_json(),
            "unit": unit.to_json(),
            "epsilon": decimal(exact(epsilon)),
        }
        text = json.dumps(public, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def series(self, domain: Domain, unit: Unit, epsilon: object, releases: int) -> Series:
        """`releases` equal releases, to be declared when a ledger is opened with accounting="pld"."""
        losses = self.losses(domain, unit, epsilon)
        return Series(self.name, self.plan(domain, unit, epsilon), exact(epsilon), losses, releases)


@dataclass(frozen=True, eq=False)
class Run:
    """Everything public about one run, made before the ledger is charged. `trees` is one tree over all cells, or one
    per axis (haar_nd), or none (identity); `descent` is what "auto" came to; `cuts` are the measured depths of a
    count tree with their shares of epsilon."""

    mechanism: Mechanism
    domain: Domain
    scale: Fraction
    guarantee: Guarantee
    trees: tuple[Order, ...]
    descent: str
    cuts: tuple[tuple[int, Fraction], ...] = ()

    def visit(self) -> Visit:
        """What a count tree measures: the noise of a cut has the run's scale over its share."""
        depths, scales = zip(*((depth, self.scale / share) for depth, share in self.cuts), strict=True)
        return Visit(self.trees[0], depths, scales)


def resolve(mechanism: Mechanism, domain: Domain, unit: Unit, epsilon: object) -> Run:
    """Resolve a recipe on a domain: trees, scale, guarantee. Sees no data; refuses before anything is charged."""
    if not isinstance(unit, Unit):
        raise PrivacyError("a unit of protection is needed: unit=Unit(id=..., change=..., max_cells=...)")
    loss = exact(epsilon)
    trees = _trees(mechanism, domain)
    descent = mechanism.descent
    if descent == "auto":
        descent = "plain" if trees[0].leaves <= MEASURED_CELLS else "jump"
    leaves = math.prod(tree.leaves for tree in trees) if trees else domain.size
    if descent in ("none", "dense") and leaves > DENSE_CELLS:
        raise DomainError(
            f"{mechanism.name} writes every one of {leaves} cells (padding included); it takes at most {DENSE_CELLS}. "
            "haar_topdown() follows the non-zero cells instead"
        )
    if mechanism.transform == "identity":
        cost = transform.identity_cost(domain.size, unit.change)
    elif mechanism.transform == "haar_nd":
        cost = transform.haar_nd_cost(trees, unit.change)
    elif mechanism.transform == "counts":
        cost = Fraction(1 if unit.change == "add-remove" else 2)
    else:
        cost = trees[0].cost(unit.change)
    public = ("domain", "mask") if domain.mask else ("domain",)
    guarantee = Guarantee("central", loss, Fraction(0), unit, public, (), mechanism.basis)
    guarantee = guarantee.assuming(IDEALISED if mechanism.noise == "float Laplace" else KEYSTREAM)
    scale = unit.most * cost / loss
    if scale > MAX_SCALE:
        raise PrivacyError("epsilon is too small: the noise would not fit 64-bit integers (scale above 2^55)")
    run = Run(mechanism, domain, scale, guarantee, trees, descent, _cuts(mechanism, trees))
    if run.cuts and max(run.visit().scales) > MAX_SCALE:  # visit() also refuses a first level too wide to draw
        raise PrivacyError("epsilon is too small: the noise would not fit 64-bit integers (scale above 2^55)")
    return run


def _cuts(mechanism: Mechanism, trees: tuple[Order, ...]) -> tuple[tuple[int, Fraction], ...]:
    """The measured depths of a count tree, from the top, with their shares."""
    if mechanism.transform != "counts":
        return ()
    stages = trees[0].stages
    top = len(stages) - 1
    if isinstance(mechanism.shares, str):
        shares = PRESETS[mechanism.shares](top)
    else:
        shares = {height: Fraction(share) for height, share in mechanism.shares}
    if max(shares) > top:
        raise DomainError(f"this tree has heights 0..{top}; shares name {max(shares)}")
    return tuple(sorted((stages[top - height], share) for height, share in shares.items()))


def _trees(mechanism: Mechanism, domain: Domain) -> tuple[Order, ...]:
    if mechanism.transform == "identity":
        return ()
    if mechanism.transform == "haar_nd":
        return tuple(order.row_major(Domain.of(Ordered(f"d{i}", size))) for i, size in enumerate(domain.shape))
    if mechanism.transform == "nominal" or mechanism.order == "hierarchy":
        return (order.jis(domain) if mechanism.order == "jis" else order.hierarchy(domain),)
    return (order.row_major(domain) if mechanism.order == "1d" else order.morton(domain, mechanism.interleave),)


PRESETS: dict[str, Callable[[int], dict[int, Fraction]]] = {
    "u4": lambda top: {height: Fraction(1, top + 1) for height in range(top + 1)},
    "even16": lambda top: {height: Fraction(1, top // 2 + 1) for height in range(0, top + 1, 2)},
    "tilt16": lambda top: (
        {0: Fraction(1)}
        if top < 2
        else {0: Fraction(2, 5)} | {height: Fraction(3, 5 * (top // 2)) for height in range(2, top + 1, 2)}
    ),
}
"""Named shares: height of the tree -> {measured height: share of epsilon}."""
