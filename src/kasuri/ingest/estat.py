"""e-Stat mesh statistics: zip or text, cp932, two header rows, suppressed cells.

The first header row holds codes (KEY_CODE, HTKSYORI, HTKSAKI, GASSAN, T001141001, ...), the second labels. HTKSYORI 2
marks a cell whose details are withheld ("*") and counted in the cell HTKSAKI names; there HTKSYORI is 1 and GASSAN
lists the cells it took in. "*" is never 0: it is accepted only where its people are found in another cell.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from kasuri import meshcode
from kasuri.errors import DomainError, FormatError, KasuriError, raise_faults, rows_faults
from kasuri.ingest.axes import aggregated
from kasuri.schema import PROVIDER_BOUNDED, Axis, Domain, Plane, Unit
from kasuri.table import Counts, checked

MERGED = "cells the provider withheld are counted in the neighbour cell the provider names"
_KEYS = ("KEY_CODE", "HTKSYORI", "HTKSAKI", "GASSAN")
_MOST = 1 << 26
"""Bytes of text that one file may hold, unpacked. The largest table of a first-order mesh has a quarter of it."""


@dataclass(frozen=True)
class _Sheet:
    name: str
    header: list[str]
    labels: list[str]
    rows: list[list[str]]


def read_estat(
    files: str | Path | Sequence[str | Path],
    domain: Domain,
    *,
    columns: str | Mapping[str, str],
    unit: Unit,
    data: str | None = None,
    suppressed: Literal["refuse", "merged"] = "refuse",
) -> Counts:
    """Counts from e-Stat mesh files (the .zip as downloaded, or its .txt).

    domain: a mesh of the files' level and, where `columns` maps labels to columns, one axis with those labels.
    columns: a column by its label ("人口（総数）") or code ("T001141001"), or {label of the axis: column}.
    suppressed: "merged" accepts withheld details ("*") as counted in the cell the provider names, and the guarantee
    then says so; "refuse" takes no column with a withheld number.

    A cell on the border of several prefectures has several rows: they are summed. Cells outside the domain's
    window are left out. Every fault of every file is named at once.
    """
    mesh, other = _axes(domain, columns)
    wanted: dict[str, str] = {"": columns} if isinstance(columns, str) else dict(columns)
    if suppressed not in ("refuse", "merged"):
        raise DomainError('suppressed must be "refuse" or "merged"')
    paths = [Path(files)] if isinstance(files, (str, Path)) else [Path(file) for file in files]
    faults = [f"{path}: given twice; its people would be counted twice" for path in paths if paths.count(path) > 1]
    sheets = [sheet for path in dict.fromkeys(paths) for sheet in _open(path, faults)]
    labels = other.labels if other is not None else None
    cells: list[np.ndarray] = []
    values: list[np.ndarray] = []
    places = _withheld_places(sheets)
    for sheet in sheets:
        found = _sheet(sheet, mesh, wanted, suppressed, places, faults)
        for label, (row, col, value) in found.items():
            index = [row, col] if other is None else [row, col, np.full(row.size, (labels or ()).index(label))]
            if other is not None and domain.axes[0] is other:
                index = [index[2], *index[:2]]
            cells.append(domain.ravel(index))
            values.append(value)
    raise_faults(DomainError, faults)
    joined = np.concatenate([np.zeros(0, np.int64), *cells])
    unique, place = np.unique(joined, return_inverse=True)
    total = np.zeros(unique.size, np.int64)
    np.add.at(total, place, np.concatenate([np.zeros(0, np.int64), *values]))
    # by the option, not by the rows: the guarantee is published and must not tell whether a cell was withheld
    assumes = (PROVIDER_BOUNDED, MERGED) if suppressed == "merged" else (PROVIDER_BOUNDED,)
    return checked(unique, total, domain, unit, data, assumes=assumes)


def _axes(domain: Domain, columns: str | Mapping[str, str]) -> tuple[Plane, Axis | None]:
    meshes = domain.planes
    others = [axis for axis in domain.axes if axis.plane is None]
    raise_faults(DomainError, aggregated(domain))
    if len(meshes) != 1 or meshes[0].level is None:
        raise DomainError("e-Stat mesh statistics need a domain with one mesh that has a level")
    if isinstance(columns, str):
        if others:
            raise DomainError(f"axis {others[0].name!r}: columns must say which column each of its labels is")
        return meshes[0], None
    if len(others) != 1 or others[0].labels is None:
        raise DomainError("columns by label need a domain of one mesh and one axis with labels")
    if sorted(columns) != sorted(others[0].labels):
        raise DomainError(f"axis {others[0].name!r}: columns must name each of its labels once")
    return meshes[0], others[0]


def _open(path: Path, faults: list[str]) -> Iterator[_Sheet]:
    if not path.exists():
        faults.append(f"{path}: no such file")
        return
    try:
        texts = _texts(path)
    except KasuriError:
        raise
    except Exception as error:  # what zipfile and zlib raise on a damaged archive is not of one family
        raise FormatError(f"{path}: cannot be read ({type(error).__name__}); download the file again") from None
    if not texts:
        faults.append(f"{path}: the archive holds no .txt table; download the file again")
    for name, content in texts:
        try:
            text = content.decode("cp932")
        except UnicodeDecodeError:
            faults.append(f"{name}: not in the encoding cp932 that e-Stat uses; was it edited and saved as UTF-8?")
            continue
        try:
            rows = list(csv.reader(io.StringIO(text, newline="")))
        except csv.Error:
            faults.append(f"{name}: cannot be read as a table of commas; download the file again")
            continue
        if len(rows) < 2 or rows[0][:1] != ["KEY_CODE"]:
            faults.append(f"{name}: the first header row must begin with KEY_CODE; is it a mesh table?")
            continue
        yield _Sheet(name, rows[0], [label.strip(" 　") for label in rows[1]], [row for row in rows[2:] if row])


def _texts(path: Path) -> list[tuple[str, bytes]]:
    """(name, content) of every table of a file, never more than _MOST bytes in all: an archive can promise anything."""
    if not zipfile.is_zipfile(path):
        with path.open("rb") as file:
            found = [(str(path), file.read(_MOST + 1))]
    else:
        found = []
        with zipfile.ZipFile(path) as archive:
            for item in archive.infolist():
                if not item.filename.lower().endswith((".txt", ".csv")):
                    continue
                if item.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise FormatError(f"{path}: packed in another way than e-Stat does; download the file again")
                with archive.open(item) as file:
                    left = _MOST - sum(len(content) for _, content in found)
                    found.append((f"{path}/{item.filename}", file.read(left + 1)))
                if len(found[-1][1]) > left:
                    break
    if sum(len(content) for _, content in found) > _MOST:
        raise FormatError(f"{path}: holds more than {_MOST >> 20} MB of text; no mesh table does")
    return found


def _withheld_places(sheets: list[_Sheet]) -> dict[str, set[str]]:
    """KEY_CODE of each cell that took others in -> the codes it names (GASSAN), over all files."""
    places: dict[str, set[str]] = {}
    for sheet in sheets:
        if "GASSAN" not in sheet.header or "HTKSYORI" not in sheet.header:
            continue
        process, taken = sheet.header.index("HTKSYORI"), sheet.header.index("GASSAN")
        for row in sheet.rows:
            if len(row) > max(process, taken) and row[process].strip() == "1":
                codes = {code.strip() for code in row[taken].split(";")}
                places.setdefault(row[0].strip(), set()).update(codes - {""})
    return places


Found = dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]


def _sheet(
    sheet: _Sheet,
    mesh: Plane,
    wanted: Mapping[str, str],
    suppressed: str,
    places: Mapping[str, set[str]],
    faults: list[str],
) -> Found:
    """(row, col, value) by label of the axis."""
    report = _Report(sheet.name, faults)
    missing = [key for key in _KEYS if key not in sheet.header]
    faults.extend(f"{sheet.name}: no column {key}; is the header row complete?" for key in missing)
    faults.extend(f"{sheet.name}: more than one column {key}" for key in _KEYS if sheet.header.count(key) > 1)
    column = {label: _column(sheet, name, faults) for label, name in wanted.items()}
    at = {key: sheet.header.index(key) for key in _KEYS if key not in missing}
    width = len(sheet.header)
    codes: list[int] = []
    kept: list[list[str]] = []
    for number, row in enumerate(sheet.rows, start=3):
        if len(row) != width:
            report.add("", f"{width} fields are needed", number)
        else:
            text = row[0].strip()
            codes.append(int(text) if text.isascii() and text.isdigit() and len(text) < 12 else -1)  # no cell's code
            kept.append([str(number), *row])
    y, x, good = meshcode.try_decode(np.array(codes, dtype=np.int64), mesh.level or "")
    y, x = y - mesh.origin[0], x - mesh.origin[1]
    inside = good & (y >= 0) & (y < mesh.shape[0]) & (x >= 0) & (x < mesh.shape[1])
    found: dict[str, list[int]] = {label: [] for label in wanted}
    where: dict[str, list[int]] = {label: [] for label in wanted}
    for i, (number_text, *row) in enumerate(kept):
        number = int(number_text)
        if not good[i]:
            report.add("KEY_CODE", f"not a {mesh.level} mesh code", number)
        process = row[at["HTKSYORI"]].strip() if "HTKSYORI" in at else "0"
        if process not in ("0", "1", "2", ""):
            report.add("HTKSYORI", "not 0, 1 or 2", number)
        starred = [name for label, name in wanted.items() if column[label] is not None
                   and row[column[label] or 0].strip() == "*"]  # fmt: skip
        if starred:
            _withheld(report, row, at, process, starred, suppressed, places, number)
        for label, name in wanted.items():
            place = column[label]
            if place is None or row[place].strip() == "*":
                continue
            text = row[place].strip()
            if not (text.isascii() and text.isdigit() and len(text) < 16):
                report.add(name, "not a whole number of people (0, 1, 2, ...)", number)
            elif inside[i]:
                found[label].append(int(text))
                where[label].append(i)
    report.close()
    return {label: (y[where[label]], x[where[label]], np.array(found[label], dtype=np.int64)) for label in wanted}


def _withheld(report: _Report, row: list[str], at: Mapping[str, int], process: str, starred: list[str],
              suppressed: str, places: Mapping[str, set[str]], number: int) -> None:  # fmt: skip
    """Where are the people of a withheld number?"""
    name = "/".join(starred)
    if suppressed == "refuse":
        report.add(name, 'withheld ("*"); say suppressed="merged" if the neighbour that holds them may count', number)
    elif process != "2":
        report.add(name, 'withheld ("*") though HTKSYORI is not 2', number)
    elif "HTKSAKI" in at:
        goal = row[at["HTKSAKI"]].strip()
        if not goal:
            report.add("HTKSAKI", "a withheld cell must name the cell that holds its people", number)
        elif goal not in places:
            report.add("HTKSAKI", "the cell it names is not marked as taking others in (HTKSYORI 1)", number)
        elif row[0].strip() not in places[goal]:
            report.add("HTKSAKI", "the cell it names does not list it (GASSAN)", number)


def _column(sheet: _Sheet, name: str, faults: list[str]) -> int | None:
    plain = name.strip(" 　")
    hits = [
        i for i, (code, label) in enumerate(zip(sheet.header, sheet.labels, strict=False)) if plain in (code, label)
    ]
    hits = [i for i in hits if i >= len(_KEYS)]
    if len(hits) == 1:
        return hits[0]
    labels = ", ".join(label for label in sheet.labels[len(_KEYS) :] if label)
    trouble = "no column" if not hits else "more than one column"
    faults.append(f"{sheet.name}: {trouble} {plain!r}; use a code such as T001141001. The labels are: {labels}")
    return None


class _Report:
    """Faults of one sheet, by column and rule, each with its first rows."""

    def __init__(self, file: str, faults: list[str]) -> None:
        self._file, self._faults = file, faults
        self._rows: dict[tuple[str, str], list[int]] = {}

    def add(self, column: str, rule: str, row: int) -> None:
        self._rows.setdefault((column, rule), []).append(row)

    def close(self) -> None:
        for (column, rule), rows in self._rows.items():
            self._faults += rows_faults(self._file, column, rule, rows)
