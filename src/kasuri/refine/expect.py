"""What the sums around a cell say about it: an expectation by proportional fitting, and the prior that uses it.

In a table of several axes a cell's row, column and block tell more than its neighbours: trips between two towns follow
what leaves the one and reaches the other. The sums need not be measured; any public partition whose sums the current
estimate tells well may serve. Pure post-processing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kasuri.arrays import Float, Int
from kasuri.refine import bayes
from kasuri.refine.mixture import mixture
from kasuri.trees.order import Order
from kasuri.trees.partition import Partition

SWEEPS = 3
EVIDENCE = 5e-3
"""The ratio prior is used where it explains the noisy cells better than the binned one by so much per cell, in log
likelihood: below it, it takes away what the bins gain (docs/proofs/woven_tree.md)."""
SAMPLE = 40_000


def labels(partitions: Sequence[Partition], tree: Order, keys: Int) -> tuple[Int, int]:
    """The group of every drawn cell per partition, all groups numbered one after the other (-1: none), and how many
    there are."""
    out, before = np.full((len(partitions), keys.size), -1, dtype=np.int64), 0
    for p, partition in enumerate(partitions):
        own = partition.of_keys(tree, keys)
        out[p] = np.where(own >= 0, own + before, -1)
        before += partition.groups
    return out, before


def expectation(x: Float, blocks: Int, totals: Float, groups: Int, count: int) -> Float:
    """Every drawn cell as its sums imply it: each block's total spread evenly, scaled SWEEPS times to the sums of x
    over the groups and to the totals; then without the cell's own part in its sums, or a large cell would predict
    itself."""
    from kasuri._kernels.fuse import fit_sums

    fan = np.diff(blocks)
    above = np.repeat(totals, fan)
    e = above / np.repeat(np.maximum(fan, 1), fan)
    sums = np.zeros(count)
    for own in groups:
        inside = own >= 0
        sums += np.bincount(own[inside], x[inside], count)
    fit_sums(groups, sums, blocks, totals, SWEEPS, e)
    e *= _without(x, above)
    for own in groups:
        inside = own >= 0
        e[inside] *= _without(x[inside], sums[own[inside]])
    return e


def _without(x: Float, total: Float) -> Float:
    return np.clip(1 - x / np.maximum(total, 1e-12), 0.0, 1.0)


def posteriors(u: Float, e: Float, near: Float, scale: float) -> tuple[Float, Float]:
    """Posterior mean and variance of every drawn cell, in units of the scale; e and `near` in the same units.

    Cells of like expectation share a prior. Where the noisy cells themselves say that they scatter about their
    expectation as about a public table, the mean of both posteriors.
    """
    mean, variance, plain = _binned(u, e, near)
    ratio_mean, ratio_variance, ratio = _about(u, e, scale)
    both = np.isfinite(plain) & np.isfinite(ratio)
    if not both.any() or float((ratio[both] - plain[both]).mean()) <= EVIDENCE:
        return mean, variance
    known = e > 0
    mean[known] = (mean[known] + ratio_mean) / 2
    variance[known] = (variance[known] + ratio_variance) / 2
    return mean, variance


def _binned(u: Float, e: Float, near: Float) -> tuple[Float, Float, Float]:
    """As `bayes.cell_posteriors`, and the log likelihood of every u up to TOP (NaN above)."""
    from kasuri._kernels.bayes import GRID, TOP

    outer, inner = (24, 5) if u.size >= bayes.SMALL else (8, 2)
    bins = bayes.quantile_bins(e, near, outer, inner)
    mean, variance = bayes.fitted(u, bins, outer * inner)
    weights = bayes.fitted_weights(u, bins, outer * inner)
    density = np.log(np.einsum("bk,jk->bj", weights, mixture()[0][:-1]))
    at = np.rint(np.clip(u, 0.0, TOP) * GRID).astype(np.int64)
    return mean, variance, np.where(u <= TOP, density[bins, at] + np.minimum(u, 0.0), np.nan)


def _about(u: Float, e: Float, scale: float) -> tuple[Float, Float, Float]:
    """Posteriors of the cells with e > 0 about their expectation, and the log likelihood of some of all (else NaN)."""
    from kasuri._kernels.bayes import TOP, public_likelihoods, public_posteriors, row_weights

    known = np.flatnonzero(e > 0)
    own, p = u[known], e[known]
    parts = np.column_stack((p, p / (2 * scale)))
    bins = bayes.quantile_bins(p, p, bayes.PUBLIC_BINS, 1)
    spreads = np.array(bayes.SPREADS)
    some = slice(None, None, max(1, -(-own.size // SAMPLE)))
    likelihood = np.empty((own[some].size, spreads.size + 2))
    public_likelihoods(own[some], parts[some], spreads, bayes.BROAD, False, likelihood)
    weights = row_weights(likelihood, bins[some], bayes.PUBLIC_BINS, bayes.STEPS)
    mean, variance = np.empty(own.size), np.empty(own.size)
    public_posteriors(own, parts, bins, weights, spreads, bayes.BROAD, False, mean, variance)
    found = np.full(u.size, np.nan)
    density = (weights[bins[some]] * likelihood).sum(axis=1) / 2
    found[known[some]] = np.where(own[some] <= TOP, np.log(np.maximum(density, 1e-300)), np.nan)
    return mean, variance, found
