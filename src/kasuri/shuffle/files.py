"""Files of the join: Parquet with the format's version and the plan's hash, written whole or not at all."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kasuri.errors import DomainError, FormatError, ProtocolError
from kasuri.files import place, read_parquet
from kasuri.shuffle.columns import Codes, Column
from kasuri.shuffle.plan import Plan

FORMAT = 1
SHUFFLED, JOINED = "shuffled table", "joined table"
_FIELD = b"kasuri"


def write(
    path: str | Path,
    kind: str,
    plan: Plan,
    arrays: Mapping[str, Any],
    head: Mapping[str, Any],
    commit: Callable[[], None] | None = None,
) -> None:
    """Write a new file; an existing one is refused. `commit` is called when all is on disk and before it appears."""
    import pyarrow as pa
    from pyarrow import parquet

    target = Path(path)
    refuse_existing(target)
    said = {"kind": kind, "version": FORMAT, "plan": plan.to_json(), "plan_hash": plan.hash, **head}
    table = pa.table(dict(arrays)).replace_schema_metadata({_FIELD: json.dumps(said, ensure_ascii=False).encode()})
    aside = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(table, aside, compression="zstd", row_group_size=1 << 20)
        with open(aside, "rb") as file:
            os.fsync(file.fileno())
        if commit is not None:
            commit()
        place(aside, target)
    except OSError as error:
        raise DomainError(f"{target}: not written ({error.strerror})") from None
    finally:
        aside.unlink(missing_ok=True)


def refuse_existing(path: str | Path) -> None:
    """Refuse a target that is there already, before anything is drawn or charged for it."""
    if os.path.lexists(path):
        raise DomainError(f"{path} exists; it is never written over. Choose another name")


def read(path: str | Path, kind: str, plan: Plan | None) -> tuple[Any, dict[str, Any]]:
    """(table, head) of a file of this kind; of this plan, where one is given."""
    import pyarrow as pa
    from pyarrow import parquet

    if not Path(path).exists():
        raise DomainError(f"{path}: no such file")
    try:
        with parquet.ParquetFile(path) as file:
            head = json.loads((file.schema_arrow.metadata or {})[_FIELD])
            if head["kind"] != kind or head["version"] != FORMAT:
                raise FormatError(f"{path}: not a {kind} of version {FORMAT}")
            if not isinstance(head["plan"], dict) or (kind == JOINED and type(head["claims"]["n"]) is not int):
                raise FormatError(f"{path}: field plan or claims")
            if plan is not None and head["plan_hash"] != plan.hash:
                raise ProtocolError(f"{path}: was made under another plan; both sides must run the same plan file")
        return read_parquet(path), head
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, (FormatError, ProtocolError)):
            raise
        raise FormatError(f"{path}: not a file of `kasuri shuffle` ({type(error).__name__})") from None


def to_arrow(codes: Codes) -> Any:
    """Codes as whole numbers, packed rows as binary of fixed width."""
    import pyarrow as pa

    if codes.ndim == 1:
        return pa.array(codes)
    rows = np.ascontiguousarray(codes)
    return pa.Array.from_buffers(pa.binary(rows.shape[1]), rows.shape[0], [None, pa.py_buffer(rows.tobytes())])


def from_arrow(column: Any, told: Column, path: str | Path) -> Codes:
    """Codes of one column, refused where the plan's randomizer could not have sent them."""
    import pyarrow as pa

    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if array.null_count:
        raise FormatError(f"{path}: column {told.name!r} has empty cells")
    if told.is_number:
        if not pa.types.is_unsigned_integer(array.type):
            raise FormatError(f"{path}: column {told.name!r}: codes are whole numbers")
        codes = array.to_numpy()
        if len(codes) and int(codes.max()) >= told.numeric.outputs:
            raise FormatError(f"{path}: column {told.name!r}: a code its randomizer cannot send")
        return codes
    made = told.category
    if array.type != pa.binary(made.width):
        raise FormatError(f"{path}: column {told.name!r}: reports of {made.width} bytes are needed")
    rows = np.frombuffer(array.buffers()[1], dtype=np.uint8)[made.width * array.offset :]
    packed = rows[: made.width * len(array)].reshape(-1, made.width)
    made.check(packed)
    return packed
