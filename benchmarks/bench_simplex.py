"""Projection of 16.7 million cells on the simplex: a tally of whole numbers, and Michelot, against NumPy's, by sorting.

python3 run.py bench simplex

4096 x 4096 cells, 2.1 % of them not 0, noise of epsilon 0.1. All three include the projected table; the tally also its
whole numbers. Every further gamma costs the tally only its distinct values.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from clock import best, line

from kasuri._kernels.simplex import michelot
from kasuri.noise.rng import Streams, secure
from kasuri.noise.samplers import discrete_laplace
from kasuri.refine.project import GAMMAS, RULES, Tally

SIDE = 4096


def table() -> tuple[np.ndarray, int]:
    """A made-up map of the density of the national mesh, with exact noise of scale 10."""
    rng = np.random.default_rng(0)
    truth = np.zeros(SIDE * SIDE, dtype=np.int64)
    places = rng.choice(truth.size, int(0.021 * truth.size), replace=False)
    truth[places] = np.minimum(1 + rng.pareto(0.8, places.size) * 20, 15000).astype(np.int64)
    noise = discrete_laplace(Fraction(10)).draw(Streams(secure().release_key(), "bench").open("noise"), truth.size)
    return truth + noise, int(truth.sum())


def sorted_projection(noisy: np.ndarray, total: int) -> np.ndarray:
    """[Matsumoto2025, eq. 8-10] as printed."""
    ranked = np.sort(noisy)[::-1]
    sums = np.cumsum(ranked) - total
    rho = np.flatnonzero(ranked - sums / np.arange(1, noisy.size + 1) > 0)[-1]
    return np.maximum(noisy - sums[rho] / (rho + 1), 0.0)


def main() -> None:
    noisy, total = table()
    floats = noisy + np.random.default_rng(1).random(noisy.size) - 0.5
    sorting = best(lambda: np.sort(floats), 3)
    sorting_whole = best(lambda: np.sort(noisy), 3)
    printed = best(lambda: sorted_projection(floats, total), 3)

    def tally() -> None:
        RULES["neg l2"].shape(Tally.of(noisy), total, Fraction(19, 20)).apply(noisy)

    def shrinking() -> None:
        np.maximum(floats - michelot(floats, float(total)), 0.0)

    tally()
    shrinking()
    ours, michelots = best(tally), best(shrinking)
    line("NumPy sort of the noisy floats", f"{sorting:.3f} s")
    line("NumPy sort of the noisy whole numbers", f"{sorting_whole:.3f} s")
    line("NumPy projection, eq. 8-10 as printed", f"{printed:.3f} s")
    line("tally, whole numbers that keep the total", f"{ours:.3f} s")
    line("sort of floats / tally", f"{sorting / ours:.1f}")
    line("sort of whole numbers / tally", f"{sorting_whole / ours:.1f}")
    line("projection as printed / tally", f"{printed / ours:.1f}", "(>= 15)")
    line("sort of floats / Michelot", f"{sorting / michelots:.1f}")
    made = Tally.of(noisy)
    every = best(lambda: [RULES["neg l2"].shape(made, total, gamma) for gamma in GAMMAS], 3)
    line(f"{len(GAMMAS)} further gammas from one tally", f"{every:.3f} s")


if __name__ == "__main__":
    main()
