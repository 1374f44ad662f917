"""Tables as one Excel workbook (.xlsx), a sheet each: equal tables give equal bytes, and no text is ever a formula."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from kasuri.errors import DomainError

MAX_ROWS = (1 << 20) - 1
"""Rows of a sheet below its header."""
_EXACT = 10**15  # Excel keeps 15 digits
_ILLEGAL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")  # what XML cannot hold
_OPEN = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_KIND = "application/vnd.openxmlformats-officedocument.spreadsheetml."


def write(tables: dict[str, Any], path: Path) -> None:
    """Write Arrow tables to a file; a table that no sheet can hold is refused."""
    long = [name for name, table in tables.items() if table.num_rows > MAX_ROWS]
    if long:
        raise DomainError(f"{path}: {', '.join(long)} has more than {MAX_ROWS:,} rows, too many for a sheet; use .csv")
    sheets = range(1, len(tables) + 1)
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types"><Default Extension="rels" ContentType='
        '"application/vnd.openxmlformats-package.relationships+xml"/><Override PartName="/xl/workbook.xml" ContentType='
        f'"{_KIND}sheet.main+xml"/>'
        + "".join(
            f'<Override PartName="/xl/worksheets/sheet{n}.xml" ContentType="{_KIND}worksheet+xml"/>' for n in sheets
        )
        + "</Types>",
        "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}/relationships"><Relationship Id="r1" Type='
        f'"{_OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}"><sheets>'
        + "".join(f'<sheet name="{escape(name)}" sheetId="{n}" r:id="r{n}"/>' for n, name in enumerate(tables, 1))
        + "</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{_PACKAGE}/relationships">'
        + "".join(
            f'<Relationship Id="r{n}" Type="{_OFFICE}/worksheet" Target="worksheets/sheet{n}.xml"/>' for n in sheets
        )
        + "</Relationships>",
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            archive.writestr(_part(name), _OPEN + text)
        for n, table in enumerate(tables.values(), 1):
            with archive.open(_part(f"xl/worksheets/sheet{n}.xml"), "w", force_zip64=True) as file:
                for piece in _sheet(table):
                    file.write(piece.encode())


def _part(name: str) -> zipfile.ZipInfo:
    part = zipfile.ZipInfo(name)  # no time of the clock
    part.compress_type = zipfile.ZIP_DEFLATED
    return part


def _sheet(table: Any) -> Iterator[str]:
    yield f'{_OPEN}<worksheet xmlns="{_MAIN}"><sheetData>'
    yield _row(table.column_names)
    for batch in table.to_batches(1 << 14):
        columns = [column.to_pylist() for column in batch.columns]
        for row in zip(*columns, strict=True):
            yield _row(row)
    yield "</sheetData></worksheet>"


def _row(cells: Any) -> str:
    return f"<row>{''.join(map(_cell, cells))}</row>"


def _cell(value: Any) -> str:
    if value is None:
        return "<c/>"
    if isinstance(value, bool):
        return f'<c t="b"><v>{int(value)}</v></c>'
    if isinstance(value, (int, float)) and abs(value) < _EXACT:
        return f"<c><v>{value!r}</v></c>"
    text = escape(_ILLEGAL.sub("\N{REPLACEMENT CHARACTER}", str(value)))
    return f'<c t="inlineStr"><is><t xml:space="preserve">{text}</t></is></c>'
