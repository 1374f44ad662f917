"""Text that people read: names that show what they hold, and cells of a CSV file that no spreadsheet takes for a
formula.

A name (of data, a unit, an axis, a label, a public table, an owner) is printed in certificates, reports and ledgers. A
line break in it could write a second promise; a character that reverses or hides text could change what a reader sees.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Any

from kasuri.errors import PrivacyError, raise_faults

_REFUSED = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode categories: control and format characters, lone surrogates, line and paragraph separators."""
_JOINERS = "\u200c\u200d"
"""Format characters that Persian and the scripts of India are written with: allowed between two letters."""
_FORMULA = re.compile("[=+@\\t\\r\\n＝＋－＠-]")
"""How text begins that spreadsheets run: https://owasp.org/www-community/attacks/CSV_Injection"""
_NUMBER = re.compile("[+-][0-9]+([.][0-9]+)?")
"""Text that is a number all the same: no spreadsheet runs it."""


def faults(text: object, what: str) -> list[str]:
    """What is wrong with a name that is printed: nothing, one fault, or that it is not text.

    >>> faults("census-2020", "data"), faults("census\\n", "data")[0][:18]
    ([], 'data holds U+000A,')
    """
    if not isinstance(text, str):
        return [f"{what} must be text"]
    if text.isprintable():
        return []
    for i, character in enumerate(text):
        if unicodedata.category(character) in _REFUSED and not _joins(text, i):
            return [f"{what} holds U+{ord(character):04X}, which breaks a line or changes how text is shown; remove it"]
    return []


def first(texts: Iterable[str], what: str) -> list[str]:
    """The fault of the first of many names that has one, by its place (0 is the first)."""
    for i, text in enumerate(texts):
        if not (isinstance(text, str) and text.isprintable()) and (found := faults(text, f"{what} {i}")):
            return found
    return []


def declared(data: object, what: str = "data") -> None:
    """Refuse what is not the declared name of a data set."""
    if not isinstance(data, str) or not data.strip():
        raise PrivacyError(f'{what} must be a declared name such as "census-2020"')
    raise_faults(PrivacyError, faults(data, what))


def _joins(text: str, i: int) -> bool:
    """Whether text[i] is a joiner between two letters (or the marks on them)."""
    beside = (text[i - 1], text[i + 1]) if 0 < i < len(text) - 1 else ("", "")
    return text[i] in _JOINERS and all(one and unicodedata.category(one)[0] in "LM" for one in beside)


def cell(text: str) -> str:
    """Text as a cell of a CSV file: with an apostrophe before it where a spreadsheet would run it as a formula.

    >>> cell("=1+1"), cell("north"), cell("-5")
    ("'=1+1", 'north', '-5')
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def cells(table: Any) -> Any:
    """An Arrow table with `cell` of its text and of its columns' names; numbers stay numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = []
    for column in table.columns:
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            runs = pc.match_substring_regex(column, f"^{_FORMULA.pattern}")
            if pc.any(runs).as_py():
                number = pc.match_substring_regex(column, f"^{_NUMBER.pattern}$")
                marked = pc.binary_join_element_wise(pa.scalar("'", column.type), column, pa.scalar("", column.type))
                column = pc.if_else(pc.and_(runs, pc.invert(number)), marked, column)
        columns.append(column)
    return pa.Table.from_arrays(columns, names=[cell(name) for name in table.column_names])


def uncell(column: Any, labels: Iterable[str]) -> Any:
    """An Arrow column of text in which a label that `cell` has marked is the label again. Text that is itself a label
    is left as it is."""
    import pyarrow as pa
    import pyarrow.compute as pc

    own = set(labels)
    marked = sorted(f"'{label}" for label in own if cell(label) != label and f"'{label}" not in own)
    if not marked or not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return column
    found = pc.is_in(column, value_set=pa.array(marked, column.type))
    return pc.if_else(found, pc.utf8_slice_codeunits(column, 1), column)
