"""Files of reports: Parquet, with the round they belong to."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kasuri.errors import FormatError, PrivacyError
from kasuri.files import read_parquet, whole
from kasuri.local.randomizer import Reports, Rows
from kasuri.local.wire import Round, read_round


def write_reports(path: str | Path, reports: Reports, rounded: Round) -> None:
    """Reports as Parquet: one fixed-size binary column, the signed text of the round in the file's metadata;
    nobody but the owner may read the file, whose rows are people's.

    Bare rows are refused: they no longer say which randomizer drew them, nor whether from a seed."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not isinstance(reports, Reports):
        raise PrivacyError("write_reports takes what `randomize` gave, not its bare rows")
    rows = reports.leave(rounded.randomizer.fingerprint)
    rounded.randomizer.check(rows)
    data = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(rounded.randomizer.width), rows.shape[0], [None, pa.py_buffer(rows.tobytes())]
    )
    table = pa.table({"report": data}).replace_schema_metadata({"kasuri.round": rounded.text})
    with whole(path, private=True) as part:
        pq.write_table(table, part)


def read_reports(path: str | Path) -> tuple[Rows, Round]:
    """(rows, round) of a file that `write_reports` wrote; refuses any other."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not Path(path).is_file():
        raise FormatError(f"{path}: no such file")
    try:
        text = (pq.read_schema(path).metadata or {})[b"kasuri.round"].decode()  # the head before the rows
        table = read_parquet(path, ["report"])
        column = table.column("report").combine_chunks()
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError):
        raise FormatError(
            "not a file of reports: a Parquet column `report` with kasuri.round in its metadata"
        ) from None
    rounded = read_round(text)
    if column.type != pa.binary(rounded.randomizer.width) or column.null_count:
        raise FormatError(f"column report: {rounded.randomizer.width} bytes each, none missing")
    chunk = column if isinstance(column, pa.Array) else pa.concat_arrays(column.chunks)
    width = rounded.randomizer.width
    raw = np.frombuffer(chunk.buffers()[1], np.uint8)[chunk.offset * width :][: len(chunk) * width]
    rows = raw.reshape(-1, width)
    rounded.randomizer.check(rows)
    return rows, rounded
