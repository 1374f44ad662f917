"""Recipes of other papers, to compare with: hierarchy, Fourier, matrix mechanism, thresholded cells."""

from __future__ import annotations

from typing import Literal

from kasuri import strategy as matrices
from kasuri.errors import DomainError
from kasuri.mechanism import Mechanism
from kasuri.public import PublicMatrix
from kasuri.strategy import Matrix


def hierarchy(order: Literal["1d", "morton", "hierarchy"] = "1d") -> Mechanism:
    """Noisy counts of every node of a tree, made consistent by least squares; may be negative [Hay2010].

    order "1d": a binary tree over the cells row by row, as in the paper; "morton": squares of a mesh (a quadtree);
    "hierarchy": nominal axes along their public trees. Every level has the same share of epsilon. Nothing is made
    non-negative: `refined_tree` does that.

    Privacy
    -------
    Neighbours: tables that differ by one unit. Sensitivity: each level's counts change by c in all (replace: 2c), c =
    counts a unit adds; L levels: scale L c / epsilon. Guarantee: epsilon-DP, exactly. Proof: docs/proofs/hierarchy.md.
    Public: domain, mask, order. Assumes: a good keystream.

    Cost: O(n). References: [Hay2010].
    """
    if order not in ("1d", "morton", "hierarchy"):
        raise DomainError(f'hierarchy: order {order!r} is not known; use "1d", "morton" or "hierarchy"')
    return Mechanism(
        "hierarchy", "counts", "discrete Laplace", "consistency", "docs/proofs/hierarchy.md",
        order=order, descent="dense", shares="u4",
    )  # fmt: skip


def fourier(ways: int = 1) -> Mechanism:
    """Noisy Fourier (Walsh) coefficients of all tables over `ways` dimensions, then the nearest non-negative table.

    A linear program finds the table x >= 0 whose coefficients are nearest to the noisy ones (largest distance), rounded
    to whole numbers. Only the tables over at most `ways` dimensions are measured: anything finer is made up. Up to 1024
    cells, each dimension padded to a power of two.

    Privacy
    -------
    Neighbours: tables that differ by one unit. Sensitivity: c times the number of coefficients, each of which a count
    moves by 1 (add-remove); c times the largest distance of two columns of the measured matrix (replace).
    Guarantee: epsilon-DP, exactly. Proof: docs/proofs/fourier.md. Public: domain, mask, ways.
    Assumes: a good keystream.

    Cost: a linear program of n variables. References: [Barak2007].
    """
    if not isinstance(ways, int) or isinstance(ways, bool) or ways < 1:
        raise DomainError("fourier: ways is a whole number of dimensions, from 1 on")
    return Mechanism(
        "fourier", "fourier", "discrete Laplace", "linear program", "docs/proofs/fourier.md",
        options=(("ways", str(ways)),),
    )  # fmt: skip


def matrix(
    strategy: str | Matrix | PublicMatrix = "optimised", workload: str | Matrix | PublicMatrix | None = None
) -> Mechanism:
    """Noisy answers of a strategy matrix, inverted by least squares; may be negative [Li2010].

    strategy: "optimised" for `workload`, or a matrix of whole numbers or Fractions with one column per cell. workload,
    only of an optimised strategy: "cells", "prefix", "ranges" (the default; of every dimension, combined: all
    rectangles of a map), or such a matrix. A matrix is public, like the recipe; a PublicMatrix also says its name. Up
    to 1024 cells.

    Privacy
    -------
    Neighbours: tables that differ by one unit. Sensitivity: c times the largest column's L1 norm (replace: c times the
    largest L1 distance of two columns), of the whole-number matrix that is measured. Guarantee: epsilon-DP, exactly.
    Proof: docs/proofs/matrix.md. Public: domain, mask, strategy, workload. Assumes: a good keystream.

    Cost: O(n^3); optimising a few seconds at 256 cells. References: [Li2010], [McKenna2018].
    """
    if isinstance(strategy, str) and strategy != "optimised":
        raise DomainError(f'matrix: strategy {strategy!r} is not known; use "optimised" or a matrix of whole numbers')
    if not isinstance(strategy, str):
        if workload is not None:
            raise DomainError("matrix: a workload is what a strategy is optimised for; give one of them")
        options = _written(strategy, "strategy")
    else:
        wanted = "ranges" if workload is None else workload
        if isinstance(wanted, str) and wanted not in matrices.WORKLOADS:
            raise DomainError(
                f"matrix: workload {wanted!r} is not known; use {', '.join(matrices.WORKLOADS)} or a matrix"
            )
        options = [("strategy", strategy)]
        options += [("workload", wanted)] if isinstance(wanted, str) else _written(wanted, "workload")
    return Mechanism(
        "matrix", "matrix", "discrete Laplace", "inverse", "docs/proofs/matrix.md",
        options=tuple(options),
    )  # fmt: skip


def _written(given: Matrix | PublicMatrix, use: str) -> list[tuple[str, str]]:
    rows = given.rows if isinstance(given, PublicMatrix) else given
    named = [("public", given.name)] if isinstance(given, PublicMatrix) else []
    return [(use, matrices.write(rows, f"the {use}")), *named]


def sparse(threshold: int | Literal["auto"] = "auto") -> Mechanism:
    """Noisy cells of at least `threshold`, all others 0: for tables with far more cells than people [Cormode2012].

    threshold "auto": so high that at most one empty cell passes on average, log(cells) times the noise scale. Empty
    cells are not drawn one by one: the cost follows what passes, at any number of cells. At most 2^26 empty cells may
    be expected to pass, 2^16 where fewer than one in 2^24 does (each of those takes some milliseconds).

    Privacy
    -------
    Neighbours: tables that differ by one unit. Sensitivity: c (add-remove), 2c (replace), c = counts a unit adds.
    Guarantee: epsilon-DP, exactly: equal in law to `geometric` with small cells dropped. Proof: docs/proofs/sparse.md.
    Public: domain, mask, threshold. Assumes: a good keystream; run time depends on the data (SECURITY.md).

    Cost: O(m + passing cells) for m records. References: [Cormode2012].
    """
    if threshold != "auto" and (not isinstance(threshold, int) or isinstance(threshold, bool) or threshold < 1):
        raise DomainError('sparse: threshold is "auto" or a whole number from 1 on')
    return Mechanism(
        "sparse", "identity", "discrete Laplace", "threshold", "docs/proofs/sparse.md",
        descent="jump", options=(("threshold", str(threshold)),),
    )  # fmt: skip
