"""From the words of a saved release back to the Run they were written from: the one way back.

`read` takes nothing on trust but the arguments of the recipe: whatever follows from them (parts, scale, shares,
threshold, sensitivity) is computed again, so that it can be compared with what is said. An unknown word raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from inspect import signature
from typing import Any

import numpy as np

from kasuri.errors import DomainError, FormatError, KasuriError, unknown
from kasuri.privacy import Exact, written
from kasuri.public import Named, PublicMatrix
from kasuri.recipes import RECIPES, best, strategy
from kasuri.recipes.bayestree import ChosenTree
from kasuri.recipes.best import RULES, Best
from kasuri.recipes.counttree import CountTree, Preset
from kasuri.recipes.matrix import Measured, ToldRows, Untold
from kasuri.recipes.mechanism import Mechanism, Run
from kasuri.recipes.shares import BAYES
from kasuri.recipes.simulated import Simulated
from kasuri.recipes.woven import WovenRun, WovenTree
from kasuri.recipes.wovenchoice import ChoiceRun
from kasuri.recipes.wovenlook import LookedTree
from kasuri.recipes.wovenpilot import PilotedTree
from kasuri.schema import Domain, Unit
from kasuri.schema.maps import RegionMap

OPTIMISED_CELLS = 1 << 8
"""A strategy is optimised once more for at most so many cells: above, that takes minutes."""


class UntoldError(DomainError):
    """The words name something public without telling it, so that what follows from it cannot be computed."""


def read(words: Mapping[str, Any], domain: Domain, unit: Unit, epsilon: Exact, *, told: bool = False) -> Run:
    """The run whose words these are, made again on `domain`, `unit` and `epsilon`.

    FormatError where no recipe has these arguments, or the recipe refuses to run on them; UntoldError where a matrix is
    told by its fingerprint alone, or is too large to be optimised again. Shares that the numbers of a public table
    chose are looked for among the presets. told: a matrix is taken as the release
    tells it, and not made again.
    """
    try:
        run = _run(words, domain, unit, epsilon, told)
    except UntoldError:
        raise
    except (ArithmeticError, AttributeError, KasuriError, LookupError, TypeError, ValueError):
        raise FormatError("no recipe is described like this on this domain, unit and epsilon") from None
    own = run.words()
    for name in words:
        if name not in own and name not in run.chooses:  # it may say how the numbers were made
            raise unknown(FormatError, f"{own['name']}: the part", name, (*own, *run.chooses))
    if run.mechanism.name != words["name"] or own.get("chosen") != words.get("chosen"):
        raise FormatError(f"{own['name']} is not what the rule chooses on this domain, or not for that reason")
    said = {name: words.get(name) for name in ("transform", "noise", "refine", "order", "interleave", "descent")}
    for part in (said, words.get("arguments", {}), words.get("options", {})):
        mine = own if part is said else own.get("arguments", {}) | own.get("options", {})
        for name, word in part.items():
            if word != mine.get(name):
                raise unknown(FormatError, f"{own['name']}: the {name}", word, (str(mine.get(name)),))
    return run


def _run(words: Mapping[str, Any], domain: Domain, unit: Unit, epsilon: Exact, told: bool) -> Run:
    if told and words["name"] == "matrix":
        return _told(words).run(domain, unit, epsilon)
    mechanism = _mechanism(words, domain)
    if "chosen" in words:
        mechanism = _by_best(words, mechanism, domain)
    if words.get("arguments", {}).get("shares") == "prior":
        return _preset(mechanism, words, domain, unit, epsilon)
    run = mechanism.run(domain, unit, epsilon)
    if isinstance(run, ChoiceRun):
        return run.sharing(words)
    return run.sharing(words["shares"]) if isinstance(run, WovenRun) else run


def _mechanism(words: Mapping[str, Any], domain: Domain) -> Mechanism:
    name, order = words["name"], words["order"]
    asked, options = words.get("arguments", {}), words.get("options", {})
    tree = {"order": "morton" if order.startswith("morton") else order, "interleave": tuple(words["interleave"])}
    prior = _named(words, "prior", domain)
    readers: dict[str, Callable[[], dict[str, Any]]] = {
        "privelet": lambda: {"order": "2d" if words["transform"] == "haar_nd" else order},
        "haar_topdown": lambda: _haar(words, tree, asked),
        "hierarchy": lambda: {"order": tree["order"]},
        "fourier": lambda: {"ways": int(options["ways"])},
        "matrix": lambda: _matrix(options, domain),
        "sparse": lambda: {"threshold": options["threshold"] if options["threshold"] == "auto" else
                           int(options["threshold"])},
        "refined_tree": lambda: tree | {"shares": _shares(asked["shares"])} | _noise(asked),
        "bayes_tree": lambda: tree | {"prior": prior, "expect": asked.get("expect", False)} | _chosen(asked)
        | _noise(asked),
        "cell_counts": lambda: _noise(asked),
        "woven_tree": lambda: _woven(asked),
        "auto": lambda: tree | {"prior": prior, "areas": tuple(asked["areas"]), "metric": asked["metric"]},
    }  # fmt: skip
    readers |= {name: lambda: _shaped(words, options, domain) for name in _PARAMETER}
    readers |= {name: dict for name, make in RECIPES.items() if not signature(make).parameters}
    made = RECIPES[name](**readers[name]())
    if isinstance(made, ChosenTree) and isinstance(made.chooser, Simulated):
        return replace(made, chooser=replace(made.chooser, version=int(asked.get("version", 1))))
    if isinstance(made, LookedTree):
        return replace(made, version=int(asked.get("version", 1)))
    return replace(made, held=int(asked.get("held", 1))) if isinstance(made, WovenTree | PilotedTree) else made


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
            raise UntoldError(f"the matrix of the recipe ({use}) is known by its fingerprint alone")
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


def _noise(asked: Mapping[str, Any]) -> dict[str, Any]:
    return {name: asked[name] for name in ("noise", "delta") if name in asked}


def _chosen(asked: Mapping[str, Any]) -> dict[str, Any]:
    """What chooses the shares of bayes_tree: facts, a pilot, the prior, or the shares themselves."""
    if asked["shares"] == "facts":
        return {"facts": asked["facts"]}
    if asked["shares"] == "pilot":
        return {"pilot": True}
    return {} if asked["shares"] == "prior" else {"shares": _shares(asked["shares"])}


def _woven(asked: Mapping[str, Any]) -> dict[str, Any]:
    if asked.get("pilot"):
        return {"pilot": asked["pilot"]}
    maps = tuple(RegionMap.from_json(told) for told in asked.get("maps", ()))
    given = {name: told or None for name, told in asked.items() if name in ("shares", "views")}
    return given | {"maps": maps, "whole": asked.get("whole", False)}


def _by_best(words: Mapping[str, Any], mechanism: Mechanism, domain: Domain) -> Mechanism:
    """The recipe that chose `mechanism`: with the views and maps that it was chosen for, and the facts."""
    said = words["chosen"]
    if said["by"] != "best" or said["rule"] not in RULES:
        raise FormatError("the rule that chose the recipe is not known")
    asked = mechanism if isinstance(mechanism, WovenTree) else None
    named = None if asked is None else dict(asked.named) or None
    made = best(named, maps=() if asked is None else asked.maps, facts=said.get("facts"))
    assert isinstance(made, Best)
    return replace(made, rule=said["rule"])


def _named(words: Mapping[str, Any], use: str, domain: Domain) -> Named | None:
    name = words.get("arguments", {}).get(use)
    if name is None:
        return None
    at = [0] * len(domain.shape)  # any possible cell will do
    for mask in domain.zeros:
        first = np.unravel_index(int(np.argmin(mask.impossible())), mask.shape)
        for position, index in zip((p for axis in mask.axes for p in domain.positions(axis)), first, strict=True):
            at[position] = int(index)
    cell = domain.ravel(at).reshape(1)
    return Named(domain, cell, np.ones(1), name, words.get("fingerprints", {}).get(use, ""))


def _preset(mechanism: Mechanism, words: Mapping[str, Any], domain: Domain, unit: Unit, epsilon: Exact) -> Run:
    """The run with the shares of that preset of bayes_tree which the words tell; the numbers that chose it are not
    told."""
    if not isinstance(mechanism, CountTree):
        raise FormatError("shares of a prior are of bayes_tree alone")
    for name in BAYES:
        found = replace(mechanism, shares=Preset(name)).run(domain, unit, epsilon)
        if found.further()["shares"] == words.get("shares"):
            return replace(found, mechanism=mechanism)
    raise FormatError("the shares are not those of a preset")


def _told(words: Mapping[str, Any]) -> Mechanism:
    """A measured matrix as a release tells it: its rows, or its scale alone."""
    said, basis = tuple(words["options"].items()), RECIPES["matrix"]().basis
    if "rows" in words:
        return Measured(words["name"], basis, ToldRows(words["rows"], said))
    return Untold(words["name"], basis, said, written(words["scale"]))
