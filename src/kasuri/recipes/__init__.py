"""The named recipes. The meaning of a name never changes; a changed algorithm gets a new name."""

from __future__ import annotations

from collections.abc import Callable

from kasuri.mechanism import Mechanism
from kasuri.recipes.cells import geometric, laplace
from kasuri.recipes.haar import haar_topdown, privelet
from kasuri.recipes.trees import refined_tree

RECIPES: dict[str, Callable[..., Mechanism]] = {
    "geometric": geometric,
    "haar_topdown": haar_topdown,
    "laplace": laplace,
    "privelet": privelet,
    "refined_tree": refined_tree,
}
"""Every recipe by name; the contract tests run over all of them."""
