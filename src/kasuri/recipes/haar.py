"""Recipes that measure sums and differences along a tree (Haar wavelets)."""

from __future__ import annotations

from typing import Literal

from kasuri.errors import DomainError, raise_faults
from kasuri.mechanism import Mechanism


def privelet(order: Literal["1d", "2d", "morton"] = "morton") -> Mechanism:
    """Sum-difference (Haar) coefficients plus exact noise, inverted; no refinement, cells may be negative [Xiao2011].

    order "1d": the cells row by row; "morton": along the Morton curve; "2d": standard decomposition, axis by axis.

    Privacy
    -------
    Neighbours: tables that differ by one unit. Sensitivity: c times the cost of the tree (1 + k add-remove, 2k
    replace for 2^k cells); "2d": c times the product over axes (add-remove).
    Guarantee: epsilon-DP, exactly. Proof: docs/proofs/privelet.md. Public: domain, mask. Assumes: a good keystream.

    Cost: O(n). References: [Xiao2011], [Terada2015, sec. 5.3].
    """
    if order not in ("1d", "2d", "morton"):
        raise DomainError(f'privelet: order {order!r} is not known; use "1d", "2d" or "morton"')
    kind: Literal["haar_nd", "sum_difference"] = "haar_nd" if order == "2d" else "sum_difference"
    return Mechanism("privelet", kind, "discrete Laplace", "inverse", "docs/proofs/privelet.md", order=order)


def haar_topdown(
    order: Literal["morton", "1d", "jis"] = "morton",
    transform: Literal["sum_difference", "haar", "nominal"] = "sum_difference",
    *,
    interleave: tuple[str, ...] = (),
    descent: Literal["auto", "dense", "plain", "jump"] = "auto",
) -> Mechanism:
    """Terada et al.: noisy sums and differences along a tree, refined from the top to non-negative numbers that add up.

    transform "sum_difference": exact integers. "haar": the paper's floating-point form, dense, for reproduction.
    "nominal": a nominal axis is split along its public tree, any fan-outs. order "jis" splits a mesh along the standard
    grid (80 km, 10 km, 1 km, 500 m, ...) with the nominal transform, for users whose areas are the 10 km mesh.
    `interleave` mixes the bits of the named
    axes. descent "plain" draws every node of positive refined sum and publishes its measurements; "jump" passes whole
    levels at once in empty parts (cost follows the output, not the tree's height) and publishes none; "dense" is T1,
    every coefficient; "auto" is plain up to 2^24 leaves, jump above.

    Privacy
    -------
    Neighbours: tables that differ by one unit. Sensitivity: c times the most measured coefficients on a possible
    cell's path, root included (1 + k for a full binary tree; replace: 2k for k >= 1, 1 for one cell).
    Guarantee: epsilon-DP, exactly ("haar": with idealised numerics). Proof: docs/proofs/haar_topdown.md.
    Public: domain, mask, order. Assumes: a good keystream; run time depends on the data (SECURITY.md).

    Cost: O(m + outputs) with jumps, O(m + outputs * k) plain, O(n) dense; m records, n cells, k levels.
    References: [Terada2015, sec. 4.2; eq. 25, not 38-39], [JP6310345B2, eq. 33-36].
    """
    faults = []
    if order not in ("morton", "1d", "jis"):
        faults.append(f'haar_topdown: order {order!r} is not known; use "morton", "1d" or "jis"')
    if order == "jis":
        if transform == "haar":
            faults.append("haar_topdown: order='jis' has fan-outs above two; transform='haar' is binary")
        transform = "nominal"
    if transform not in ("sum_difference", "haar", "nominal"):
        faults.append(f'haar_topdown: transform {transform!r} is not known; use "sum_difference", "haar" or "nominal"')
    if descent not in ("auto", "dense", "plain", "jump"):
        faults.append(f'haar_topdown: descent {descent!r} is not known; use "auto", "dense", "plain" or "jump"')
    if transform != "sum_difference" and descent != "auto":
        faults.append(f'haar_topdown: descent is a choice of "sum_difference" only, not of {transform!r}')
    if (order == "1d" or transform == "nominal") and interleave:
        faults.append("haar_topdown: interleave needs order='morton' and a binary transform")
    if transform == "nominal" and order == "1d":
        faults.append("haar_topdown: the nominal transform follows the axes, not order='1d'")
    raise_faults(DomainError, faults)
    return Mechanism(
        "haar_topdown",
        transform,
        "float Laplace" if transform == "haar" else "discrete Laplace",
        "topdown",
        "docs/proofs/haar_topdown.md",
        order=order,
        interleave=tuple(interleave),
        descent="dense" if transform == "haar" else "plain" if transform == "nominal" else descent,
    )
