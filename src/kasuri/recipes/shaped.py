"""Shaped: noisy cells and a bought or declared total, shaped by a projection or a lasso [Matsumoto2025]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kasuri.errors import DomainError, PrivacyError, raise_faults
from kasuri.noise.laws import DiscreteLaplace
from kasuri.noise.rng import Streams
from kasuri.privacy import Exact, decimal, exact
from kasuri.public import PublicTable
from kasuri.published.bars import NoBars
from kasuri.published.measurements import Measurements
from kasuri.recipes.cells import noisy_cells
from kasuri.recipes.mechanism import (
    MAX_SCALE,
    TOO_SMALL,
    Bias,
    Drawn,
    Int,
    Mechanism,
    NoForm,
    Run,
    dense,
    kept,
    scale_of,
)
from kasuri.refine import LARGEST
from kasuri.refine.project import RULES, Rule, Tally, tune
from kasuri.schema import Domain, Unit
from kasuri.trees import transform

_BASIS = "docs/proofs/simplex.md"
Total = Literal["noisy", "public"]


def simplex(total: Total = "noisy", *, share: Exact = "0.05", declared_total: int | None = None) -> Mechanism:
    """Noisy cells projected on {x >= 0, sum x = total}, then the nearest whole numbers of that total.

    total "noisy": the total is measured too, with the part `share` of epsilon. total "public": `declared_total`, a
    number you declare as known to everyone; only for a unit that replaces (its noise is doubled), one cell each, no
    weights.

    Privacy
    -------
    Neighbours: tables that differ by one unit; total "public": one record changes its cell, none enters or leaves.
    Sensitivity: cells c (add-remove) or 2c (replace), the total c, c = counts a unit adds; public: cells 2.
    Guarantee: epsilon-DP, exactly; cells (1 - share) epsilon and total share epsilon. Proof: docs/proofs/simplex.md.
    Public: domain, mask, the declared total. Assumes: a good keystream; total "public": that no one enters or leaves.

    Cost: O(n), no sort. References: [Matsumoto2025, eq. 7-10], [Duchi2008].
    """
    return _shaped("simplex", "neg l2", "1", None, total, share, declared_total)


def neg_l2_simplex(
    gamma: Exact = "auto",
    total: Total = "noisy",
    *,
    share: Exact = "0.05",
    declared_total: int | None = None,
    tune_on: PublicTable | None = None,
) -> Mechanism:
    """As `simplex`, but the projection of noisy / gamma, 0 < gamma <= 1: sparser, and less pull on large cells.

    gamma: an exact decimal ("1" is `simplex`), or "auto": the gamma that does best on simulated noise over the
    projected noisy table, or over `tune_on`, a PublicTable on the same grid. There is no way to tune it on the truth.

    Privacy
    -------
    Neighbours: tables that differ by one unit; total "public": one record changes its cell, none enters or leaves.
    Sensitivity: cells c (add-remove) or 2c (replace), the total c, c = counts a unit adds; public: cells 2.
    Guarantee: epsilon-DP, exactly; gamma is post-processing. Proof: docs/proofs/simplex.md.
    Public: domain, mask, the declared total, the table tuned on. Assumes: a good keystream; total "public": that no one
    enters or leaves.

    Cost: O(n), no sort; "auto" a few times that. References: [Matsumoto2025, eq. 11-14], [LiRangapuram2020].
    """
    return _shaped("neg_l2_simplex", "neg l2", gamma, tune_on, total, share, declared_total)


def nonneg_lasso(
    strength: Exact = "auto",
    total: Total = "noisy",
    *,
    adjust: Literal["scale", "shift"] = "scale",
    share: Exact = "0.05",
    declared_total: int | None = None,
    tune_on: PublicTable | None = None,
) -> Mechanism:
    """Noisy cells less lambda / 2, cut at 0 (non-negative Lasso), then scaled or uniformly shifted to the total.

    strength: lambda, an exact decimal, or "auto" as in `neg_l2_simplex`. adjust "scale" multiplies all cells, "shift"
    adds the same amount to every cell that is not 0 (and cuts at 0). Whole numbers, as in `simplex`.

    Privacy
    -------
    Neighbours: tables that differ by one unit; total "public": one record changes its cell, none enters or leaves.
    Sensitivity: cells c (add-remove) or 2c (replace), the total c, c = counts a unit adds; public: cells 2.
    Guarantee: epsilon-DP, exactly; lambda is post-processing. Proof: docs/proofs/simplex.md.
    Public: domain, mask, the declared total, the table tuned on. Assumes: a good keystream; total "public": that no one
    enters or leaves.

    Cost: O(n), no sort. References: [Matsumoto2025, eq. 5].
    """
    return _lasso("nonneg_lasso", "nonneg lasso", strength, adjust, tune_on, total, share, declared_total)


def lasso(
    strength: Exact = "auto",
    total: Total = "noisy",
    *,
    adjust: Literal["scale", "shift"] = "scale",
    share: Exact = "0.05",
    declared_total: int | None = None,
    tune_on: PublicTable | None = None,
) -> Mechanism:
    """Soft threshold lambda / 2 in both directions (Lasso), then scaled or shifted to the total; may be negative.

    strength, adjust: as in `nonneg_lasso`. Scaled, a strength so weak that positive and negative noise nearly cancel
    blows every cell up: the sum of what is left is divided by. Use a strength of some noise scales, "auto" or "shift".

    Privacy
    -------
    Neighbours: tables that differ by one unit; total "public": one record changes its cell, none enters or leaves.
    Sensitivity: cells c (add-remove) or 2c (replace), the total c, c = counts a unit adds; public: cells 2.
    Guarantee: epsilon-DP, exactly; lambda is post-processing. Proof: docs/proofs/simplex.md.
    Public: domain, mask, the declared total, the table tuned on. Assumes: a good keystream; total "public": that no one
    enters or leaves.

    Cost: O(n), no sort. References: [Matsumoto2025, eq. 4].
    """
    return _lasso("lasso", "lasso", strength, adjust, tune_on, total, share, declared_total)


def _lasso(
    name: str, kind: str, strength: object, adjust: str, tune_on: Any, total: str, share: Exact, declared: int | None
) -> Mechanism:
    if adjust not in ("scale", "shift"):
        raise PrivacyError(f'{name}: adjust {adjust!r} is not known; use "scale" or "shift"')
    parameter = strength if strength == "auto" else exact(strength, "strength") / 2
    return _shaped(name, f"{kind} {adjust}", parameter, tune_on, total, share, declared)


def _shaped(
    name: str, rule: str, parameter: object, tune_on: Any, total: str, share: Exact, declared: int | None
) -> Mechanism:
    faults: list[str] = []
    bought = known = None
    if total == "noisy":
        bought = exact(share, "share")
        if bought >= 1:
            faults.append(f"{name}: share is the part of epsilon that buys the total; it must lie below 1")
        if declared is not None:
            faults.append(f'{name}: declared_total goes with total="public"; total="noisy" measures the total')
    elif total == "public":
        known = declared
        if not isinstance(declared, int) or isinstance(declared, bool) or not 0 <= declared <= 1 << 62:
            faults.append(f'{name}: total="public" needs declared_total, the number everyone may know (0 to 2^62)')
    else:
        faults.append(f'{name}: total {total!r} is not known; use "noisy" or "public"')
    tuned = None if parameter == "auto" else exact(parameter, "gamma" if rule == "neg l2" else "strength")
    if tuned is not None and rule == "neg l2" and tuned > 1:
        faults.append(f"{name}: gamma must lie above 0 and at most at 1")
    if tune_on is not None and (parameter != "auto" or not isinstance(tune_on, PublicTable)):
        faults.append(
            f'{name}: tune_on takes a PublicTable, declared as such, and goes with "auto"; nothing else tunes'
        )
    raise_faults(PrivacyError, faults)
    paid: Bought | Declared = Declared(known) if known is not None else Bought(bought or Fraction(0))
    return Shaped(name, _BASIS, RULES[rule], tuned, paid, tune_on)


@dataclass(frozen=True)
class Bought:
    """The total is measured too, with the part `share` of epsilon."""

    share: Fraction

    def options(self) -> dict[str, str]:
        return {"total": "noisy", "share": decimal(self.share)}


@dataclass(frozen=True)
class Declared:
    """The total is public: the number that was declared."""

    total: int

    def options(self) -> dict[str, str]:
        return {"total": "public", "declared_total": str(self.total)}


@dataclass(frozen=True)
class Shaped(Mechanism):
    """Noisy cells shaped by `rule` with its `parameter` (None: tuned, on `tuning` if there is such a table)."""

    rule: Rule
    parameter: Fraction | None
    total: Bought | Declared
    tuning: PublicTable | None = None

    @property
    def tables(self) -> tuple[tuple[PublicTable, str], ...]:
        return () if self.tuning is None else ((self.tuning, "tuning"),)

    def stored(self) -> dict[str, Any]:
        said = "auto" if self.parameter is None else decimal(self.parameter)
        options = self.total.options() | {"rule": self.rule.name, "parameter": said}
        return {
            "transform": "identity", "noise": DiscreteLaplace.name, "refine": self.rule.family,
            "options": tuple(sorted(options.items())), "tuning": self.tuning,
        }  # fmt: skip

    def run(self, domain: Domain, unit: Unit, epsilon: Exact) -> ShapedRun:
        self.claim(domain, unit, epsilon, DiscreteLaplace)  # a unit and tables that fit, before they are asked
        self._sound()
        public: tuple[str, ...] = ()
        share = Fraction(0)
        match self.total:
            case Bought(share):
                if not isinstance(share, Fraction) or not 0 < share < 1:
                    raise PrivacyError("the total's share of epsilon must lie below 1: the cells need the rest")
            case Declared(total):
                if unit.change != "replace" or unit.max_cells != 1 or (unit.max_weight, unit.max_sum) != (None, None):
                    raise PrivacyError(
                        'total="public" needs unit change "replace", max_cells=1 and no weights: whoever enters or '
                        "leaves changes the total, so under add-remove it is not differentially private at all; use "
                        'total="noisy"'
                    )
                if type(total) is not int or not 0 <= total <= 1 << 62:
                    raise PrivacyError("a declared total must be from 0 to 2^62")
                public = ("total",)
            case _:
                raise PrivacyError("the total is Bought or Declared; make a Mechanism by its recipe")
        claim = self.claim(domain, unit, epsilon, DiscreteLaplace, public)
        dense(self.name, domain.size)
        cost = transform.identity_cost(domain.size, unit.change)
        noise = DiscreteLaplace(scale_of(unit, cost, claim.epsilon * (1 - share)))
        bought = None
        if share:
            # the total changes by c at most, moved records or not
            bought = DiscreteLaplace(unit.most / (claim.epsilon * share))
            if bought.scale > MAX_SCALE:
                raise PrivacyError(TOO_SMALL)
        if public:
            claim = claim.assuming(SAME_TOTAL)
        return ShapedRun(self, domain, claim, cost, noise, bought)

    def _sound(self) -> None:
        """What a projection will need is whole before anything is charged: its parameter, the table it is tuned on."""
        if self.parameter is not None:
            self.rule.check(self.parameter)
        if self.tuning is None:
            return
        if self.parameter is not None:
            raise PrivacyError('a table to tune on goes with the parameter "auto"')
        rounded = np.rint(self.tuning.values)
        if not rounded.any() or rounded.sum() >= 1 << 62:
            raise DomainError(
                f"the public table {self.tuning.name!r} is 0 in every cell once rounded, or sums to 2^62 or more: "
                "tunes nothing"
            )


SAME_TOTAL = "one record changes its cell, none enters or leaves: the declared total is the same in both tables"


@dataclass(frozen=True, eq=False)
class ShapedRun(Run):
    """`bought` is the noise of a bought total; None: the total is declared."""

    mechanism: Shaped
    bought: DiscreteLaplace | None

    @property
    def signed(self) -> bool:  # type: ignore[override]
        return self.mechanism.rule.signed

    @property
    def bias(self) -> Bias:  # type: ignore[override]
        return Bias.PULLED if self.signed else Bias.PROJECTED

    def arguments(self) -> dict[str, Any]:
        return {} if self.mechanism.tuning is None else {"tune_on": self.mechanism.tuning.name}

    def lawful(self, values: NDArray[Any]) -> bool:
        total = self.mechanism.total
        met = not isinstance(total, Declared) or sum(values.tolist()) == min(total.total, LARGEST)
        return super().lawful(values) and met

    def bars(self, measurements: Measurements | None) -> NoBars:
        return NoBars(f"{self.mechanism.name} with these options publishes no measurements")

    def further(self) -> dict[str, Any]:
        recipe, words = self.mechanism, dict[str, Any]()
        words["options"] = dict(recipe.stored()["options"])
        if isinstance(recipe.total, Bought) and self.bought is not None:
            most = self.guarantee.unit.most
            parts = (("identity", most * self.cost, self.noise), ("total", Fraction(most), self.bought))
            words["mechanisms"] = [
                {"query": query, "sensitivity": decimal(sensitivity), "scale": decimal(noise.scale),
                 "recipe": recipe.name, "noise": noise.name}
                for query, sensitivity, noise in parts
            ]  # fmt: skip
        if recipe.tuning is not None:
            source, charged = f"public table {recipe.tuning.name}, declared", "it does not come from this data"
        elif recipe.parameter is None:
            source, charged = "parametric bootstrap from the projected noisy table", "no confidential number is read"
        else:
            return words
        return words | {"tuning": {"source": source, "charged": f"nothing: {charged}"}}

    def draw(self, cells: Int, values: Int, streams: Streams, threads: int) -> Drawn:
        places, noisy = noisy_cells(self, cells, values, streams, threads)
        total = min(self._total(values, streams), LARGEST)
        tally, parameter = Tally.of(noisy), self.mechanism.parameter
        if parameter is None:
            parameter = self._tuned(places, noisy, tally, total, streams, threads)
        at, made = self.mechanism.rule.shape(tally, total, parameter).apply(noisy)
        return Drawn(*kept(places[at], made))

    def _total(self, values: Int, streams: Streams) -> int:
        match self.mechanism.total:
            case Declared(total):
                return total
            case Bought():
                assert self.bought is not None
                noise = int(self.bought.sampler.draw(streams.open("total"), 1)[0])
                return max(int(values.sum()) + noise, 0)

    def _tuned(self, cells: Int, noisy: Int, tally: Tally, total: int, streams: Streams, threads: int) -> Fraction:
        """The parameter that does best on simulated noise over the projected noisy table, or over a public one."""
        rule, plain = self.mechanism.rule, RULES["neg l2"]
        replicates = max(1, min(16, (1 << 17) // noisy.size))
        draws = [partial(self.noise.draw, streams, noisy.size, threads, "bootstrap", i) for i in range(replicates)]
        if self.mechanism.tuning is None:
            base = plain.shape(tally, total, Fraction(1)).apply(noisy)
            if rule is not plain:  # a lasso is judged by the whole map it should leave: start from a sharper projection
                gamma = tune(base, draws, total, plain, plain.candidates(self.noise.scale))
                base = plain.shape(tally, total, gamma).apply(noisy)
        else:
            known = np.rint(self.mechanism.tuning.on(cells)).astype(np.int64)
            base = np.flatnonzero(known), known[known > 0]
            total = int(known.sum())
        return tune(base, draws, total, rule, rule.candidates(self.noise.scale))

    def errors(self, sizes: Sequence[int] = ()) -> NoForm:
        return NoForm(f"no closed form for {self.mechanism.name}: its error depends on the table")

    def blocks(self) -> None:
        return None
