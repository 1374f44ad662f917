"""Expected error before any data is touched: closed forms for sums over blocks of the tree."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import exp, sqrt

from kasuri.errors import DomainError
from kasuri.mechanism import Mechanism, resolve
from kasuri.schema import Domain, Unit


@dataclass(frozen=True)
class BlockError:
    """Root mean square error of the sum over one block of `cells` cells; `exact`, or an upper bound."""

    cells: int
    rmse: float
    exact: bool


def noise_variance(scale: Fraction) -> float:
    """Variance of discrete Laplace noise, 2a/(1-a)^2 with a = exp(-1/scale)."""
    a = exp(-1 / scale)
    return 2 * a / (1 - a) ** 2


def block_errors(mechanism: Mechanism, domain: Domain, unit: Unit, epsilon: object) -> list[BlockError]:
    """Error of block sums, one entry per height of the tree from one cell to the whole table.

    Trees of k levels: Var = v (4^(l-k) + sum_{i=l+1..k} 4^(l-i)) for a block of 2^l cells, v the variance of one
    coefficient's noise; it is (2/3) lambda^2 (1 + 2/q^2) with q = 2^(k-l) [Terada2015, eq. 51]. Refinement only lowers
    it (an upper bound). Cells by themselves: Var = 2^l v. Standard decomposition: the product of the axes' factors.
    """
    run = resolve(mechanism, domain, unit, epsilon)
    v = 2 * float(run.scale) ** 2 if mechanism.noise == "float Laplace" else noise_variance(run.scale)
    if mechanism.transform == "identity":
        steps = (domain.size - 1).bit_length()
        return [BlockError(1 << at, sqrt(v * (1 << at)), True) for at in range(steps + 1) if 1 << at <= domain.size]
    if mechanism.transform == "nominal":
        raise DomainError("no closed form for the nominal transform: its noise differs from node to node")
    if len(run.trees) > 1:
        depths = [tree.depth for tree in run.trees]
        if len(set(depths)) > 1:
            raise DomainError("closed forms of the standard decomposition need axes of one depth")
        factors = [(1 << (at * len(depths)), _shrink(depths[0], at) ** len(depths)) for at in range(depths[0] + 1)]
    else:
        k = run.trees[0].depth
        factors = [(1 << at, _shrink(k, at)) for at in range(k + 1)]
    exact = mechanism.refine == "inverse" and all(tree.whole for tree in run.trees)
    return [BlockError(cells, sqrt(v * factor), exact) for cells, factor in factors]


def _shrink(k: int, at: int) -> float:
    """4^(l-k) + sum_{i=l+1..k} 4^(l-i), l = at."""
    return 4.0 ** (at - k) + sum(4.0 ** (at - i) for i in range(at + 1, k + 1))
