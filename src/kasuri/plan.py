"""Expected error before any data is touched: closed forms for sums over blocks of the tree."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from kasuri.errors import DomainError
from kasuri.mechanism import Mechanism, resolve
from kasuri.noise import laplace_variance
from kasuri.schema import Domain, Unit
from kasuri.transform import node_variance


@dataclass(frozen=True)
class BlockError:
    """Root mean square error of the sum over one block of `cells` cells: of the release if `exact`, else of its noise
    before refinement. Refinement lowers it on average over a map, most for small and empty cells, and raises it for
    single large cells, which it pulls down: no bound for any one cell."""

    cells: int
    rmse: float
    exact: bool


def block_errors(mechanism: Mechanism, domain: Domain, unit: Unit, epsilon: object) -> list[BlockError]:
    """Error of block sums, one entry per height of the tree from one cell to the whole table.

    Trees of k levels: Var = v (4^(l-k) + sum_{i=l+1..k} 4^(l-i)) for a block of 2^l cells, v the variance of one
    coefficient's noise; it is (2/3) lambda^2 (1 + 2/q^2) with q = 2^(k-l) [Terada2015, eq. 51]. Cells by themselves:
    Var = 2^l v. Standard decomposition: the product of the axes' factors.
    """
    run = resolve(mechanism, domain, unit, epsilon)
    if mechanism.refine not in ("none", "inverse", "topdown") or run.strategy is not None:
        raise DomainError(f"no closed form for {mechanism.name}: its error depends on the table")
    v = laplace_variance(run.scale, mechanism.noise)
    if mechanism.transform == "identity":
        steps = (domain.size - 1).bit_length()
        return [BlockError(1 << at, sqrt(v * (1 << at)), True) for at in range(steps + 1) if 1 << at <= domain.size]
    if mechanism.transform == "nominal":
        raise DomainError("no closed form for the nominal transform: its noise differs from node to node")
    if len(run.trees) > 1:
        depths = [tree.depth for tree in run.trees]
        if len(set(depths)) > 1:
            raise DomainError("closed forms of the standard decomposition need axes of one depth")
        factors = [
            (1 << (at * len(depths)), node_variance(depths[0] - at) ** len(depths)) for at in range(depths[0] + 1)
        ]
    else:
        k = run.trees[0].depth
        factors = [(1 << at, node_variance(k - at)) for at in range(k + 1)]
    exact = mechanism.refine == "inverse" and all(tree.whole for tree in run.trees)
    return [BlockError(cells, sqrt(v * factor), exact) for cells, factor in factors]
