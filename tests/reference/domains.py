"""Domains as a recipe takes them."""

from dataclasses import replace

from kasuri.schema import Domain, Nominal


def taken_by(recipe, domain):
    """`domain`, without the public trees that `recipe` would refuse because it does not follow them."""
    if recipe.ignores_trees is None:
        return domain
    axes = (replace(axis, tree=None) if isinstance(axis, Nominal) else axis for axis in domain.axes)
    return Domain(tuple(axes), domain.mask)
