"""A recipe in words, as a release carries it, and the one way back: from the words to the Run they were written from.

Nothing here depends on counts. `read` takes nothing on trust but the arguments of the recipe: whatever follows from
them (parts, scale, shares, threshold, sensitivity) is computed again, so that it can be compared with what is said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np

from kasuri import strategy
from kasuri.errors import DomainError, FormatError, KasuriError
from kasuri.mechanism import Mechanism, Run, resolve
from kasuri.privacy import decimal, written
from kasuri.public import PublicMatrix, PublicTable
from kasuri.recipes import RECIPES
from kasuri.schema import Domain, Unit
from kasuri.shares import BAYES

MOST_WRITTEN = 1 << 16
"""Most characters of a measured matrix that a release writes out: enough for about 128 cells."""
OPTIMISED_CELLS = 1 << 8
"""A strategy is optimised once more for at most so many cells: above, that takes minutes."""


def recipe_words(run: Run) -> Mapping[str, Any]:
    """The mechanism in words and parameters, as a release carries it."""
    mechanism = run.mechanism
    words = {
        "name": mechanism.name,
        "transform": mechanism.transform,
        "noise": mechanism.noise,
        "scale": decimal(run.scale),
        "sensitivity": decimal(run.sensitivity),
        "refine": mechanism.refine,
        "order": run.trees[0].name if len(run.trees) == 1 else mechanism.order,
        "interleave": list(mechanism.interleave),
        "descent": run.descent,
    } | _further_words(run)
    return MappingProxyType(words)


def _further_words(run: Run) -> dict[str, Any]:
    """What only some recipes have: shares, options, what else they were asked for, a bought total, tuning. Nothing of
    it depends on the counts; a pilot's own words come later and replace these."""
    mechanism = run.mechanism
    words: dict[str, Any] = {}
    asked = {
        "descent": "auto" if mechanism.descent == "auto" else "",
        "shares": mechanism.shares
        if isinstance(mechanism.shares, str)
        else {str(at): share for at, share in mechanism.shares},
        "facts": dict(zip(("density", "size"), mechanism.facts, strict=False)),
        "areas": list(mechanism.areas),
        "metric": mechanism.metric,
        "prior": mechanism.prior and mechanism.prior.name,
        "tune_on": mechanism.tuning and mechanism.tuning.name,
    }
    if any(asked.values()):
        words["arguments"] = {name: value for name, value in asked.items() if value}
    tables = {"prior": mechanism.prior, "tune_on": mechanism.tuning}
    if any(tables.values()):
        words["fingerprints"] = {name: table.fingerprint() for name, table in tables.items() if table is not None}
    if run.cuts:
        words["shares"] = {str(depth): decimal(share) for depth, share in run.cuts}
    if mechanism.options:
        words["options"] = mechanism.told_options()
    if run.threshold is not None:
        words["threshold"] = run.threshold
    if run.strategy is not None and mechanism.refine == "inverse" and "public" not in dict(mechanism.options):
        rows = ";".join(" ".join(map(str, row)) for row in run.strategy.rows.tolist())  # error bars need them
        words |= {"rows": rows} if len(rows) <= MOST_WRITTEN else {}
    if run.total_scale is not None:
        common = {"recipe": mechanism.name, "noise": mechanism.noise}
        parts = {"identity": (run.scale, run.sensitivity),
                 "total": (run.total_scale, Fraction(run.guarantee.unit.most))}  # fmt: skip
        words["mechanisms"] = [
            {"query": query, "sensitivity": decimal(sensitivity), "scale": decimal(scale)} | common
            for query, (scale, sensitivity) in parts.items()
        ]
    if dict(mechanism.options).get("parameter") == "auto" and mechanism.tuning is None:
        source, charged = "parametric bootstrap from the projected noisy table", "no confidential number is read"
    elif (table := mechanism.prior or mechanism.tuning) is not None:
        source, charged = f"public table {table.name}, declared", "it does not come from this data"
    elif mechanism.facts:
        source = f"density {mechanism.facts[0]} and size {mechanism.facts[1]} of non-empty cells, declared public"
        charged = "it does not come from this data"
    else:
        return words
    return words | {"tuning": {"source": source, "charged": f"nothing: {charged}"}}


class UntoldError(DomainError):
    """The words name something public without telling it, so that what follows from it cannot be computed."""


@dataclass(frozen=True, repr=False, eq=False)
class Named(PublicTable):
    """A public table of which a release tells the name and the fingerprint, not the numbers: it stands where the table
    stood, and may be asked for nothing else."""

    digest: str = ""

    def fingerprint(self) -> str:
        """What the release tells; an earlier kasuri told nothing."""
        return self.digest


def read(words: Mapping[str, Any], domain: Domain, unit: Unit, epsilon: object) -> Run:
    """The run whose `recipe_words` these are, resolved again on `domain`, `unit` and `epsilon`.

    FormatError where no recipe has these arguments, or the recipe refuses to run on them; UntoldError where a matrix is
    told by its fingerprint alone, or is too large to be optimised again. Shares that the numbers of a public table
    chose are looked for among the presets.
    """
    try:
        mechanism = _mechanism(words, domain)
        run = resolve(mechanism, domain, unit, epsilon)
        if mechanism.shares == "prior":
            run = _preset(run, words)
    except UntoldError:
        raise
    except (ArithmeticError, AttributeError, KasuriError, LookupError, TypeError, ValueError):
        raise FormatError("no recipe has these words on this domain, unit and epsilon") from None
    return run


def _mechanism(words: Mapping[str, Any], domain: Domain) -> Mechanism:
    name, order = words["name"], words["order"]
    asked, options = words.get("arguments", {}), words.get("options", {})
    tree = {"order": "morton" if order.startswith("morton") else order, "interleave": tuple(words["interleave"])}
    prior = _named(words, "prior", domain)
    readers: dict[str, Callable[[], dict[str, Any]]] = {
        "geometric": dict,
        "laplace": dict,
        "privelet": lambda: {"order": "2d" if words["transform"] == "haar_nd" else order},
        "haar_topdown": lambda: _haar(words, tree, asked),
        "hierarchy": lambda: {"order": tree["order"]},
        "fourier": lambda: {"ways": int(options["ways"])},
        "matrix": lambda: _matrix(options, domain),
        "sparse": lambda: {"threshold": options["threshold"] if options["threshold"] == "auto" else
                           int(options["threshold"])},
        "refined_tree": lambda: tree | {"shares": _shares(asked["shares"])},
        "bayes_tree": lambda: tree | {"prior": prior} | _chosen(asked),
        "auto": lambda: tree | {"prior": prior, "areas": tuple(asked["areas"]), "metric": asked["metric"]},
    }  # fmt: skip
    readers |= {name: lambda: _shaped(words, options, domain) for name in _PARAMETER}
    return RECIPES[name](**readers[name]())


_PARAMETER = {"simplex": None, "neg_l2_simplex": "gamma", "nonneg_lasso": "strength", "lasso": "strength"}
"""What the recipes that shape a table to a total call their parameter."""


def _haar(words: Mapping[str, Any], tree: dict[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    if words["transform"] == "nominal":  # follows the axes' trees, whatever order was asked for but "jis"
        tree = tree | {"order": "jis" if words["order"] == "jis" else "morton"}
    descent = asked.get("descent", words["descent"]) if words["transform"] == "sum_difference" else "auto"
    return tree | {"transform": words["transform"], "descent": descent}


def _matrix(options: Mapping[str, str], domain: Domain) -> dict[str, Any]:
    given: dict[str, Any] = dict(options)
    name = given.pop("public", None)
    for use, said in given.items():
        if said.startswith("sha256:"):
            raise UntoldError(f"the matrix of the recipe ({use}) is told by its fingerprint")
        if said not in ("optimised", *strategy.WORKLOADS):
            rows = strategy.parse(said)
            given[use] = rows if name is None else PublicMatrix(rows, name)
    if isinstance(given["strategy"], str) and domain.size > OPTIMISED_CELLS:
        raise UntoldError(f"optimising a strategy of more than {OPTIMISED_CELLS} cells again takes too long")
    return given


def _shaped(words: Mapping[str, Any], options: Mapping[str, str], domain: Domain) -> dict[str, Any]:
    out: dict[str, Any] = {"total": options["total"]}
    if "share" in options:
        out["share"] = options["share"]
    if "declared_total" in options:
        out["declared_total"] = int(options["declared_total"])
    parameter = _PARAMETER[words["name"]]
    if parameter is not None:
        auto, twice = options["parameter"] == "auto", 2 if parameter == "strength" else 1
        out[parameter] = "auto" if auto else twice * written(options["parameter"])
        out["tune_on"] = _named(words, "tune_on", domain)
    if parameter == "strength":
        out["adjust"] = options["rule"].split()[-1]
    return out


def _shares(said: Any) -> Any:
    return said if isinstance(said, str) else {int(height): share for height, share in said.items()}


def _chosen(asked: Mapping[str, Any]) -> dict[str, Any]:
    """What chooses the shares of bayes_tree: facts, a pilot, the prior, or the shares themselves."""
    if asked["shares"] == "facts":
        return {"facts": asked["facts"]}
    if asked["shares"] == "pilot":
        return {"pilot": True}
    return {} if asked["shares"] == "prior" else {"shares": _shares(asked["shares"])}


def _named(words: Mapping[str, Any], use: str, domain: Domain) -> Named | None:
    name = words.get("arguments", {}).get(use)
    if name is None:
        return None
    at = [0] * len(domain.shape)  # any possible cell will do
    for mask in domain.mask:
        first = np.unravel_index(int(np.argmin(mask.impossible())), mask.shape)
        for position, index in zip((p for axis in mask.axes for p in domain.positions(axis)), first, strict=True):
            at[position] = int(index)
    cell = domain.ravel(at).reshape(1)
    return Named(domain, cell, np.ones(1), name, words.get("fingerprints", {}).get(use, ""))


def _preset(run: Run, words: Mapping[str, Any]) -> Run:
    """The run with the shares of that preset of bayes_tree which the words tell; the numbers that chose it are not
    told."""
    for name in BAYES:
        mechanism, guarantee = replace(run.mechanism, shares=name), run.guarantee
        found = resolve(mechanism, run.domain, guarantee.unit, guarantee.epsilon)
        if {str(depth): decimal(share) for depth, share in found.cuts} == words.get("shares"):
            return replace(run, cuts=found.cuts)
    raise FormatError("the shares are not those of a preset")
