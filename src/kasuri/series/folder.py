"""The folder of a series: public facts, one folder per slot, a cache of the filter's state. All of it is public.

series.json                    what was declared
slots/2020-10-01T13-00/        measurements.parquet, map.parquet, slot.json: written aside and renamed
state.npz                      the filter's state after some slot, for speed: it follows from the measurements
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from kasuri import files
from kasuri.arrays import Float, Int
from kasuri.errors import DomainError, FormatError
from kasuri.published.measurements import Measurements
from kasuri.refine.filter import Known, State
from kasuri.refine.learn import Learned
from kasuri.store.columns import measured_table, measurements_from

FACTS, SLOT, STATE, ABSENT = "series.json", "slot.json", "state.npz", "missing.json"
TABLES = ("measurements.parquet", "map.parquet")


def name(label: str) -> str:
    """The folder of a slot, by its start without the zone."""
    return label[:16].replace(":", "-")


@contextmanager
def alone(folder: Path, name: str = ".lock") -> Iterator[None]:
    """Alone with the folder: one process releases at a time."""
    handle = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def text(told: Mapping[str, Any]) -> str:
    return json.dumps(told, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        raise FormatError(f"{path}: cannot be read as JSON") from None
    if not isinstance(found, dict):
        raise FormatError(f"{path}: not an object")
    return found


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_slot(aside: Path, told: dict[str, Any], numbers: Measurements, values: tuple[Int, Int, Float]) -> str:
    """Write a slot's tables into the new folder `aside`, then what is said of them; returns that text's digest."""
    import pyarrow as pa
    from pyarrow import parquet

    cells, whole, spread = values
    table = pa.table({"cell": cells, "value": whole, "model_error": spread.astype(np.float32)})
    for file, one in zip(TABLES, (measured_table(numbers), table), strict=True):
        parquet.write_table(one, aside / file, compression="zstd")
        files.sync(aside / file)
    told = told | {"files": {file: digest(aside / file) for file in TABLES}}
    files.write(aside / SLOT, text(told), new=True)  # last: a folder that has it is whole
    files.sync(aside)
    return digest(aside / SLOT)


def aside_of(folder: Path, label: str) -> Path:
    target = folder / "slots" / name(label)
    if target.exists():
        raise DomainError(f"{target} exists; a slot is published once")
    aside = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    aside.mkdir()
    return aside


def publish(aside: Path) -> None:
    """Give a finished slot its name; what is there stays."""
    os.rename(aside, aside.with_name(aside.name[1:].rsplit(".", 2)[0]))
    files.sync(aside.parent)


def parts(folder: Path) -> list[Path]:
    """Slots that a crash left unnamed."""
    return sorted((folder / "slots").glob(".*.part"))


def drop(aside: Path) -> None:
    shutil.rmtree(aside, ignore_errors=True)


def slots(folder: Path) -> list[dict[str, Any]]:
    """What is said of every published slot, in the order of publication; FormatError where one is missing."""
    found = {}
    for path in (folder / "slots").glob(f"[!.]*/{SLOT}"):
        told = read_json(path)
        found[told.get("number")] = told | {"digest": digest(path), "folder": path.parent}
    out = []
    previous = ""
    for number in range(1, len(found) + 1):
        if number not in found or found[number].get("previous") != previous:
            raise FormatError(f"{folder}: a gap: slot number {number} of the series is missing or was changed")
        out.append(found[number])
        previous = found[number]["digest"]
    return out


def measurements(folder: Path) -> Measurements:
    return measurements_from(files.read_parquet(folder / TABLES[0]))


def values(folder: Path) -> tuple[Int, Int, Float]:
    table = files.read_parquet(folder / TABLES[1])
    cell, value, spread = (table[column].to_numpy() for column in ("cell", "value", "model_error"))
    return cell, value, spread


# -- the state ---------------------------------------------------------------------------------------------------------


def packed(state: State) -> dict[str, Any]:
    """The state as plain arrays."""
    out: dict[str, Any] = {"at": np.array([state.row, state.twin]), "times": state.times}
    if state.windows.size:  # never before version 3
        out["windows"] = state.windows
    for at in range(len(state.known)):
        for kind, level in (("known", state.known[at]), ("learned", state.learned[at])):
            values = {one.name: getattr(level, one.name) for one in fields(level)}
            out |= {f"{kind}.{at}.{key}": np.asarray(value) for key, value in values.items()}
    return out


def state_digest(state: State) -> str:
    """One hash over every bit of a state."""
    found = hashlib.sha256()
    for key, array in sorted(packed(state).items()):
        found.update(f"{key} {array.dtype} {array.shape}".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def write_state(folder: Path, state: State, after: str) -> None:
    """Keep the state after the slot whose digest is `after`."""
    held = io.BytesIO()
    np.savez(held, after=np.array(after), **packed(state))
    files.write(folder / STATE, held.getvalue())


def read_state(folder: Path, levels: int) -> tuple[State, str] | None:
    """The kept state and the digest of the slot it is after; None where there is none that can be read."""
    try:
        with np.load(folder / STATE, allow_pickle=False) as found:
            row, twin = (int(number) for number in found["at"])
            known = tuple(_part(Known, found, f"known.{at}") for at in range(levels))
            learned = tuple(_part(Learned, found, f"learned.{at}") for at in range(levels))
            state = State(row, twin, found["times"], known, learned)
            state = replace(state, windows=found["windows"]) if "windows" in found else state
            return state, str(found["after"])
    except (OSError, ValueError, KeyError):
        return None


def _part(kind: Any, found: Any, prefix: str) -> Any:
    arrays = {one.name: found[f"{prefix}.{one.name}"] for one in fields(kind)}
    return kind(**{key: float(array) if array.ndim == 0 else array for key, array in arrays.items()})
