"""Recipes that measure counts of chosen levels of a tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from numbers import Integral
from typing import Literal

from kasuri.errors import PrivacyError, raise_faults
from kasuri.mechanism import Mechanism
from kasuri.privacy import decimal, exact
from kasuri.public import PublicTable
from kasuri.shares import BAYES, REFINED

Tree = Literal["morton", "1d", "hierarchy"]


def refined_tree(
    shares: str | Mapping[int, object] = "even16",
    order: Tree = "morton",
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
    faults: list[str] = []
    given = _shares("refined_tree", shares, tuple(REFINED), faults)
    _tree("refined_tree", order, interleave, faults)
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


def bayes_tree(
    shares: str | Mapping[int, object] | None = None,
    order: Tree = "morton",
    *,
    facts: Mapping[str, object] | None = None,
    pilot: bool = False,
    prior: PublicTable | None = None,
    interleave: tuple[str, ...] = (),
) -> Mechanism:
    """Noisy counts of chosen levels of a tree, joined by empirical Bayes: small errors at every area size.

    shares: as in `refined_tree`, or a preset: "sparse", "scattered", "middle" (the default), "dense". Instead of
    shares, facts={"density": share of non-empty cells, "size": mean count of a non-empty cell} chooses a preset from
    declared public facts, e.g. of an earlier release; pilot=True from one level that is measured first, with its own
    part of epsilon. prior: an earlier public table on the same domain; it also chooses the preset where nothing else
    does.
    Cells with like neighbourhoods share a prior that is fitted to their noisy counts; a mesh has neighbours, on other
    domains siblings of the tree take their part.

    Privacy
    -------
    Neighbours: tables that differ by one unit. Sensitivity: each measured level's counts change by c in all (replace:
    2c), c = counts a unit adds. Guarantee: epsilon-DP, exactly: the levels' shares add up to epsilon, the pilot's among
    them, also where it chooses the others. Proof: docs/proofs/bayes_tree.md. Public: domain, mask, order, shares,
    declared facts, the prior. Assumes: a good keystream; run time depends on the data (SECURITY.md).

    Cost: O(m + drawn nodes) for m records; people inside blocks that were not descended are spread over at most as many
    cells as nodes were drawn (or 2^20). References: [Hay2010], [Robbins1956], [Efron2014].
    """
    faults: list[str] = []
    if sum((shares is not None, facts is not None, bool(pilot))) > 1:
        faults.append("bayes_tree: give shares, facts or pilot=True, only one of them")
    if not isinstance(pilot, bool):
        faults.append("bayes_tree: pilot is True or False")
    if prior is not None and not isinstance(prior, PublicTable):
        faults.append("bayes_tree: prior must be declared public: PublicTable.from_dense(array, domain, name=...)")
    known: tuple[str, ...] = ()
    given: str | tuple[tuple[int, str], ...] = "pilot" if pilot else "middle" if prior is None else "prior"
    if shares is not None:
        given = _shares("bayes_tree", shares, tuple(BAYES), faults)
    elif facts is not None:
        given = "facts"
        if not isinstance(facts, Mapping) or set(facts) != {"density", "size"}:
            faults.append('bayes_tree: facts are {"density": ..., "size": ...}')
        else:
            numbers = [exact(facts[name], name) for name in ("density", "size")]
            if numbers[0] > 1:
                faults.append("bayes_tree: density is a share of all cells, at most 1")
            known = tuple(decimal(number) for number in numbers)
    _tree("bayes_tree", order, interleave, faults)
    raise_faults(PrivacyError, faults)
    return Mechanism(
        "bayes_tree",
        "counts",
        "discrete Laplace",
        "bayes",
        "docs/proofs/bayes_tree.md",
        order=order,
        interleave=tuple(interleave),
        descent="plain",
        shares=given,
        facts=known,
        prior=prior,
    )


def auto(
    areas: Sequence[int] = (1,),
    metric: Literal["rmse", "mae"] = "rmse",
    order: Tree = "morton",
    *,
    prior: PublicTable | None = None,
    interleave: tuple[str, ...] = (),
) -> Mechanism:
    """`refined_tree` or `bayes_tree` with the preset that does best for the areas you will publish.

    areas: their sizes in cells. metric: "rmse" or "mae", averaged over the areas (geometric mean). Every preset is
    tried on made-up people, spread below one level of the tree that is measured first with its own part of epsilon,
    or on a declared public table (`prior`), which then also stands behind the cells. The release says what was chosen
    and why.

    Privacy
    -------
    Neighbours: tables that differ by one unit. Sensitivity: each measured level's counts change by c in all (replace:
    2c), c = counts a unit adds. Guarantee: epsilon-DP, exactly: whatever is chosen, the levels' shares and the pilot's
    add up to epsilon. Proof: docs/proofs/auto.md. Public: domain, mask, order, areas, the prior. Assumes: a good
    keystream; run time depends on the data (SECURITY.md).

    Cost: about 18 times that of `bayes_tree`. References: [Hay2010], [Terada2015].
    """
    faults: list[str] = []
    sizes = tuple(areas) if isinstance(areas, Sequence) and not isinstance(areas, str) else ()
    if not sizes or any(not isinstance(area, Integral) or isinstance(area, bool) or area < 1 for area in sizes):
        faults.append("auto: areas are sizes in cells, whole numbers from 1 up, e.g. areas=(1, 4, 16)")
    if metric not in ("rmse", "mae"):
        faults.append(f'auto: metric {metric!r} is not known; use "rmse" or "mae"')
    if prior is not None and not isinstance(prior, PublicTable):
        faults.append("auto: prior must be declared public: PublicTable.from_dense(array, domain, name=...)")
    _tree("auto", order, interleave, faults)
    raise_faults(PrivacyError, faults)
    return Mechanism(
        "auto",
        "counts",
        "discrete Laplace",
        "chosen",
        "docs/proofs/auto.md",
        order=order,
        interleave=tuple(interleave),
        descent="plain",
        shares="simulation",
        prior=prior,
        areas=tuple(int(area) for area in sizes),
        metric=metric,
    )


def _shares(
    recipe: str, shares: object, presets: tuple[str, ...], faults: list[str]
) -> str | tuple[tuple[int, str], ...]:
    if not isinstance(shares, Mapping):
        if not isinstance(shares, str) or shares not in presets:
            faults.append(f"{recipe}: shares {shares!r} are not known; use {', '.join(presets)} or a mapping")
            return ()
        return shares
    if any(not isinstance(height, int) or isinstance(height, bool) or height < 0 for height in shares):
        faults.append(f"{recipe}: heights are whole numbers from 0 (cells) up")
        return ()
    exacts: dict[int, Fraction] = {height: exact(share, "a share") for height, share in shares.items()}
    if sum(exacts.values()) != 1 or 0 not in exacts:
        faults.append(f"{recipe}: shares must include height 0 and sum to exactly 1")
    return tuple(sorted((height, decimal(share)) for height, share in exacts.items()))


def _tree(recipe: str, order: str, interleave: tuple[str, ...], faults: list[str]) -> None:
    if order not in ("morton", "1d", "hierarchy"):
        faults.append(f'{recipe}: order {order!r} is not known; use "morton", "1d" or "hierarchy"')
    if interleave and order != "morton":
        faults.append(f"{recipe}: interleave needs order='morton'")
