"""Recipes that measure every cell and shape the noisy table to a total [Matsumoto2025]."""

from __future__ import annotations

from typing import Any, Literal

from kasuri.errors import PrivacyError, raise_faults
from kasuri.mechanism import Mechanism
from kasuri.privacy import decimal, exact
from kasuri.public import PublicTable

_BASIS = "docs/proofs/simplex.md"
Total = Literal["noisy", "public"]


def simplex(total: Total = "noisy", *, share: object = "0.05", declared_total: int | None = None) -> Mechanism:
    """Noisy cells projected on {x >= 0, sum x = total}, then the nearest whole numbers of that total.

    total "noisy": the total is measured too, with the part `share` of epsilon. total "public": `declared_total`, a
    number you declare as known to everyone; only for a unit that replaces (its noise is doubled), one cell each, no
    weights.

    Privacy
    -------
    Neighbours: tables that differ by one unit; total "public": one record changes its cell, none enters or leaves.
    Sensitivity: cells c (add-remove) or 2c (replace), the total c, c = counts a unit adds; public: cells 2.
    Guarantee: epsilon-DP, exactly; cells (1 - share) epsilon and total share epsilon. Proof: docs/proofs/simplex.md.
    Public: domain, mask, the declared total. Assumes: a good keystream; total "public": that no one enters or leaves.

    Cost: O(n), no sort. References: [Matsumoto2025, eq. 7-10], [Duchi2008].
    """
    return _shaped("simplex", "neg l2", "1", None, total, share, declared_total)


def neg_l2_simplex(
    gamma: object = "auto",
    total: Total = "noisy",
    *,
    share: object = "0.05",
    declared_total: int | None = None,
    tune_on: PublicTable | None = None,
) -> Mechanism:
    """As `simplex`, but the projection of noisy / gamma, 0 < gamma <= 1: sparser, and less pull on large cells.

    gamma: an exact decimal ("1" is `simplex`), or "auto": the gamma that does best on simulated noise over the
    projected noisy table, or over `tune_on`, a PublicTable on the same grid. There is no way to tune it on the truth.

    Privacy
    -------
    Neighbours: tables that differ by one unit; total "public": one record changes its cell, none enters or leaves.
    Sensitivity: cells c (add-remove) or 2c (replace), the total c, c = counts a unit adds; public: cells 2.
    Guarantee: epsilon-DP, exactly; gamma is post-processing. Proof: docs/proofs/simplex.md.
    Public: domain, mask, the declared total, the table tuned on. Assumes: a good keystream; total "public": that no one
    enters or leaves.

    Cost: O(n), no sort; "auto" a few times that. References: [Matsumoto2025, eq. 11-14], [LiRangapuram2020].
    """
    return _shaped("neg_l2_simplex", "neg l2", gamma, tune_on, total, share, declared_total)


def nonneg_lasso(
    strength: object = "auto",
    total: Total = "noisy",
    *,
    adjust: Literal["scale", "shift"] = "scale",
    share: object = "0.05",
    declared_total: int | None = None,
    tune_on: PublicTable | None = None,
) -> Mechanism:
    """Noisy cells less lambda / 2, cut at 0 (non-negative Lasso), then scaled or uniformly shifted to the total.

    strength: lambda, an exact decimal, or "auto" as in `neg_l2_simplex`. adjust "scale" multiplies all cells, "shift"
    adds the same amount to every cell that is not 0 (and cuts at 0). Whole numbers, as in `simplex`.

    Privacy
    -------
    Neighbours: tables that differ by one unit; total "public": one record changes its cell, none enters or leaves.
    Sensitivity: cells c (add-remove) or 2c (replace), the total c, c = counts a unit adds; public: cells 2.
    Guarantee: epsilon-DP, exactly; lambda is post-processing. Proof: docs/proofs/simplex.md.
    Public: domain, mask, the declared total, the table tuned on. Assumes: a good keystream; total "public": that no one
    enters or leaves.

    Cost: O(n), no sort. References: [Matsumoto2025, eq. 5].
    """
    return _lasso("nonneg_lasso", strength, adjust, tune_on, total, share, declared_total)


def lasso(
    strength: object = "auto",
    total: Total = "noisy",
    *,
    adjust: Literal["scale", "shift"] = "scale",
    share: object = "0.05",
    declared_total: int | None = None,
    tune_on: PublicTable | None = None,
) -> Mechanism:
    """Soft threshold lambda / 2 in both directions (Lasso), then scaled or shifted to the total; may be negative.

    strength, adjust: as in `nonneg_lasso`.

    Privacy
    -------
    Neighbours: tables that differ by one unit; total "public": one record changes its cell, none enters or leaves.
    Sensitivity: cells c (add-remove) or 2c (replace), the total c, c = counts a unit adds; public: cells 2.
    Guarantee: epsilon-DP, exactly; lambda is post-processing. Proof: docs/proofs/simplex.md.
    Public: domain, mask, the declared total, the table tuned on. Assumes: a good keystream; total "public": that no one
    enters or leaves.

    Cost: O(n), no sort. References: [Matsumoto2025, eq. 4].
    """
    return _lasso("lasso", strength, adjust, tune_on, total, share, declared_total)


def _lasso(
    name: str, strength: object, adjust: str, tune_on: Any, total: str, share: object, declared: int | None
) -> Mechanism:
    if adjust not in ("scale", "shift"):
        raise PrivacyError(f'{name}: adjust {adjust!r} is not known; use "scale" or "shift"')
    parameter = strength if strength == "auto" else decimal(exact(strength, "strength") / 2)
    kind = "nonneg lasso" if name == "nonneg_lasso" else "lasso"
    return _shaped(name, f"{kind} {adjust}", parameter, tune_on, total, share, declared)


def _shaped(
    name: str, rule: str, parameter: object, tune_on: Any, total: str, share: object, declared: int | None
) -> Mechanism:
    faults = []
    options = {"total": total, "rule": rule}
    if total == "noisy":
        options["share"] = decimal(exact(share, "share"))
        if exact(share, "share") >= 1:
            faults.append(f"{name}: share is the part of epsilon that buys the total; it must lie below 1")
        if declared is not None:
            faults.append(f'{name}: declared_total goes with total="public"; total="noisy" measures the total')
    elif total == "public":
        if not isinstance(declared, int) or isinstance(declared, bool) or not 0 <= declared <= 1 << 62:
            faults.append(f'{name}: total="public" needs declared_total, the number everyone may know (0 to 2^62)')
        options["declared_total"] = str(declared)
    else:
        faults.append(f'{name}: total {total!r} is not known; use "noisy" or "public"')
    if parameter == "auto":
        options["parameter"] = "auto"
    else:
        value = exact(parameter, "gamma" if rule == "neg l2" else "strength")
        options["parameter"] = decimal(value)
        if rule == "neg l2" and value > 1:
            faults.append(f"{name}: gamma must lie above 0 and at most at 1")
    if tune_on is not None and (parameter != "auto" or not isinstance(tune_on, PublicTable)):
        faults.append(
            f'{name}: tune_on takes a PublicTable, declared as such, and goes with "auto"; nothing else tunes'
        )
    raise_faults(PrivacyError, faults)
    return Mechanism(
        name,
        "identity",
        "discrete Laplace",
        "simplex" if rule == "neg l2" else "nonneg lasso" if name == "nonneg_lasso" else "lasso",
        _BASIS,
        options=tuple(sorted(options.items())),
        tuning=tune_on,
    )
