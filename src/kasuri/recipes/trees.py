"""Recipes that measure counts of chosen levels of a tree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from kasuri.errors import PrivacyError, raise_faults
from kasuri.mechanism import PRESETS, Mechanism
from kasuri.privacy import decimal, exact


def refined_tree(
    shares: str | Mapping[int, object] = "even16",
    order: Literal["morton", "1d", "hierarchy"] = "morton",
    *,
    interleave: tuple[str, ...] = (),
) -> Mechanism:
    """Noisy counts of chosen levels of a tree, joined by least squares, refined to non-negative integers that add up.

    shares: which heights of the tree are measured (0: cells, l: squares of 2^l x 2^l cells of a mesh), with what part
    of epsilon. "u4": every height equally; "even16": every second height from the cells, equally; "tilt16": the same
    heights, 0.40 on the cells and the rest equally; or {height: "exact decimal"}, height 0 among them, summing to 1.
    order "hierarchy" splits nominal axes along their public tree. Only nodes that noise left positive are descended:
    the cost follows them.

    Privacy
    -------
    Neighbours: tables that differ by one unit. Sensitivity: each measured level's counts change by c in all (replace:
    2c), c = counts a unit adds. Guarantee: epsilon-DP, exactly: level l alone is (share_l epsilon)-DP, and they add up.
    Proof: docs/proofs/refined_tree.md. Public: domain, mask, order, shares. Assumes: a good keystream; run time depends
    on the data (SECURITY.md).

    Cost: O(m + drawn nodes) for m records. References: [Hay2010], [Terada2015].
    """
    faults = []
    given: str | tuple[tuple[int, str], ...]
    if isinstance(shares, Mapping):
        if any(not isinstance(height, int) or isinstance(height, bool) or height < 0 for height in shares):
            faults.append("refined_tree: heights are whole numbers from 0 (cells) up")
        exacts = {height: exact(share, "a share") for height, share in shares.items()}
        if sum(exacts.values()) != 1 or 0 not in exacts:
            faults.append("refined_tree: shares must include height 0 and sum to exactly 1")
        given = tuple(sorted((height, decimal(share)) for height, share in exacts.items()))
    else:
        given = shares
        if shares not in PRESETS:
            faults.append(f"refined_tree: shares {shares!r} are not known; use {', '.join(PRESETS)} or a mapping")
    if order not in ("morton", "1d", "hierarchy"):
        faults.append(f'refined_tree: order {order!r} is not known; use "morton", "1d" or "hierarchy"')
    if interleave and order != "morton":
        faults.append("refined_tree: interleave needs order='morton'")
    raise_faults(PrivacyError, faults)
    return Mechanism(
        "refined_tree",
        "counts",
        "discrete Laplace",
        "least squares",
        "docs/proofs/refined_tree.md",
        order=order,
        interleave=tuple(interleave),
        descent="plain",
        shares=given,
    )
