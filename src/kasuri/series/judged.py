"""What a published slot says beside its map, judged by ledger, files and noise."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kasuri import names
from kasuri.budget.ledger import Ledger, Receipt
from kasuri.errors import FormatError, KasuriError
from kasuri.files import read_parquet
from kasuri.noise.evidence import too_little
from kasuri.noise.rng import secure
from kasuri.published.measurements import Measurements
from kasuri.recipes.replay import WRONG_SCALE, apart, visited
from kasuri.recipes.visit import Visit
from kasuri.schema import Window
from kasuri.series import folder as disk
from kasuri.store.columns import measured_table

_FIELDS: dict[str, type] = {
    "number": int, "previous": str, "slot": str, "status": str, "used": int, "release_id": str, "ledger": dict,
    "software": str, "source": str, "assumes": list, "flags": list, "files": dict, "digest": str, "folder": Path,
}  # fmt: skip
_SOFTWARE = re.compile(r"kasuri [0-9A-Za-z.+!-]{1,40}")
_MAP = [("cell", "int64"), ("value", "int64"), ("model_error", "float")]


def formed(one: Mapping[str, Any], window: Window) -> bool:
    """Whether a slot says what slots say, no less and no more."""
    if one.keys() != _FIELDS.keys() or not all(isinstance(one[name], kind) for name, kind in _FIELDS.items()):
        return False
    if isinstance(one["number"], bool) or not _SOFTWARE.fullmatch(one["software"]):
        return False
    paid = one["ledger"]
    if one["files"].keys() != set(disk.TABLES) or [type(paid.get(name)) for name in ("entry", "hash")] != [int, str]:
        return False
    try:
        return window.label(window.index(one["slot"])) == one["slot"]
    except KasuriError:
        return False


def places(home: Path, said: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Where a slot is not in the one folder of its name, or a folder is nobody's."""
    known: set[str] = set()
    for one in said:
        name = disk.name(one["slot"])
        if one["folder"].name != name or name in known:
            yield f"slot {one['slot']}: is not in the folder of its name, or is there twice"
        known.add(name)
    for path in sorted((home / "slots").iterdir()):
        if not path.name.startswith(".") and path.name not in known:
            yield f"slots/{path.name}: not a slot of the series"


def missing(told: Mapping[str, Any], paid: Collection[int], window: Window) -> Iterator[str]:
    """Where what is declared missing is published all the same, or is not what a declaration says."""
    for label, reason in told.items():
        try:
            index = window.index(label)
            plain = window.label(index) == label
        except KasuriError:
            index, plain = -1, False
        if not plain or reason_faults(reason):
            yield "does not say which slots are missing, each with its public reason"
        elif index in paid:
            yield f"slot {label} was paid for and is not missing"


def reason_faults(reason: object) -> list[str]:
    """What is wrong with the public reason for which a slot is missing; it is printed beside a promise."""
    if not isinstance(reason, str) or len(reason.strip()) < 8:
        return [
            "a slot is declared missing with its public reason, in words; without one release the slot as it is: "
            "that it is empty would otherwise be published without noise"
        ]
    return names.faults(reason, "reason")


def words(
    one: Mapping[str, Any], entry: Mapping[str, Any], timely: Sequence[str], window: Window, ledger: Ledger
) -> Iterator[str]:
    """Where a slot says something else than its ledger entry and the slots before it, of which those in `timely` were
    published in time."""
    index = window.index(one["slot"])
    late = bool(timely) and index < window.index(timely[-1])
    if (one["status"], one["used"]) != (("late", 0) if late else ("first", len(timely))):
        yield "its status, or how many slots it was filtered with, does not follow from the slots before it"
    if one["assumes"] != entry["assumes"] or one["source"] != secure().words():
        yield "rests on other assumptions, or on another source of randomness, than was paid for"
    now = ledger.balance()  # a slot costs nothing: the price of the window was set aside when the ledger was opened
    own = Receipt(ledger, one["ledger"]["entry"], one["ledger"]["hash"], now, now, slot=index).reference()
    if one["ledger"] != own | dict.fromkeys(("before", "after"), entry["balance"]):
        yield "tells of its ledger what the ledger does not"


def tables(folder: Path, numbers: Measurements) -> Iterator[str]:
    """Where a slot's folder holds anything beside its numbers and its map."""
    if {path.name for path in folder.iterdir()} != {*disk.TABLES, disk.SLOT}:
        yield "its folder has another file"
    first, second = (read_parquet(folder / name).combine_chunks() for name in disk.TABLES)
    if first.schema.metadata or not first.equals(measured_table(numbers).combine_chunks()):
        yield f"{disk.TABLES[0]} is not a table of measurements"
    if second.schema.metadata or [(field.name, str(field.type)) for field in second.schema] != _MAP:
        yield f"{disk.TABLES[1]} has other columns than a map, or words beside them"


def noise(visit: Visit, numbers: Measurements) -> None:
    """FormatError where the numbers are not those that the visit draws, or hold less noise than their scale says."""
    scales = dict(zip(visit.cuts, visit.scales, strict=True))
    if any(scales.get(level) != scale for level, scale in numbers.scale.items()):
        raise FormatError(WRONG_SCALE)
    tree = visited(visit, numbers)
    shown = [visit.law(scale).chances(level.y) for level, scale in zip(tree.levels, tree.scales, strict=True)]
    if too_little(shown, apart(tree, None, visit.law)):
        raise FormatError("its noisy numbers hold less noise than their scale says")
