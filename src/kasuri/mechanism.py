"""Mechanism: a recipe's parts, and what follows from them on a domain, before any data is touched.

A release is refine(transform(counts) + noise): only counts is secret, only noise is random, and refine sees neither.
This module sees none of the three; `recipes` names the mechanisms that were proved, `draw` runs them.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from itertools import pairwise
from typing import Literal

import numpy as np

from kasuri import order, shares, strategy, transform
from kasuri.accounting import Losses, Series, generic
from kasuri.errors import DomainError, PrivacyError, unknown
from kasuri.noise import TWO_DIGITS, passes
from kasuri.order import Order
from kasuri.privacy import Guarantee, asked, decimal, exact
from kasuri.public import PublicTable
from kasuri.schema import Domain, Nominal, Ordered, Unit
from kasuri.strategy import Strategy
from kasuri.visit import Visit
from kasuri.visited import LEAST_SCALE

DENSE_CELLS = 1 << 26
"""Most cells (padding included) a dense recipe takes."""
MEASURED_CELLS = 1 << 24
"""haar_topdown draws every node, and so publishes its measurements, up to this many leaves; above it jumps."""

LARGE = 1 << 26
"""Count trees of more leaves keep fewer of the blocks above the cells."""

MAX_FAN = 1 << 16
"""Most nodes of a measured level below one node of the level above: all of them are drawn where it is kept."""

MAX_SCALE = 1 << 55
"""Largest noise scale: a value beyond 2^61 then has probability below 2 e^-64."""

KEYSTREAM = "the keystream (AES-256-CTR under BLAKE2b keys) is as good as ideal random bits"
IDEALISED = "idealised numerics: floating-point noise, for reproducing papers only"
SAME_TOTAL = "one record changes its cell, none enters or leaves: the declared total is the same in both tables"

MAX_PASSING = 1 << 26
"""Most empty cells a thresholded release may expect to pass."""
MAX_SLOW = 1 << 16
"""The same where the runs between them are drawn by the slow rule, some milliseconds each: minutes, not hours."""

WRITTEN = 1 << 10
"""Most characters of a matrix that a release writes out; of a larger one it tells the fingerprint."""

_RULES = {
    "simplex": ("neg l2",),
    "nonneg lasso": ("nonneg lasso scale", "nonneg lasso shift"),
    "lasso": ("lasso scale", "lasso shift"),
}

_NO_TOTAL = (
    "none", "inverse", "topdown", "least squares", "bayes", "chosen", "consistency", "threshold", "linear program",
)  # fmt: skip
"""The refinements that use no total."""

_OPTIONS = {
    "matrix": ("strategy", "workload", "public"), "fourier": ("ways",), "threshold": ("threshold",),
    **dict.fromkeys(_RULES, ("total", "rule", "parameter", "share", "declared_total")),
}  # fmt: skip
"""Names of the options, by the transform or the refinement that reads them."""

_ORDERS = {
    "identity": ("none",), "matrix": ("none",), "fourier": ("none",), "haar_nd": ("2d",), "nominal": ("morton", "jis"),
    "sum_difference": ("morton", "1d"), "haar": ("morton", "1d"), "counts": ("morton", "1d", "hierarchy"),
}  # fmt: skip
"""The orders of the cells each transform is measured in."""

_NUMERICS = {"discrete Laplace": KEYSTREAM, "float Laplace": IDEALISED}
"""What each noise rests on."""

_COMBINATIONS = {
    ("identity", "float Laplace", "none"): ("none",),
    ("identity", "discrete Laplace", "none"): ("none",),
    ("haar_nd", "discrete Laplace", "inverse"): ("none",),
    ("sum_difference", "discrete Laplace", "inverse"): ("none",),
    ("sum_difference", "discrete Laplace", "topdown"): ("auto", "dense", "plain", "jump"),
    ("haar", "float Laplace", "topdown"): ("dense",),
    ("nominal", "discrete Laplace", "topdown"): ("plain",),
    ("counts", "discrete Laplace", "least squares"): ("plain",),
    ("counts", "discrete Laplace", "consistency"): ("dense",),
    ("identity", "discrete Laplace", "simplex"): ("none",),
    ("identity", "discrete Laplace", "nonneg lasso"): ("none",),
    ("identity", "discrete Laplace", "lasso"): ("none",),
    ("identity", "discrete Laplace", "threshold"): ("jump",),
    ("matrix", "discrete Laplace", "inverse"): ("none",),
    ("fourier", "discrete Laplace", "linear program"): ("none",),
    ("counts", "discrete Laplace", "bayes"): ("plain",),
    ("counts", "discrete Laplace", "chosen"): ("plain",),
}
"""The parts that were proved together, with the descents each allows."""


@dataclass(frozen=True)
class Mechanism:
    """A recipe: no data, no epsilon. Its guarantee is computed from domain, unit and epsilon alone.

    `transform`, `noise` and `refine` name the parts; `order` the tree over the cells; `descent` how the refinement
    walks it; `shares` the part of epsilon each measured height gets (count trees: a preset, or pairs of height and
    exact decimal, or who chooses: "facts", "prior", "pilot", "simulation"); `facts` the declared density and size;
    `prior` a public table; `areas` and `metric` what a simulation chooses for; `options` further choices by name;
    `tuning` a public table they are tuned on; `basis` the proof.
    """

    name: str
    transform: Literal["identity", "sum_difference", "haar", "haar_nd", "nominal", "counts", "matrix", "fourier"]
    noise: Literal["discrete Laplace", "float Laplace"]
    refine: Literal[
        "none", "inverse", "topdown", "least squares", "bayes", "chosen", "consistency", "simplex", "nonneg lasso",
        "lasso", "threshold", "linear program",
    ]  # fmt: skip
    basis: str
    order: str = "none"
    interleave: tuple[str, ...] = ()
    descent: Literal["none", "auto", "dense", "plain", "jump"] = "none"
    shares: str | tuple[tuple[int, str], ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    tuning: PublicTable | None = None
    facts: tuple[str, ...] = ()
    prior: PublicTable | None = None
    areas: tuple[int, ...] = ()
    metric: str = ""

    def __post_init__(self) -> None:
        parts = (self.transform, self.noise, self.refine)
        if parts not in _COMBINATIONS or self.descent not in _COMBINATIONS[parts]:
            raise PrivacyError("no proof covers this combination of parts; make a Mechanism by its recipe")

    def option(self, name: str) -> str:
        """One of `options` by its name."""
        found = dict(self.options).get(name)
        if found is None:
            raise PrivacyError(f"{self.name} needs the option {name!r}; make a Mechanism by its recipe")
        return found

    @property
    def matrix(self) -> str | None:
        """The option that is a matrix written out: "strategy", "workload" or none; the option "public" is its name."""
        if self.transform != "matrix":
            return None
        if self.option("strategy") != "optimised":
            return "strategy"
        return None if self.option("workload") in strategy.WORKLOADS else "workload"

    @property
    def declared(self) -> list[str]:
        """The names that tables and a matrix are declared public under."""
        named = [value for key, value in self.options if key == "public"]
        return [table.name for table in (self.prior, self.tuning) if table is not None] + named

    def told_options(self) -> dict[str, str]:
        """`options` as a release tells them: a matrix that has a name, or is large, by its fingerprint."""
        told = dict(self.options)
        if self.matrix is not None and ("public" in told or len(told[self.matrix]) > WRITTEN):
            told[self.matrix] = strategy.fingerprint(told[self.matrix])
        return told

    def guarantee(self, domain: Domain, unit: Unit, epsilon: object) -> Guarantee:
        """The claim a release of this recipe makes, before any data is touched."""
        return resolve(self, domain, unit, epsilon).guarantee

    def scale(self, domain: Domain, unit: Unit, epsilon: object) -> Fraction:
        """Noise scale of a coefficient of weight 1: c * cost / epsilon."""
        return resolve(self, domain, unit, epsilon).scale

    def losses(self, domain: Domain, unit: Unit, epsilon: object) -> Losses:
        """The privacy-loss pair of one release: independent parts and the epsilon of each (docs/proofs/composition.md).

        Where one unit adds a single count (add-remove) and every coefficient has the same exact noise, it moves at
        most `cost` numbers by 1, and each of them alone is (epsilon / cost)-DP. A count tree of fixed shares moves one
        count per measured level, each under noise of that level's own share; shares that a pilot chose have the generic
        pair. So has anything else, and every other recipe that does not stand here by name.
        """
        run = resolve(self, domain, unit, epsilon)
        single = unit.change == "add-remove" and unit.most == 1
        if self.transform == "counts" and not run.choices and single:
            return tuple((share * run.guarantee.epsilon, 1) for _, share in run.cuts)
        known = self.name in ("geometric", "privelet", "haar_topdown") and run.total_scale is None
        equal = self.transform in ("identity", "sum_difference", "haar_nd") and self.noise == "discrete Laplace"
        if not known or not equal or not single:
            return generic(run.guarantee.epsilon)
        return ((1 / run.scale, int(run.scale * run.guarantee.epsilon)),)

    def plan(self, domain: Domain, unit: Unit, epsilon: object) -> str:
        """Fingerprint of everything public about a release: recipe, domain, unit, epsilon. Nothing of the data."""
        parts = {part.name: getattr(self, part.name) for part in fields(self)}
        public = {
            "recipe": parts
            | {name: getattr(self, name) and getattr(self, name).fingerprint() for name in ("prior", "tuning")},
            "domain": domain.to_json(),
            "unit": unit.to_json(),
            "epsilon": decimal(asked(epsilon, study=True)),
        }
        text = json.dumps(
            public, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=lambda value: value.to_json()
        )
        return hashlib.sha256(text.encode()).hexdigest()

    def series(self, domain: Domain, unit: Unit, epsilon: object, releases: int) -> Series:
        """`releases` equal releases, to be declared when a ledger is opened with accounting="pld"."""
        losses = self.losses(domain, unit, epsilon)
        return Series(self.name, self.plan(domain, unit, epsilon), asked(epsilon, study=True), losses, releases)


_PRESETS = {"bayes": shares.BAYES, "least squares": shares.REFINED, "consistency": shares.REFINED}

Cuts = tuple[tuple[int, Fraction], ...]


@dataclass(frozen=True, eq=False)
class Run:
    """Everything public about one run, made before the ledger is charged. `sensitivity` is the most one unit moves the
    measured numbers (of a count tree: those of one level), each in units of its own weight; `trees` is one tree over
    all cells, or one per axis (haar_nd), or none (identity); `descent` is what "auto" came to; `cuts` are the measured
    depths of a count tree with their shares of epsilon. A run with `choices` has none yet: they will be one of these,
    each of which sums to 1 (a single one where a tree has no level for a pilot), and the `pilot` (depth, share), where
    there is one, is in all of them. `strategy` is a measured matrix; `total_scale` the noise of a bought total, or
    `declared_total` a public one; `threshold` what a cell must reach to be released."""

    mechanism: Mechanism
    domain: Domain
    scale: Fraction
    sensitivity: Fraction
    guarantee: Guarantee
    trees: tuple[Order, ...]
    descent: str
    cuts: Cuts = ()
    pilot: tuple[int, Fraction] | None = None
    choices: Mapping[str, Cuts] = field(default_factory=dict)
    strategy: Strategy | None = None
    total_scale: Fraction | None = None
    declared_total: int | None = None
    threshold: int | None = None

    def visit(self, cuts: Cuts | None = None, refine: str | None = None) -> Visit:
        """What a count tree measures: the noise of a cut has the run's scale over its share. Above a pilot every node
        is kept; bayes_tree keeps a little more than refined_tree on the last level above the cells."""
        cuts, refine = cuts or self.cuts, refine or self.mechanism.refine
        depths, scales = zip(*((depth, self.scale / share) for depth, share in cuts), strict=True)
        slacks = [0.0] * len(depths)
        if refine not in ("bayes", "least squares", "consistency", "chosen"):
            raise unknown(PrivacyError, "the refinement of a count tree", refine, ("bayes", "least squares"))
        if len(depths) > 1 and refine == "bayes":
            slacks[-2] = 2.0 if self.trees[0].leaves <= LARGE else 1.0
        if self.pilot is not None:
            slacks = [math.inf if depth < self.pilot[0] else slack for depth, slack in zip(depths, slacks, strict=True)]
        return Visit(self.trees[0], depths, scales, tuple(slacks))


def resolve(mechanism: Mechanism, domain: Domain, unit: Unit, epsilon: object) -> Run:
    """Resolve a recipe on a domain: trees, scale, guarantee. Sees no data; refuses before anything is charged."""
    if not isinstance(unit, Unit):
        raise PrivacyError("a unit of protection is needed: unit=Unit(id=..., change=..., max_cells=...)")
    loss = asked(epsilon, study=True)  # who promises it has asked whether it is meant
    _read(mechanism)
    trees = _trees(mechanism, domain)
    descent = mechanism.descent
    if descent == "auto":
        descent = "plain" if trees[0].leaves <= MEASURED_CELLS else "jump"
    if descent not in ("none", "dense", "plain", "jump"):
        raise unknown(PrivacyError, "the descent", descent, ("none", "auto", "dense", "plain", "jump"))
    leaves = math.prod(tree.leaves for tree in trees) if trees else domain.size
    if descent in ("none", "dense") and leaves > DENSE_CELLS:
        raise DomainError(
            f"{mechanism.name} writes every one of {leaves} cells (padding included); it takes at most {DENSE_CELLS}. "
            "haar_topdown() follows the non-zero cells instead"
        )
    measured = _strategy(mechanism, domain)
    if mechanism.transform == "identity":
        cost = transform.identity_cost(domain.size, unit.change)
    elif mechanism.transform == "haar_nd":
        cost = transform.haar_nd_cost(trees, unit.change)
    elif mechanism.transform == "counts":
        cost = Fraction(1 if unit.change == "add-remove" else 2)
    elif measured is not None:
        cost = measured.cost(unit.change)
    elif mechanism.transform in ("sum_difference", "haar", "nominal"):
        cost = trees[0].cost(unit.change)
    else:
        raise unknown(PrivacyError, "the transform", mechanism.transform, _ORDERS)
    share, declared = _total(mechanism, unit)
    public = ["domain", *(["mask"] if domain.mask else []), *(["total"] if declared is not None else [])]
    if mechanism.facts:
        public.append("declared density and size of the non-empty cells")
    for table, use in ((mechanism.prior, "prior"), (mechanism.tuning, "tuning")):
        if table is not None:
            if table.domain != domain:
                raise DomainError(f"the public table {table.name!r} is on another grid than the table released")
            public.append(f"table {table.name} ({use})")
    if mechanism.matrix is not None:
        name = dict(mechanism.options).get("public")
        public.append(f"matrix {name} ({mechanism.matrix})" if name else f"matrix of the recipe ({mechanism.matrix})")
    guarantee = Guarantee("central", loss, Fraction(0), unit, tuple(public), (), mechanism.basis)
    guarantee = guarantee.assuming(_NUMERICS[mechanism.noise])
    if declared is not None:
        guarantee = guarantee.assuming(SAME_TOTAL)
    scale = unit.most * cost / (loss * (1 - share))
    bought = unit.most / (loss * share) if share else None  # the total changes by c at most, moved records or not
    if scale <= 0 or (bought is not None and bought <= 0):
        raise PrivacyError("the noise scale must be positive; make a Mechanism by its recipe")
    if max(scale, bought or 0) > MAX_SCALE:
        raise PrivacyError("epsilon is too small: the noise would not fit 64-bit integers (scale above 2^55)")
    threshold = _threshold(mechanism, domain, scale)
    run = Run(
        mechanism, domain, scale, unit.most * cost, guarantee, trees, descent, strategy=measured, total_scale=bought,
        declared_total=declared, threshold=threshold,
    )  # fmt: skip
    if mechanism.transform == "counts":
        run = _measured(run)
        for cuts in (run.cuts, *run.choices.values()):
            if run.descent == "plain":
                _drawable(run.trees[0], cuts)
            if cuts and max(run.visit(cuts).scales) > MAX_SCALE:  # visit() also refuses a first level too wide to draw
                raise PrivacyError("epsilon is too small: the noise would not fit 64-bit integers (scale above 2^55)")
    return run


def _read(mechanism: Mechanism) -> None:
    """Refuse every word that nothing here reads: it would stand in the release and mean nothing."""
    kind, refine, chosen = mechanism.transform, mechanism.refine, mechanism.refine == "chosen"
    options = (*_OPTIONS.get(kind, ()), *_OPTIONS.get(refine, ()))
    words: list[tuple[str, str, Iterable[str]]] = [
        ("the transform", kind, _ORDERS),
        ("the noise", mechanism.noise, _NUMERICS),
        ("the refinement", refine, (*_NO_TOTAL, *_RULES)),
        (f"{kind}: the order", mechanism.order, _ORDERS.get(kind, ())),
        ("the metric", mechanism.metric, ("rmse", "mae") if chosen else ("",)),
        *((f"{mechanism.name}: the option", name, options) for name, _ in mechanism.options),
    ]
    for what, word, known in words:
        if word not in known:
            raise unknown(PrivacyError, what, word, known)
    used = {
        "interleave": mechanism.order == "morton" and kind != "nominal", "shares": kind == "counts", "areas": chosen,
        "facts": mechanism.shares == "facts", "prior": refine in ("bayes", "chosen"), "tuning": refine in _RULES,
    }  # fmt: skip
    idle = [name for name, read in used.items() if getattr(mechanism, name) and not read]
    if idle:
        raise PrivacyError(f"{mechanism.name} does not use {', '.join(idle)}; make a Mechanism by its recipe")


def _total(mechanism: Mechanism, unit: Unit) -> tuple[Fraction, int | None]:
    """(share of epsilon that buys the total, declared public total): one of them, or neither where none is used."""
    if mechanism.refine in _NO_TOTAL:
        return Fraction(0), None
    _shape(mechanism)
    kind = mechanism.option("total")
    if kind == "noisy":
        share = exact(mechanism.option("share"), "the total's share")
        if share >= 1:
            raise PrivacyError("the total's share of epsilon must lie below 1: the cells need the rest")
        return share, None
    if kind != "public":
        raise PrivacyError('total must be "noisy" (bought with a share of epsilon) or "public" (declared)')
    if unit.change != "replace" or unit.max_cells != 1 or unit.max_weight is not None:
        raise PrivacyError(
            'total="public" needs unit change "replace", max_cells=1 and no weights: whoever enters or leaves changes '
            'the total, so under add-remove it is not differentially private at all; use total="noisy"'
        )
    declared = _whole(mechanism, "declared_total")
    if not 0 <= declared <= 1 << 62:
        raise PrivacyError("a declared total lies from 0 to 2^62")
    return Fraction(0), declared


def _shape(mechanism: Mechanism) -> None:
    """What a projection will need is whole before anything is charged: its rule, its parameter, the table it is tuned
    on."""
    if mechanism.refine not in _RULES:
        raise unknown(PrivacyError, "the refinement", mechanism.refine, (*_NO_TOTAL, *_RULES))
    rule, parameter = mechanism.option("rule"), mechanism.option("parameter")
    if rule not in _RULES[mechanism.refine]:
        raise PrivacyError(f"the rule {rule!r} is not one of {mechanism.refine}: {', '.join(_RULES[mechanism.refine])}")
    if parameter != "auto" and exact(parameter, "the parameter") > 1 and rule == "neg l2":
        raise PrivacyError("gamma must lie above 0 and at most at 1")
    table = mechanism.tuning
    if table is None:
        return
    if parameter != "auto":
        raise PrivacyError('a table to tune on goes with the parameter "auto"')
    rounded = np.rint(table.values)
    if not rounded.any() or rounded.sum() >= 1 << 62:
        raise DomainError(
            f"the public table {table.name!r} is 0 in every cell once rounded, or sums to 2^62 or more: tunes nothing"
        )


def _whole(mechanism: Mechanism, name: str) -> int:
    """An option that is a whole number."""
    try:
        return int(mechanism.option(name))
    except ValueError:
        raise PrivacyError(f"{mechanism.name}: the option {name!r} must be a whole number") from None


def _threshold(mechanism: Mechanism, domain: Domain, scale: Fraction) -> int | None:
    if mechanism.refine != "threshold":
        return None
    if domain.size >= 1 << 62:
        raise DomainError("a thresholded release takes fewer than 2^62 cells")
    given = mechanism.option("threshold")
    least = 1 if given == "auto" else _whole(mechanism, "threshold")
    if given == "auto" and domain.size * passes(scale, 1) > 1:
        least = max(1, math.ceil(scale * Fraction(math.log(domain.size))))
    if least < 1:
        raise PrivacyError("a threshold is a whole number from 1 on: every empty cell would be released below it")
    if least >= 1 << 62:
        raise DomainError("a threshold lies below 2^62: no count comes near it")
    chance = passes(scale, least)
    most = MAX_PASSING if chance * TWO_DIGITS >= 1 else MAX_SLOW
    if domain.size * chance > most:
        raise DomainError(
            f"at threshold {least} about {domain.size * chance:.3g} empty cells would pass; "
            f'at most {most} can be drawn: raise the threshold, or use threshold="auto"'
        )
    return least


def _strategy(mechanism: Mechanism, domain: Domain) -> Strategy | None:
    if mechanism.transform == "fourier":
        return strategy.fourier(domain, _whole(mechanism, "ways"))
    if mechanism.transform != "matrix":
        return None
    if mechanism.option("strategy") == "optimised":
        return strategy.optimised(domain, mechanism.option("workload"))
    return strategy.given(domain, mechanism.option("strategy"))


def _measured(run: Run) -> Run:
    """The measured depths of a count tree with their shares: fixed, or the pilot and what it may choose from."""
    mechanism, tree = run.mechanism, run.trees[0]
    stages = tree.stages
    top = len(stages) - 1

    def cuts(by_height: Mapping[int, Fraction]) -> Cuts:
        # the claim rests on it: checked where the claim is made
        if sum(by_height.values()) != 1 or min(by_height.values()) <= 0:
            raise PrivacyError(
                "shares name each height once, are positive and sum to exactly 1: their sum is what epsilon pays for"
            )
        if max(by_height) > top:
            raise DomainError(f"this tree has heights 0..{top}; shares name {max(by_height)}")
        return tuple(sorted((stages[top - height], share) for height, share in by_height.items()))

    named = mechanism.shares
    if (named == "simulation") != (mechanism.refine == "chosen") or (named == "pilot" and mechanism.refine != "bayes"):
        raise PrivacyError(
            "who chooses the shares and how they are refined belong together; use auto() or bayes_tree()"
        )
    if mechanism.refine == "consistency" and named != "u4":
        raise unknown(PrivacyError, f"{mechanism.name}: shares", named, ("u4",))
    if mechanism.refine == "consistency" and mechanism.order == "1d":  # every binary level
        return replace(run, cuts=tuple((at, Fraction(1, tree.depth + 1)) for at in range(tree.depth + 1)))
    if not isinstance(named, str):
        given = {height: exact(share, "a share") for height, share in named}
        return replace(run, cuts=cuts(given if len(given) == len(named) else {}))
    if named in ("pilot", "simulation"):
        beyond = [area for area in mechanism.areas if area > run.domain.size]
        if beyond:
            raise DomainError(f"areas of {beyond} cells are asked for; the domain has {run.domain.size}")
        offered = shares.BAYES if named == "pilot" else shares.BAYES | shares.REFINED
        height = shares.pilot_height(tree, odd=named == "simulation")
        if named == "simulation" and mechanism.prior is not None:
            return replace(run, choices={name: cuts(preset(top)) for name, preset in offered.items()})
        if height is not None:
            part = shares.PILOT_SHARE[named]
            choices = {name: cuts(shares.with_pilot(preset(top), height, part)) for name, preset in offered.items()}
            return replace(run, pilot=(stages[top - height], part), choices=choices)
        return replace(run, choices={"middle": cuts(shares.BAYES["middle"](top))})  # too small, or too wide at once
    if named == "facts":
        density, size = (Fraction(part) for part in mechanism.facts)
        named = shares.rule(float(density), float(min(size / max(run.scale, LEAST_SCALE), Fraction(1 << 62))))
    elif named == "prior" and mechanism.prior is not None:
        mean = float(mechanism.prior.values.sum()) / max(mechanism.prior.cells.size, 1)
        named = shares.rule(
            1.0, mean / float(max(run.scale, LEAST_SCALE))
        )  # where people are, the prior knows: their number decides
    if mechanism.refine not in _PRESETS:
        raise unknown(PrivacyError, "the refinement of a count tree", mechanism.refine, (*_PRESETS, "chosen"))
    presets = _PRESETS[mechanism.refine]
    if named not in presets:
        raise PrivacyError(f"shares {named!r} are not known; use {', '.join(presets)} or a mapping")
    return replace(run, cuts=cuts(presets[named](top)))


def _drawable(tree: Order, cuts: Cuts) -> None:
    """Refuse levels that leave too much to draw below one kept node, before anything is charged."""
    for (above, _), (below, _) in pairwise(cuts):
        if tree.width(above, below) > MAX_FAN:
            raise DomainError(
                f"{tree.width(above, below)} nodes of one measured level would be drawn below a single node of the "
                f"level above, at most {MAX_FAN} can be: measure a level between them (shares), group the labels of "
                'wide axes in a tree, or use order="morton"'
            )


def _trees(mechanism: Mechanism, domain: Domain) -> tuple[Order, ...]:
    named = mechanism.order
    if named == "none":
        return ()
    if named == "jis":
        return (order.jis(domain),)
    if named == "hierarchy" or mechanism.transform == "nominal":
        return (order.hierarchy(domain),)
    _no_tree_ignored(mechanism, domain)
    if named == "2d":
        return tuple(order.row_major(Domain.of(Ordered(f"d{i}", size))) for i, size in enumerate(domain.shape))
    if named == "1d":
        return (order.row_major(domain),)
    if named == "morton":
        return (order.morton(domain, mechanism.interleave),)
    raise unknown(PrivacyError, "the order", named, ("none", "1d", "2d", "morton", "hierarchy", "jis"))


def _no_tree_ignored(mechanism: Mechanism, domain: Domain) -> None:
    """A declared tree is followed or refused: whoever declares regions expects their sums to be good."""
    grouped = [axis.name for axis in domain.axes if isinstance(axis, Nominal) and axis.tree is not None]
    if grouped:
        other = f"{mechanism.name}(order='hierarchy')"
        if mechanism.transform != "counts":
            other = "haar_topdown(transform='nominal')"
        raise DomainError(
            f"axis {grouped[0]!r} has a public tree, which {mechanism.name} with order={mechanism.order!r} would "
            f"ignore; use {other}, or declare the axis without its tree"
        )
