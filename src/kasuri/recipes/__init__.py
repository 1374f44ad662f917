"""The named recipes. The meaning of a name never changes; a changed algorithm gets a new name."""

from __future__ import annotations

from collections.abc import Callable

from kasuri.recipes.bayestree import auto, bayes_tree
from kasuri.recipes.best import best
from kasuri.recipes.cells import cell_counts, geometric, laplace
from kasuri.recipes.counttree import refined_tree
from kasuri.recipes.descent import haar_topdown
from kasuri.recipes.hierarchy import hierarchy
from kasuri.recipes.matrix import fourier, matrix
from kasuri.recipes.mechanism import Mechanism
from kasuri.recipes.shaped import lasso, neg_l2_simplex, nonneg_lasso, simplex
from kasuri.recipes.threshold import sparse
from kasuri.recipes.wavelet import privelet
from kasuri.recipes.wovenpilot import woven_tree

__all__ = [
    "RECIPES",
    "Mechanism",
    "auto",
    "bayes_tree",
    "best",
    "cell_counts",
    "fourier",
    "geometric",
    "haar_topdown",
    "hierarchy",
    "laplace",
    "lasso",
    "matrix",
    "neg_l2_simplex",
    "nonneg_lasso",
    "privelet",
    "refined_tree",
    "simplex",
    "sparse",
    "woven_tree",
]

RECIPES: dict[str, Callable[..., Mechanism]] = {
    "auto": auto,
    "bayes_tree": bayes_tree,
    "best": best,
    "cell_counts": cell_counts,
    "fourier": fourier,
    "geometric": geometric,
    "haar_topdown": haar_topdown,
    "hierarchy": hierarchy,
    "laplace": laplace,
    "lasso": lasso,
    "matrix": matrix,
    "neg_l2_simplex": neg_l2_simplex,
    "nonneg_lasso": nonneg_lasso,
    "privelet": privelet,
    "refined_tree": refined_tree,
    "simplex": simplex,
    "sparse": sparse,
    "woven_tree": woven_tree,
}
"""Every recipe by name; the contract tests run over all of them."""
