"""Recipes that measure each cell by itself."""

from __future__ import annotations

from kasuri.mechanism import Mechanism


def laplace() -> Mechanism:
    """Every cell plus floating-point Laplace noise of scale c/epsilon: the papers' baseline [Dwork2006].

    Privacy
    -------
    Neighbours: tables that differ by one unit. Sensitivity: c (add-remove), 2c (replace), c = counts a unit adds.
    Guarantee: epsilon-DP in exact arithmetic. Proof: docs/proofs/laplace.md. Public: domain, mask.
    Assumes: idealised numerics (floating-point noise can leak; use `geometric` for real data).

    Cost: O(n). References: [Dwork2006], [Terada2015, eq. 7].
    """
    return Mechanism("laplace", "identity", "float Laplace", "none", "docs/proofs/laplace.md")


def geometric() -> Mechanism:
    """Every cell plus exact discrete Laplace noise of scale c/epsilon (the geometric mechanism); may be negative.

    Privacy
    -------
    Neighbours: tables that differ by one unit. Sensitivity: c (add-remove), 2c (replace), c = counts a unit adds.
    Guarantee: epsilon-DP, exactly. Proof: docs/proofs/geometric.md. Public: domain, mask. Assumes: a good keystream.

    Cost: O(n). References: [Ghosh2012].
    """
    return Mechanism("geometric", "identity", "discrete Laplace", "none", "docs/proofs/geometric.md")
