"""One sheet of an Excel workbook (.xlsx) as a table of text: each cell by itself, as a CSV file would hold it.

Whole numbers are digits, dates are 2020-10-01 and times 2020-10-01 13:00:00, an empty cell is unknown. So is an error
(#N/A, #SPILL!), and a number of more than 15 digits: Excel has rounded it, and two people would share an id. A row with
more cells than the header is left out, as in CSV, and so is one with a date or a time that no calendar has.
"""

from __future__ import annotations

import datetime
import io
import re
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from kasuri.errors import DomainError, FormatError

_BATCH = 1 << 16
_UNFOLDS = 1 << 31  # bytes of all parts unpacked: a full sheet of ten columns has about a quarter
_EXACT = 10**15


@contextmanager
def opened(path: Path, name: str | None) -> Iterator[Any]:
    """The sheet `name`, or the only one that has cells and is not hidden."""
    import python_calamine as calamine

    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(part.file_size for part in archive.infolist())
    except (zipfile.BadZipFile, OSError):
        raise FormatError(f"{path}: cannot be read as .xlsx; is it damaged, or protected by a password?") from None
    if size > _UNFOLDS:
        raise FormatError(f"{path}: unfolds to more than 2 GB; save it as CSV or Parquet")
    try:
        with ExitStack() as books:
            book = books.enter_context(calamine.CalamineWorkbook.from_path(str(path)))
            try:
                sheet = _sheet(path, book, name)
            except calamine.CalamineError:  # one cell with an error that the reader does not know ends its sheet
                copy = calamine.CalamineWorkbook.from_filelike(_plain_errors(path))
                sheet = _sheet(path, books.enter_context(copy), name)
            yield sheet
    except calamine.CalamineError as error:
        raise FormatError(f"{path}: cannot be read as .xlsx ({type(error).__name__}); is it damaged?") from None


def _sheet(path: Path, book: Any, name: str | None) -> Any:
    import python_calamine as calamine

    shown = [
        sheet.name
        for sheet in book.sheets_metadata
        if sheet.visible == calamine.SheetVisibleEnum.Visible and sheet.typ == calamine.SheetTypeEnum.WorkSheet
    ]
    if name is not None and name not in book.sheet_names:
        raise DomainError(f"{path}: no sheet {name!r}; its sheets are {', '.join(book.sheet_names)}")
    full = [name] if name is not None else [one for one in shown if book.get_sheet_by_name(one).height]
    if not full:
        raise DomainError(f"{path}: no sheet has cells; save the table into one")
    if len(full) > 1:
        raise DomainError(f"{path}: several sheets have cells; choose one with sheet = ...: {', '.join(full)}")
    return book.get_sheet_by_name(full[0])


_ERROR = re.compile(rb"""(<(?:\w+:)?c\s[^<>]*\bt=["']e["'][^<>]*(?<!/)>).*?(</(?:\w+:)?c>)""", re.DOTALL)


def _plain_errors(path: Path) -> io.BytesIO:
    """The workbook in memory, every cell with an error (#SPILL!, #CALC!, ...) without its content: it is unknown, as
    those are whose error the reader knows."""
    made = io.BytesIO()
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as copy:
        for part in archive.infolist():
            held = archive.read(part)
            copy.writestr(part.filename, _ERROR.sub(rb"\1\2", held) if part.filename.endswith(".xml") else held)
    made.seek(0)
    return made


def header(path: Path, sheet: Any) -> tuple[str, ...]:
    """Column names: the first row that is not empty, without gaps."""
    row: list[Any] = next((row for row in sheet.iter_rows() if any(cell != "" for cell in row)), [])
    names = [text(cell) or "" for cell in row]
    while names and not names[-1].strip():
        names.pop()
    if not names:
        raise DomainError(f"{path}: the sheet is empty; a header row with a name for each column is needed")
    gaps = [_letter(at) for at, name in enumerate(names) if not name.strip()]
    if gaps:
        raise DomainError(
            f"{path}: its first row has no name in column {', '.join(gaps)}; leave one header row, with a name for "
            "each column and nothing above it"
        )
    if sheet.merged_cell_ranges:
        raise DomainError(
            f"{path}: {len(sheet.merged_cell_ranges)} groups of cells are merged, so that rows lack values; "
            "unmerge them in Excel and fill each cell"
        )
    return tuple(names)


def batches(path: Path, sheet: Any, wanted: Sequence[str], ragged: list[int]) -> Iterator[tuple[Any, float]]:
    """The rows below the header as Arrow text, with the share that is read by then."""
    import pyarrow as pa

    names = header(path, sheet)
    at = [names.index(name) for name in wanted]
    below, number, total = False, 0, max(1, sheet.total_height)
    rows: list[list[str | None]] = []

    def made() -> Any:
        columns = [pa.array([row[i] for row in rows], pa.string()) for i in range(len(wanted))]
        return pa.RecordBatch.from_arrays(columns, names=list(wanted))

    for row in _rows(sheet):
        if not below:  # up to the header
            below = any(cell != "" for cell in row)
            continue
        if row and all(cell == "" for cell in row):  # passed over, as an empty line of a CSV file is
            continue
        number += 1
        if not row or any(cell != "" for cell in row[len(names) :]):
            ragged.append(number)
        else:
            rows.append([text(row[i]) for i in at])
        if len(rows) == _BATCH:
            yield made(), min(1.0, number / total)
            rows = []
    yield made(), 1.0


def _rows(sheet: Any) -> Iterator[list[Any]]:
    """The rows of a sheet; one that has a number in the form of a date or a time, and too large for either, is empty.
    There the reader raises, of its own kind if it was negative, and goes on with the next row when asked again."""
    rows = iter(sheet.iter_rows())
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except BaseException as error:
            if not isinstance(error, OverflowError) and type(error).__module__ != "pyo3_runtime":
                raise
            row = []
        yield row


def text(cell: Any) -> str | None:
    """A cell as a CSV file would hold it."""
    if cell == "" or cell is None:
        return None
    if isinstance(cell, bool):
        return "TRUE" if cell else "FALSE"
    if isinstance(cell, (int, float)):
        if abs(cell) >= _EXACT or cell != cell:
            return None
        return str(int(cell)) if cell == int(cell) else repr(cell)
    if isinstance(cell, datetime.datetime):
        midnight = cell.time() == datetime.time()
        return cell.date().isoformat() if midnight else cell.isoformat(" ", timespec="seconds")
    return str(cell)


def _letter(at: int) -> str:
    name = ""
    at += 1
    while at:
        at, rest = divmod(at - 1, 26)
        name = chr(65 + rest) + name
    return name
