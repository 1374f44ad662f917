"""What a manifest says, computed again: its recipe rebuilt and resolved, its measurements refined once more.

A forger can make every hash right and every file agree. What cannot be made right is arithmetic: scale, shares and
sensitivity follow from recipe, domain, unit and epsilon, and values from measurements. Whatever is not computed again
is named, with the reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from kasuri import refine
from kasuri.errors import FormatError, KasuriError
from kasuri.files import read_parquet
from kasuri.manifest.package import (
    MANIFEST,
    described,
    environment,
    machine,
    mechanisms,
    privacy_block,
    resource,
    text,
    versions_hash,
)
from kasuri.manifest.tables import UNREADABLE
from kasuri.noise.evidence import too_little
from kasuri.noise.laws import IDEALISED, KEYSTREAM
from kasuri.noise.rng import secure
from kasuri.privacy import Guarantee, decimal, written
from kasuri.public import Named
from kasuri.published import acceptance, intervals
from kasuri.published.measurements import Measurements
from kasuri.published.protected import NO_LEDGER, Described, Protected, files_of
from kasuri.recipes.mechanism import Drawn, Run
from kasuri.recipes.read import UntoldError, read
from kasuri.schema import PROVIDER_BOUNDED, Domain, Window
from kasuri.store import saved
from kasuri.store.columns import measured_table
from kasuri.store.saved import claimed

ROWS = 1 << 23
"""Released cells and measurements are replayed up to so many rows together."""
FURTHEST = 8
"""What rounding on another machine may move in a cell."""
LATER = {"sensitivity", "fingerprints"}
"""Words that releases of an earlier kasuri do not have."""
INPUT = (
    "the input: that it is of the data and the unit named, and that contributions were bounded as said, shows in no "
    "release; the maker's signature and the ledger vouch for it"
)
STATED = "software, versions, the source of randomness and caveats beyond the recipe's: as the maker states them"


def check(
    folder: Path, manifest: Mapping[str, Any], faults: list[str], *, sentences: bool = True
) -> tuple[list[str], Protected | None]:
    """Add a fault for everything that a manifest and its tables say and that its own numbers refute; without
    `sentences` for the promise, the recipe and the values alone. Returns what was not computed again, each with its
    reason, and the release, where it was read whole."""
    notes: list[str] = []
    read_whole: Protected | None = None
    try:
        release, whole = _read(folder, manifest)
        read_whole = release if whole else None
        _check(folder, manifest, release, whole, faults, notes, sentences)
    except UNREADABLE:
        faults.append(f"{MANIFEST}: its recipe or its measurements cannot be read")
    return [*notes, INPUT, STATED], read_whole


def same_version(manifest: Mapping[str, Any]) -> bool:
    """Whether this version of kasuri made the release; one whose manifest has no recipe is of an earlier one."""
    implementation = manifest["privacy"]["implementation"]
    versions = implementation["environment"].get("versions")
    same = isinstance(versions, dict) and versions.get("kasuri") == _versions()["kasuri"]
    return same and "recipe" in implementation


class _InParts:
    """A release whose cells a cluster wrote in parts, as the manifest of one tells it."""

    receipt = None

    def __init__(self, release: Protected, total: int | float) -> None:
        self.domain, self.guarantee = release.domain, release.guarantee
        self.recipe, self.provenance, self.non_zero = release.recipe, release.provenance, release.non_zero
        self._total = total

    def total(self) -> int | float:
        return self._total


def _check(
    folder: Path, manifest: Mapping[str, Any], release: Protected, whole: bool, faults: list[str], notes: list[str],
    sentences: bool,
) -> None:  # fmt: skip
    implementation, guarantee = manifest["privacy"]["implementation"], claimed(manifest)
    words = release.recipe
    if implementation.get("recipe", dict(words)) != dict(words):
        faults.append(f"{MANIFEST}: its recipe is not that of release_meta.parquet")
    faults += [f"{MANIFEST}: {fault}" for fault in (*_paid(manifest, guarantee), *_made_with(implementation))]
    try:
        run, again = read(words, release.domain, guarantee.unit, guarantee.epsilon), True
    except UntoldError as error:
        notes.append(f"the matrix of the recipe: {error}")
        try:  # its rows, where they are told, have a cost; the rest of the promise does not rest on it
            run, again = read(words, release.domain, guarantee.unit, guarantee.epsilon, told=True), False
        except FormatError:
            faults.append(f"{MANIFEST}: no recipe is described like this on this domain, unit and epsilon")
            return
    except FormatError:
        faults.append(f"{MANIFEST}: no recipe is described like this on this domain, unit and epsilon")
        return
    faults += [f"{MANIFEST}: {fault}" for fault in _promise(manifest, guarantee, run)]
    names = files_of("measurements", (item["path"] for item in manifest["resources"]))
    if bool(names) != run.publishes:
        faults.append(f"{MANIFEST}: its recipe publishes {'no ' if names else ''}measurements")
        return
    try:
        own, untold = run.retold(words, release.measurements)
    except KasuriError:
        faults.append(f"{MANIFEST}: its preset, or what chose it, is not what its recipe chooses by")
        return
    notes += untold
    own = _optimised(run, own, words, notes)
    unlike = sorted(_unlike(words, own, set() if same_version(manifest) else LATER))
    faults += [f"{MANIFEST}: {name} is not what the recipe gives on this domain, unit and epsilon" for name in unlike]
    if not unlike and mechanisms(own, guarantee.epsilon) != implementation["mechanisms"]:
        faults.append(f"{MANIFEST}: a scale or sensitivity is not what the recipe gives")
    if faults:
        return
    if again:
        faults += [f"{MANIFEST}: {fault}" for fault in _price(manifest, run, guarantee)]
        _plan(manifest, run, guarantee, faults, notes)
    else:
        notes.append("configuration_hash: the matrix it is made of is not published")
    paths = [item["path"] for item in manifest["resources"]]
    faults += [f"{files_of('release', paths)[0]}: {fault}" for fault in _kernels(manifest)]
    if faults:
        return
    in_parts = "release.parquet" not in paths
    large = () if whole or in_parts else ("total", "intervals", "expected_error")
    if sentences:
        _remade(folder, manifest, _InParts(release, manifest["total"]) if in_parts else release, large, faults, notes)
    if manifest["intervals"]["level"] is not None and implementation["environment"].get("machine") != machine():
        notes.append("lower and upper: to within 1 in a few cells; made with other versions or on another machine")
    if not whole:
        notes.append(f"values: more than {ROWS} rows")
        notes += [f"{name}: not made again for more than {ROWS} rows" for name in large]
        return
    _values(folder, manifest, run, release, faults, notes)


def _read(folder: Path, manifest: Mapping[str, Any]) -> tuple[Protected, bool]:
    """The release, or one without cells where its files have more than ROWS rows; and which it is."""
    from pyarrow import parquet

    paths = [item["path"] for item in manifest["resources"]]
    files = [*files_of("release", paths), *files_of("measurements", paths)]
    if sum(parquet.read_metadata(folder / name).num_rows for name in files) <= ROWS:
        return saved.read(folder, manifest), True
    (meta,) = read_parquet(folder / "release_meta.parquet").to_pylist()
    none = np.zeros(0, dtype=np.int64)
    words, origin = (MappingProxyType(json.loads(meta[name])) for name in ("recipe", "provenance"))
    domain = Domain.from_json(manifest["domain"])
    return Protected(domain, none, none, None, claimed(manifest), words, origin), False


def _unlike(words: Mapping[str, Any], own: Mapping[str, Any], later: set[str]) -> Iterator[str]:
    """Names of the words that differ; an earlier kasuri did not write those that came `later`."""
    for name in words.keys() | own.keys():
        if name not in words and name in later:
            continue
        if text(json.loads(json.dumps(own.get(name)))) != text(words.get(name)):  # to the letter, as in `_apart`
            yield name if name in own else "a further word"


def _promise(manifest: Mapping[str, Any], said: Guarantee, run: Run) -> Iterator[str]:
    """Where the promise is not the one that the recipe makes."""
    own = run.guarantee
    for name in ("model", "epsilon", "delta", "rho", "unit", "public", "basis"):
        if getattr(said, name) != getattr(own, name):
            yield f"{name} is not that of the recipe"
    rests = {KEYSTREAM, IDEALISED, NO_LEDGER}
    unmetered = manifest["privacy"]["accounting"].get("ledger") is None
    wanted = {*own.assumes, *([NO_LEDGER] if unmetered else [])}
    if not wanted <= set(said.assumes) or (set(said.assumes) & rests) != (wanted & rests):
        yield "assumes is not what the recipe and the ledger rest on"
    enforced = manifest["privacy"]["privacy_loss"]["contribution_bound"]["enforced"]
    if enforced.startswith("by the provider") != (PROVIDER_BOUNDED in said.assumes):
        yield "says in two ways who bounded contributions, and they differ"


def _made_with(implementation: Mapping[str, Any]) -> Iterator[str]:
    """Where what is stated about the making contradicts itself."""
    versions = implementation["environment"].get("versions")
    if isinstance(versions, dict):
        if implementation["environment"].get("hash") != versions_hash(versions):
            yield "the hash of its versions is not theirs"
        if implementation["software"] != f"kasuri {versions.get('kasuri')}":
            yield "names two versions of kasuri"
        if not all(isinstance(told, str) and _VERSION.fullmatch(told) for told in versions.values()):
            yield "a version is not one"
        if versions.get("kasuri") == _versions()["kasuri"] and versions.keys() != _versions().keys():
            yield "its versions are not those of what kasuri runs on"
    rest = {name: told for name, told in implementation["environment"].items() if name not in ("versions", "hash")}
    if rest.keys() - {"machine"} or not _MACHINE.fullmatch(str(rest.get("machine", "a 000000000000"))):
        yield "says more of its environment than kasuri does"
    if implementation.get("refinement", {}).keys() - {"version"}:
        yield "says more of its refinement than kasuri does"
    if implementation["secure"] and implementation["randomness"] != secure().words():
        yield "its randomness is not that of a secure source"


_VERSION, _MACHINE = re.compile(r"[0-9A-Za-z.+!-]{1,40}"), re.compile(r"[0-9A-Za-z_-]{0,20} [0-9a-f]{12}")


def _paid(manifest: Mapping[str, Any], said: Guarantee) -> Iterator[str]:
    """Where the receipt of the ledger does not add up, or is for another price than the promise has."""
    ledger = manifest["privacy"]["accounting"].get("ledger")
    if ledger is None:
        return
    before, after, charged = ledger["before"], ledger["after"], ledger["charged"]
    amounts = [
        {name: written(balance[name]) for name in ("allowance", "spent", "set_aside", "left")}
        for balance in (before, after)
    ]
    amount = written(charged["amount"])
    sums = all(each["left"] == each["allowance"] - each["spent"] - each["set_aside"] for each in amounts)
    same = amounts[0]["allowance"] == amounts[1]["allowance"]
    real = type(ledger["entry"]) is int and ledger["entry"] > 1 and min(map(min, (a.values() for a in amounts))) >= 0
    currency = "rho" if ledger["accounting"] == "zcdp" else "epsilon"
    alike = {part["currency"] for part in (before, after, charged)} == {currency}
    if not (sums and same and real and alike) or amounts[1]["spent"] - amounts[0]["spent"] != amount:
        yield "the ledger's receipt does not add up"
    if not _formed(ledger):
        yield "the ledger's receipt says something else than receipts do"
    price = said.epsilon
    if ledger["accounting"] == "zcdp":
        price = said.rho if said.rho is not None else said.epsilon**2 / 2
    if "series" in ledger:
        dear = _in_series(ledger, said, amounts) == amount and "split" not in ledger
    elif "window" in ledger:  # nothing is used up: every window has its price from the start
        asides = {written(ledger["window"]["price"])} | {each["set_aside"] for each in amounts}
        dear = amount == 0 and ledger["accounting"] == "window" and len(asides) == 1 and said.unit.per == "slot"
    elif "split" in ledger:  # charged in parallel: any part of the price
        dear = 0 <= amount <= price and currency == "epsilon" and said.unit.change == "add-remove" and not said.delta
        dear = dear and ledger["split"]["parts_per_unit"] == said.unit.max_cells
    else:  # an earlier kasuri did not say that it was a part
        dear = amount == price or (not same_version(manifest) and 0 <= amount <= price)
    if not dear:
        yield "the ledger was charged another price than the promise has"


_RECEIPT = {"ledger", "entry", "hash", "accounting", "charged", "before", "after"}
_BALANCE = {"currency", "allowance", "spent", "set_aside", "left", "delta_spent", "delta_left"}
_PLACE = {
    "series": {"number", "of", "price"},
    "split": {"id", "part", "parts_per_unit"},
    "window": {"slot", "length", "span", "words", "price", "delta"},
}


def _formed(ledger: Mapping[str, Any]) -> bool:
    """Whether a receipt says no more than receipts do, and of a slot what follows from its window: a certificate prints
    the span in words, and delta."""
    balances = [ledger["before"], ledger["after"]]
    known = all(ledger[name].keys() == _PLACE.get(name) for name in ledger.keys() - _RECEIPT)
    if not known or set().union(*balances) - _BALANCE or ledger["charged"].keys() != {"currency", "amount"}:
        return False
    if "window" not in ledger:
        return True
    told = ledger["window"]
    window = Window(told["span"], told["length"], told["slot"][-6:])
    deltas = {decimal(written(each["delta_spent"]) + written(each["delta_left"])) for each in balances}
    return {told["delta"]} == deltas and (told["words"], told["slot"]) == (
        window.words(), window.label(window.index(told["slot"])),
    )  # fmt: skip


def _in_series(ledger: Mapping[str, Any], said: Guarantee, amounts: Sequence[Mapping[str, Fraction]]) -> Fraction:
    """What a release of a declared series takes out of what was set aside for it; -1 where it cannot be one."""
    series, price = ledger["series"], written(ledger["series"]["price"])
    number, of = series["number"], series["of"]
    if ledger["accounting"] != "pld" or not 0 < price <= of * said.epsilon or not 1 <= number <= of:
        return Fraction(-1)
    used = [min(said.epsilon * n, price) for n in (number - 1, number)]
    aside = all(each["set_aside"] == price - own for each, own in zip(amounts, used, strict=True))
    return used[1] - used[0] if aside else Fraction(-1)


def _price(manifest: Mapping[str, Any], run: Run, said: Guarantee) -> Iterator[str]:
    """Where a declared series costs something else than its recipe's privacy-loss distribution."""
    ledger = manifest["privacy"]["accounting"].get("ledger")
    if ledger is None or not ("series" in ledger or "window" in ledger):
        return
    told = ledger.get("series") or ledger["window"]
    releases = told["of"] if "series" in ledger else Window(told["span"], told["length"]).slots
    spent, left = ([written(ledger[when].get(name, "0")) for when in _WHEN] for name in ("delta_spent", "delta_left"))
    series = run.mechanism.series(run.domain, said.unit, said.epsilon, releases)
    own = [series.price(delta) for delta in {a + b for a, b in zip(spent, left, strict=True)}]
    if len(own) != 1 or abs(own[0] - written(told["price"])) > _DIGIT:
        yield "a series of these releases has another price"


_WHEN = ("before", "after")
_DIGIT = Fraction(1, 10**6)
"""What another machine may round a price of a series by."""


def _optimised(run: Run, own: dict[str, Any], words: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    """An optimised strategy may be rounded otherwise on another machine: its own cost is then taken, if it is near."""
    if not run.optimised:
        return own
    said = own
    if "rows" in words and words["rows"] != own.get("rows"):  # their cost is that of the rows that are told
        claim = run.guarantee
        other = read(words, run.domain, claim.unit, claim.epsilon, told=True)
        said = own | {name: other.words()[name] for name in ("scale", "sensitivity", "rows")}
        sensitivity = other.sensitivity
    else:
        sensitivity = written(words["scale"]) * run.guarantee.epsilon
        if sensitivity != run.sensitivity:
            said = own | {"scale": words["scale"], "sensitivity": decimal(sensitivity)}
    if said == own or abs(sensitivity / run.sensitivity - 1) > Fraction(1, 50):
        return own
    notes.append("scale and sensitivity: to within 2 %; optimised on this machine, the matrix is rounded otherwise")
    return said


def _plan(manifest: Mapping[str, Any], run: Run, said: Guarantee, faults: list[str], notes: list[str]) -> None:
    """The fingerprint of recipe, domain, unit and epsilon. An earlier kasuri did not say whether a descent was asked
    for, or came from "auto"."""
    mechanism = run.mechanism
    untold = [table for table, _ in mechanism.tables if isinstance(table, Named) and not table.digest]
    versions = manifest["privacy"]["implementation"]["environment"].get("versions")
    judged = manifest["privacy"].get("acceptance")
    if untold or not isinstance(versions, dict) or versions.get("kasuri") != _versions()["kasuri"]:
        why = "a public table is named without its fingerprint" if untold else "made by another version of kasuri"
        notes += [f"{what}: {why}" for what in ("configuration_hash", *(() if judged is None else ("acceptance",)))]
        return
    tried = [mechanism, *mechanism.once_told_alike()]
    if judged is not None:
        here = manifest["privacy"]["implementation"]["environment"].get("machine") == machine()
        wrong, untold_of = acceptance.wrong(judged, run, here=here)
        faults += [f"{MANIFEST}: {fault}" for fault in wrong]
        notes += untold_of
    hashes = [acceptance.fingerprint(each.plan(run.domain, said.unit, said.epsilon), judged) for each in tried]
    if manifest["privacy"]["implementation"].get("configuration_hash") not in hashes:
        faults.append(f"{MANIFEST}: configuration_hash is not that of recipe, domain, unit and epsilon")


def _remade(
    folder: Path, manifest: Mapping[str, Any], release: Described, large: Sequence[str], faults: list[str],
    notes: list[str],
) -> None:  # fmt: skip
    """The manifest written once more from its recipe, promise and tables, but for what a `large` table does without;
    another version of kasuri has other sentences."""
    if not same_version(manifest):
        notes.append(f"the sentences and expected errors of {MANIFEST}: made by another version of kasuri")
        return
    own = json.loads(json.dumps(described(release, privacy_block(release))))
    stated = manifest["privacy"]["implementation"]
    own["privacy"]["implementation"] |= {name: stated.get(name) for name in ("environment", "refinement")}
    if isinstance(release, Protected) and (method := manifest["intervals"].get("method")) in intervals.earlier(release):
        own["intervals"]["method"] = method  # the columns are compared with its limits
    apart = [name for name in _apart(own, manifest) if name.split(".")[-1] not in large]
    faults += [f"{MANIFEST}: {name} is not what follows from the rest" for name in apart]
    for item in manifest["resources"]:
        if item != json.loads(json.dumps(resource(folder / item["path"], release))):
            faults.append(f"{MANIFEST}: describes {item['path']} otherwise than it is")


def dated_limits(folder: Path, manifest: Mapping[str, Any]) -> bool:
    """Were the limits of this release made by an earlier rule, which its manifest names?"""
    method = (manifest.get("intervals") or {}).get("method")
    return isinstance(method, str) and method in intervals.earlier(saved.read(folder, manifest))


def _versions() -> Any:
    return environment()["versions"]


def _apart(own: Mapping[str, Any], said: Mapping[str, Any], where: str = "") -> Iterator[str]:
    """Names of the fields of `own` that are said otherwise, or not at all; below `privacy` one by one."""
    for name, value in own.items():
        if name in ("privacy", "implementation", "privacy_loss", "dp_variant", "accounting"):
            yield from _apart(value, said.get(name, {}), f"{where}{name}.")
        elif name not in said or text(said[name]) != text(value):  # to the letter: 1, 1.0 and true are equal numbers
            yield f"{where}{name}"
    beyond = said.keys() - own.keys() - {"digest", "report", "resources"}
    yield from (f"a further field of {where.rstrip('.') or 'it'}" for _ in beyond)


def _values(
    folder: Path, manifest: Mapping[str, Any], run: Run, release: Protected, faults: list[str], notes: list[str]
) -> None:
    """The values against the measurements, and against what every table of this recipe has."""
    paths = [item["path"] for item in manifest["resources"]]
    table, names = files_of("release", paths)[0], files_of("measurements", paths)
    if not run.lawful(release.values):
        faults.append(f"{table}: not a table that this recipe releases")
        return
    if release.measurements is not None:
        fault = _measured(folder, names, release.measurements)
        if fault is not None:
            faults.append(f"{names[0]}: {fault}")
            return
    again = run.replay(Drawn(release.cells, release.values, release.measurements, release.recipe))
    wrong = again.wrong_values
    if again.found is not None:
        wrong = _refined(manifest, release, again.found, notes)
    if again.wrong_measurements is not None or wrong is not None:
        at, fault = (names[0], again.wrong_measurements) if again.wrong_measurements is not None else (table, wrong)
        faults.append(f"{at}: {fault}")
        return
    notes += again.notes
    if again.shown is None:
        notes.append("the noise: it is random, and this recipe publishes no noisy number that would show its size")
    elif too_little(again.shown, again.apart):
        faults.append(f"{table}: its noisy numbers hold less noise than their scale says")
    else:
        notes.append("the noise: it is random; tested was only that it is not too small for its scale")


def _kernels(manifest: Mapping[str, Any]) -> Iterator[str]:
    """A fault where this kasuri does not know the version of the refinement, which every release states."""
    version = manifest["privacy"]["implementation"].get("refinement", {}).get("version", 1)
    if type(version) is int and version > refine.VERSION:
        yield f"refined by version {version}, newer than this kasuri runs; update kasuri"
    elif type(version) is not int or version < 1 or (same_version(manifest) and version != refine.VERSION):
        yield "refined by a version of the kernels that never was"


def _refined(manifest: Mapping[str, Any], release: Protected, found: tuple[Any, Any], notes: list[str]) -> str | None:
    """The fault of values that are not what the measurements give: to the last one where this machine made them, to
    within rounding where another did."""
    implementation = manifest["privacy"]["implementation"]
    version = implementation.get("refinement", {}).get("version", 1)
    if version != refine.VERSION:
        notes.append(f"values: refined by version {version} of the kernels; this kasuri has {refine.VERSION}")
        return None
    if np.array_equal(found[0], release.cells) and np.array_equal(found[1], release.values):
        return None
    here = implementation["environment"].get("machine") == machine()
    if here or not _near(release.cells, release.values, found):
        return "its values do not follow from the measurements"
    rounded = f"to within rounding (at most {FURTHEST} in a cell)"
    notes.append(f"values: {rounded}; made with other versions or on another kind of machine")
    return None


def _measured(folder: Path, names: list[str], measured: Measurements) -> str | None:
    """What is wrong with the table of measurements, before anything is made of its numbers."""
    import pyarrow as pa

    said = pa.concat_tables(read_parquet(folder / name) for name in names).combine_chunks()
    if not said.equals(measured_table(measured).combine_chunks()):
        return "is not a table of measurements"
    return None if _rising(measured) else "its nodes are not rising"


def _rising(measured: Measurements) -> bool:
    step = np.diff(measured.level)
    return bool(((step > 0) | ((step == 0) & (np.diff(measured.prefix) > 0))).all())


def _near(cells: Any, values: Any, other: tuple[Any, Any]) -> bool:
    """Whether two tables of one total differ by no more than rounding does on another machine: by at most 1 in all
    cells but one of a hundred, and by at most FURTHEST there."""
    both = np.union1d(cells, other[0])
    one, two = np.zeros(both.size), np.zeros(both.size)
    one[np.searchsorted(both, cells)] = values
    two[np.searchsorted(both, other[0])] = other[1]
    gap = np.abs(one - two)
    far = int(np.count_nonzero(gap > 1))
    same = sum(values.tolist()) == sum(other[1].tolist())
    return same and 100 * far <= both.size and gap.max(initial=0) <= FURTHEST
