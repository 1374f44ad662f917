"""How privacy losses add up: sums, maxima over a public partition, zCDP, and privacy-loss distributions.

A recipe declares its privacy-loss pair as `Losses`: independent parts, each of them epsilon-DP. Randomised response
dominates every epsilon-DP mechanism [Kairouz2015], and one discrete Laplace draw of scale s whose number moves by 1
IS randomised response of 1/s (its loss is +1/s or -1/s, nothing between). So a series costs what as many answers of
randomised response cost, and that law is binomial: no Fourier transform, nothing to cancel, an upper bound that is
tight to the last digit. Proof: docs/proofs/composition.md.
"""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np

from kasuri.errors import PrivacyError
from kasuri.privacy import Guarantee, exact
from kasuri.schema import Part

Losses = tuple[tuple[Fraction, int], ...]
"""((epsilon, how many), ...): independent parts of one release, each epsilon-DP; their sum is its pure epsilon."""

_GRID = 1 << 16  # points of the common grid where parts of several sizes meet
_TAIL = 1e-6  # share of delta given away to the far tails
_SLACK = 1e-9  # far above the rounding of some thousand positive additions
_DIGITS = 6  # a price is rounded up to this many decimals
MIN_DELTA = Fraction(1, 10**30)
MAX_PARTS = 10**9


def generic(epsilon: Fraction) -> Losses:
    """The pair of a mechanism of which nothing is known but that it is epsilon-DP."""
    return ((epsilon, 1),)


def repeated(losses: Losses, times: int) -> Losses:
    """The pair of `times` such releases."""
    return tuple((epsilon, count * times) for epsilon, count in losses)


def pld_epsilon(losses: Losses, delta: Fraction) -> Fraction:
    """Least epsilon (rounded up) for which all parts together are (epsilon, delta)-DP.

    With J_i ~ Binomial(n_i, 1 / (1 + e^-e_i)) the loss is L = sum_i e_i (2 J_i - n_i), and
    delta(epsilon) = E (1 - e^(epsilon - L))+. Parts of one size need no grid; of several sizes, each part's whole sum
    (not each draw) is rounded up once to a grid of 2^16 points, so the price of rounding is that of a few grid steps.

    Privacy
    -------
    Neighbours: as of the parts. Sensitivity: as of the parts. Guarantee: (epsilon, delta)-DP for the composition,
    adaptive choices included as long as the pairs were fixed beforehand. Proof: docs/proofs/composition.md.
    Public: the losses and delta. Assumes: nothing further (all sums are positive; rounding is outward).

    Cost: O(sqrt(n) * grid) for parts of several sizes, O(sqrt(n)) for one. References: [Kairouz2015], [Zhu2022].
    """
    parts, delta = gathered(losses, "epsilon"), small(delta)
    pure = sum((epsilon * count for epsilon, count in parts.items()), start=Fraction(0))
    tail = float(delta) * _TAIL / len(parts)
    pieces = [_binomial(float(epsilon), count, tail) for epsilon, count in parts.items()]
    base = sum(low for low, _, _ in pieces)
    if len(pieces) == 1:
        _, step, mass = pieces[0]
        width = step
    else:
        width = sum(step * (mass.size - 1) for _, step, mass in pieces) / _GRID
        grid = np.ones(1)
        for _, step, own in pieces:
            shifts = np.ceil(np.arange(own.size) * (step / width) - _SLACK).astype(np.int64)
            wider = np.zeros(grid.size + int(shifts[-1]))
            for shift, weight in zip(shifts.tolist(), own.tolist(), strict=True):
                wider[shift : shift + grid.size] += weight * grid
            grid = wider
        mass = grid
    loss = base + width * np.arange(mass.size)
    spare = float(delta) * (1 - 4 * _TAIL)  # the tails of every part, and rounding
    bound = least_epsilon(loss, mass, spare, float(pure), 60) * (1 + _SLACK) + len(pieces) * _SLACK * width
    return min(pure, Fraction(math.ceil(bound * 10**_DIGITS), 10**_DIGITS))


def gathered(parts: Losses, what: str) -> dict[Fraction, int]:
    """How often each part is there, all of them exact; PrivacyError for none or too many."""
    found: dict[Fraction, int] = {}
    for part, count in parts:
        own = exact(part, what)
        found[own] = found.get(own, 0) + count
    if not found or min(found.values()) < 1:
        raise PrivacyError("a privacy-loss pair needs at least one part, each counted at least once")
    if sum(found.values()) > MAX_PARTS:
        raise PrivacyError(f"{sum(found.values())} parts are too many to compose (at most {MAX_PARTS}); use pure sums")
    return found


def small(delta: Fraction) -> Fraction:
    """A delta for which a price can be computed."""
    delta = exact(delta, "delta")
    if not MIN_DELTA <= delta < 1:
        raise PrivacyError("delta must be at least 1e-30 and below 1")
    return delta


def least_epsilon(loss: Any, mass: Any, spare: float, most: float, rounds: int) -> float:
    """The least epsilon up to `most`, from above, at which losses with these masses exceed it by `spare` at most."""

    def too_much(epsilon: float) -> bool:
        above = loss > epsilon
        return float((mass[above] * -np.expm1(epsilon - loss[above])).sum()) > spare

    low, high = 0.0, most
    for _ in range(rounds):
        middle = (low + high) / 2
        low, high = (middle, high) if too_much(middle) else (low, middle)
    return high


def _binomial(epsilon: float, n: int, tail: float) -> tuple[float, float, Any]:
    """(lowest loss, step, masses) of n answers of randomised response: the middle of the law, each mass rounded up.

    By Hoeffding at most `tail` lies beyond either end. The masses are normalised to sum to 1 over the middle, so each
    is at least the true one; what lies below is dearer at the lowest point, where it is added; what lies above is
    paid from delta by the caller.
    """
    p = 1 / (1 + math.exp(-epsilon))
    reach = math.sqrt(n * math.log(1 / tail) / 2)
    low, high = max(0, math.floor(n * p - reach)), min(n, math.ceil(n * p + reach))
    j = np.arange(low, high, dtype=np.float64)
    logs = np.concatenate(([0.0], np.cumsum(np.log((n - j) / (j + 1)) + epsilon)))
    mass = np.exp(logs - logs.max())
    mass /= mass.sum()
    mass[0] += tail
    return epsilon * (2 * low - n), 2 * epsilon, mass


def zcdp_of_pure(epsilon: Fraction) -> Fraction:
    """epsilon-DP implies (epsilon^2 / 2)-zCDP [BunSteinke2016, prop. 1.4]."""
    return epsilon * epsilon / 2


def epsilon_of_zcdp(rho: Fraction, delta: Fraction) -> Fraction:
    """rho-zCDP implies (rho + 2 sqrt(rho ln(1/delta)), delta)-DP [BunSteinke2016, prop. 1.3]; rounded up."""
    rho, delta = exact(rho, "rho"), exact(delta, "delta")
    if delta >= 1:
        raise PrivacyError("delta must be below 1")
    with localcontext() as context:
        context.prec = 60 + len(str(rho.numerator // rho.denominator))
        context.rounding = ROUND_FLOOR
        least = Decimal(delta.numerator) / Decimal(delta.denominator)
        context.rounding = ROUND_CEILING
        most = Decimal(rho.numerator) / Decimal(rho.denominator)
        # ln and sqrt round half-even whatever the context says: the added digit makes them upper bounds
        log = -least.ln() + Decimal("1e-50")
        bound = most + 2 * ((most * log).sqrt() + Decimal("1e-50"))
        return Fraction(bound.quantize(Decimal(1).scaleb(-_DIGITS), rounding=ROUND_CEILING))


def compose(*guarantees: Guarantee) -> Guarantee:
    """All of them about the same data: epsilons, deltas and rhos add [Dwork2006]; unlike things are refused.

    A pure claim beside zCDP ones counts as (epsilon^2/2)-zCDP; an approximate one cannot be added to them.
    """
    first = _alike(guarantees)
    zcdp = [guarantee.rho for guarantee in guarantees if guarantee.rho is not None]
    rho = None
    if zcdp:
        loose = [guarantee for guarantee in guarantees if guarantee.rho is None]
        if any(guarantee.delta for guarantee in loose):
            raise PrivacyError("an (epsilon, delta) claim cannot be added to zCDP claims; convert those first")
        rho = sum(zcdp, start=Fraction(0)) + sum((zcdp_of_pure(g.epsilon) for g in loose), start=Fraction(0))
        deltas = {guarantee.delta for guarantee in guarantees if guarantee.rho is not None}
        delta = max(deltas)
        return _joined(first, guarantees, epsilon_of_zcdp(rho, delta), delta, rho, "zCDP composition [BunSteinke2016]")
    epsilon = sum((guarantee.epsilon for guarantee in guarantees), start=Fraction(0))
    delta = sum((guarantee.delta for guarantee in guarantees), start=Fraction(0))
    return _joined(first, guarantees, epsilon, delta, None, "sequential composition [Dwork2006]")


def parallel(*claims: tuple[Part, Guarantee]) -> Guarantee:
    """Parts of ONE table that was bounded once and then split by a public partition: (`counts.part`, claim), ...

    Claims about the same part add up. A unit is in at most max_cells parts, so the dearest max_cells of them add
    up; with one cell per unit that is the maximum. Only under add-remove: under replace a unit can move from one part
    to another.
    """
    if not all(isinstance(claim, tuple) and len(claim) == 2 and isinstance(claim[0], Part) for claim in claims):
        raise PrivacyError("parallel composition needs to know the parts: (counts.part, guarantee), ...")
    guarantees = tuple(guarantee for _, guarantee in claims)
    first = _alike(guarantees)
    if len({part.split for part, _ in claims}) > 1:
        raise PrivacyError("these are parts of several splits, so a unit can be in all of them; use compose()")
    if first.unit.change != "add-remove":
        raise PrivacyError("parallel composition holds under add-remove only; under replace use compose()")
    if any(guarantee.rho is not None or guarantee.delta for guarantee in guarantees):
        raise PrivacyError("parallel composition is for pure epsilon claims; use compose()")
    losses: dict[str, Fraction] = {}
    for part, guarantee in claims:
        losses[part.name] = losses.get(part.name, Fraction(0)) + guarantee.epsilon
    epsilon = dearest(list(losses.values()), first.unit.max_cells)
    return _joined(first, guarantees, epsilon, Fraction(0), None, "parallel composition [McSherry2009]")


def dearest(epsilons: list[Fraction], parts: int) -> Fraction:
    """What a unit loses that is in at most `parts` of these parts."""
    return sum(sorted(epsilons, reverse=True)[:parts], start=Fraction(0))


def _alike(guarantees: tuple[Guarantee, ...]) -> Guarantee:
    if not guarantees:
        raise PrivacyError("nothing to compose")
    first = guarantees[0]
    for other in guarantees[1:]:
        if other.unit != first.unit:
            raise PrivacyError(
                f"claims about different units cannot be combined: {first.unit.words()}; {other.unit.words()}"
            )
        if other.model != first.model:
            raise PrivacyError(f"claims of different models cannot be combined: {first.model}, {other.model}")
    if first.model == "none":
        raise PrivacyError("there is no privacy claim to combine (model none)")
    return first


def _joined(first: Guarantee, parts: tuple[Guarantee, ...], epsilon: Fraction, delta: Fraction,
            rho: Fraction | None, theorem: str) -> Guarantee:  # fmt: skip
    bases = dict.fromkeys(guarantee.basis for guarantee in parts)
    return replace(
        first,
        epsilon=epsilon,
        delta=delta,
        rho=rho,
        public=tuple(dict.fromkeys(fact for guarantee in parts for fact in guarantee.public)),
        assumes=tuple(dict.fromkeys(caveat for guarantee in parts for caveat in guarantee.assumes)),
        basis=f"{theorem} of {', '.join(bases)}",
    )
