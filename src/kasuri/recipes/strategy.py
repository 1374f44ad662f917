"""Whole-number matrices to be measured on small tables: given ones, Fourier rows, and ones optimised for a workload.

A strategy is an integer matrix over the possible cells: its sensitivity is computed from the very numbers that are
measured, exactly, and the noise on them is exact. Nothing here sees data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from hashlib import sha256
from math import gcd, lcm
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.arrays import Float, Int
from kasuri.errors import DomainError, NumericsError
from kasuri.schema import Change, Domain

Matrix = Sequence[Sequence[object]] | NDArray[Any]
"""Rows of whole numbers or Fractions."""

MAX_CELLS = 1 << 10
"""Most cells (of Fourier: padded) a measured matrix may have."""
MAX_ENTRIES = 1 << 20
LARGEST = (1 << 31) - 1
"""Largest entry of a measured matrix: sums of distances of its columns then stay far below 64 bits."""
STEPS = 1 << 10
"""An optimised strategy has columns of L1 norm about this many: how finely it is rounded to whole numbers."""
WORKLOADS = ("cells", "prefix", "ranges")


@dataclass(frozen=True, eq=False)
class Strategy:
    """`rows` (m x cells) whole numbers; `cells` are the possible cells its columns stand for."""

    rows: Int
    cells: Int

    def __post_init__(self) -> None:
        # `cost` sums in 64 bits: a sum that wraps would claim too small a sensitivity
        if self.rows.size and (self.rows.min() < -LARGEST or self.rows.max() > LARGEST or len(self.rows) >= 1 << 30):
            raise DomainError(f"a measured matrix has entries of at most {LARGEST}, and fewer than 2^30 rows")

    def cost(self, change: Change) -> Fraction:
        """Largest L1 change of the measured numbers by one count: the largest column (add-remove), or the largest
        distance of two columns, or a column itself where a count drops out (replace)."""
        columns = self.rows.T
        most = int(np.abs(columns).sum(axis=1).max())
        if change == "replace":
            for at in range(1, len(columns)):
                most = max(most, int(np.abs(columns[:at] - columns[at]).sum(axis=1).max()))
        return Fraction(most)


def parse(text: str) -> Int:
    """Rows separated by ";", whole numbers by blanks: the way a Mechanism writes a matrix; within the bounds of
    `write`, whoever wrote it."""
    try:
        rows = [[int(entry) for entry in row.split()] for row in text.split(";")]
    except ValueError:
        raise DomainError('a matrix is written as whole numbers separated by blanks, its rows by ";"') from None
    entries = [entry for row in rows for entry in row]
    if len({len(row) for row in rows}) != 1 or not entries or len(entries) > MAX_ENTRIES:
        raise DomainError(f"a matrix must have rows of one length, and at most {MAX_ENTRIES} entries")
    if max(abs(entry) for entry in entries) > LARGEST:
        raise DomainError(f"a matrix must have entries of at most {LARGEST}")
    return np.array(rows, dtype=np.int64)


def write(matrix: object, what: str) -> str:
    """A matrix of whole numbers or Fractions as whole numbers (all entries by one factor), written out."""
    rows = matrix.tolist() if isinstance(matrix, np.ndarray) else matrix
    if not isinstance(rows, (list, tuple)) or not rows or not all(isinstance(row, (list, tuple)) for row in rows):
        raise DomainError(f"{what} must be a matrix: rows of whole numbers or Fractions, one column per cell")
    entries = [entry for row in rows for entry in row]
    if any(isinstance(entry, bool) or not isinstance(entry, (int, Fraction)) for entry in entries):
        raise DomainError(
            f"{what} must hold whole numbers or Fractions: a float has no exact sensitivity; round it first"
        )
    if len({len(row) for row in rows}) != 1 or not rows[0] or len(entries) > MAX_ENTRIES:
        raise DomainError(f"{what} must have rows of one length, and at most {MAX_ENTRIES} entries")
    if not any(entries):
        raise DomainError(f"{what} holds nothing but 0")
    factor = lcm(*(Fraction(entry).denominator for entry in entries))
    whole = [[int(entry * factor) for entry in row] for row in rows]
    common = gcd(*(entry for row in whole for entry in row))
    if max(abs(entry) for row in whole for entry in row) // common > LARGEST:
        raise DomainError(f"{what}: entries differ by more than a factor 2^31")
    return ";".join(" ".join(str(entry // common) for entry in row) for row in whole)


def fingerprint(text: str) -> str:
    """A digest of a matrix as `write` writes it, to know it again by."""
    return f"sha256:{sha256(text.encode()).hexdigest()}"


def given(domain: Domain, text: str) -> Strategy:
    """A strategy written out; the columns of impossible cells are dropped."""
    rows = parse(text)
    if rows.shape[1] != domain.size:
        raise DomainError(f"the strategy has {rows.shape[1]} columns; the table has {domain.size} cells")
    cells = possible_cells(domain)
    rows = rows[:, cells]
    rows = rows[np.any(rows != 0, axis=1)]
    if rows.size == 0 or np.linalg.matrix_rank(rows.astype(np.float64)) < cells.size:
        raise DomainError("the strategy does not determine every cell: its columns must be linearly independent")
    return Strategy(rows, cells)


def possible_cells(domain: Domain) -> Int:
    if domain.size > MAX_CELLS:
        raise DomainError(
            f"a measured matrix takes at most {MAX_CELLS} cells; this table has {domain.size}. "
            "hierarchy(), refined_tree() and haar_topdown() take large tables"
        )
    return np.flatnonzero(domain.possible_dense().ravel())


def gram(domain: Domain, workload: str) -> Float:
    """W^T W over all cells: "cells"; "prefix" and "ranges" of every dimension, combined over the dimensions (ranges
    of a map: all rectangles); or a matrix written out."""
    if workload not in WORKLOADS:
        rows = parse(workload).astype(np.float64)
        if rows.shape[1] != domain.size:
            raise DomainError(f"the workload has {rows.shape[1]} columns; the table has {domain.size} cells")
        return rows.T @ rows
    out = np.ones((1, 1))
    for size in domain.shape:
        i = np.arange(size)
        low, high = np.minimum.outer(i, i), np.maximum.outer(i, i)
        by_name = {
            "cells": np.eye(size),
            "prefix": size - high,  # prefixes that hold both cells
            "ranges": (low + 1.0) * (size - high),
        }
        out = np.kron(out, by_name[workload])
    return out


@lru_cache(maxsize=8)
def optimised(domain: Domain, workload: str) -> Strategy:
    """A strategy of small total variance for a workload, rounded to whole numbers.

    Among the matrices A = [D; Theta D], Theta >= 0 with p rows and D = diag(1 / (1 + column sums)), whose columns all
    have L1 norm 1, minimise tr((A^T A)^-1 W^T W) [McKenna2018, p-identity], a form of [Li2010]'s problem. With
    K = (I + Theta^T Theta)^-1, s = 1 + column sums and S = diag(s) W^T W diag(s) the loss is tr(K S) and its gradient
    -2 Theta K S K + 1 (2 (W^T W * K) s)^T. Rounding comes last: the sensitivity is that of the rounded matrix.
    Public and deterministic: a function of the domain and the workload.
    """
    from scipy.optimize import minimize

    cells = possible_cells(domain)
    wanted = gram(domain, workload)[np.ix_(cells, cells)]
    n, p = cells.size, max(1, cells.size // 16)
    if not wanted.any():
        raise DomainError("the workload asks nothing about the possible cells: all its entries there are 0")
    wanted = wanted / np.trace(wanted)

    def loss(flat: Float) -> tuple[float, Float]:
        theta = flat.reshape(p, n)
        s = 1 + theta.sum(axis=0)
        inner = np.linalg.inv(np.eye(p) + theta @ theta.T)  # Woodbury: K = I - Theta^T inner Theta
        k = np.eye(n) - theta.T @ inner @ theta
        weighted = wanted * np.outer(s, s)
        grad = -2 * (theta @ k @ weighted) @ k + 2 * (wanted * k) @ s
        return float((k * weighted).sum()), grad.ravel()

    start = np.random.default_rng(0).random(p * n)
    found: Any = minimize(
        loss, start, jac=True, method="L-BFGS-B", bounds=[(0, None)] * (p * n), options={"maxiter": 150}
    )
    theta = found.x.reshape(p, n) if found.fun < 1 else np.zeros((0, n))  # Theta = 0, the cells themselves, has loss 1
    matrix = np.vstack([np.eye(n), theta]) / (1 + theta.sum(axis=0))
    rows = np.rint(STEPS * matrix).astype(np.int64) if theta.size else np.eye(n, dtype=np.int64)
    rows = rows[np.any(rows != 0, axis=1)]
    if np.linalg.matrix_rank(rows.astype(np.float64)) < n:
        raise NumericsError("the optimised strategy lost a cell when rounded; give a strategy, or use hierarchy()")
    return Strategy(rows, cells)


def fourier(domain: Domain, ways: int) -> Strategy:
    """Walsh rows (-1)^(alpha . x) over the bits of every dimension, for all alpha that touch at most `ways` dimensions:
    together they determine every table over `ways` dimensions [Barak2007]. Padding cells stay out of the columns."""
    bits = [(size - 1).bit_length() for size in domain.shape]
    if 1 << sum(bits) > MAX_CELLS:
        raise DomainError(f"fourier takes at most {MAX_CELLS} cells, padded to powers of two; this table has "
                          f"{1 << sum(bits)}")  # fmt: skip
    if not 1 <= ways <= len(bits):
        raise DomainError(f"fourier: ways={ways} must lie from 1 to the {len(bits)} dimensions of the table")
    cells = possible_cells(domain)
    rows = np.ones((1, cells.size), dtype=np.int64)
    touched = np.zeros(1, dtype=np.int64)
    for size, index in zip(bits, domain.unravel(cells), strict=True):
        alpha = np.arange(1 << size)
        signs = 1 - 2 * (np.bitwise_count(alpha[:, None] & index) & 1).astype(np.int64)
        rows = (rows[:, None, :] * signs).reshape(-1, cells.size)
        touched = (touched[:, None] + (alpha > 0)).ravel()
        rows, touched = rows[touched <= ways], touched[touched <= ways]
    return Strategy(rows, cells)
