"""A table as a stream of Arrow batches, and what kasuri could see of how its rows were made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kasuri.errors import PrivacyError
from kasuri.schema import ROWS_ALONE

BATCH = 1 << 20
"""Rows per batch."""
TEXT = 1 << 26
"""Bytes of text in a batch."""

Batches = Iterator[tuple[Any, float | None]]
"""Arrow batches, each with the share of the source that is read by then."""


@dataclass(frozen=True)
class Doubt:
    """Why kasuri cannot see that each row comes from one record by itself: `whole` concerns all rows, `columns` some
    columns of them, `made` those that are computed and so cannot be the id."""

    whole: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    made: frozenset[str] = frozenset()

    def words(self, unit_id: str, wanted: Sequence[str]) -> str | None:
        """The first reason that concerns the `wanted` columns of records with the id column `unit_id`."""
        if self.whole is not None:
            return self.whole
        if unit_id in self.made:
            return f"the id column {unit_id!r} is computed; take a stored column as it is (AS may rename it)"
        return next((self.columns[name] for name in wanted if name in self.columns), None)


@dataclass(frozen=True, eq=False)
class Stream:
    """Column names, and a function that starts reading the wanted ones.

    A line of a CSV file that does not have the header's number of cells is left out, and its number (1 is the first
    below the header) added to `start`'s second argument: one record never stops the reading of the others.
    """

    names: tuple[str, ...]
    start: Callable[[Sequence[str], list[int]], Batches]
    label: str
    doubt: Doubt = Doubt()
    fold: int = 1
    """Rows of the stream for one row of the file."""


def vouched(assume: str | None) -> tuple[str, ...]:
    """The assumption a caller makes, in words for a guarantee; any other words are refused."""
    if assume is not None and assume != ROWS_ALONE:
        raise PrivacyError(f'assume: the only assumption that can be made is "{ROWS_ALONE}"')
    return () if assume is None else (assume,)


def trusted(stream: Stream, unit_id: str, wanted: Sequence[str], assume: str | None) -> tuple[str, ...]:
    """What the counts of these records rest on; refused where one record may change the rows of another and nobody
    vouches that it does not."""
    assumes = vouched(assume)
    if not assumes:
        row_by_row(
            stream, unit_id, wanted, f"if each row depends on the records of its own id alone, vouch for it: "
            f'assume="{ROWS_ALONE}"',
        )  # fmt: skip
    return assumes


def row_by_row(stream: Stream, unit_id: str, wanted: Sequence[str], remedy: str) -> None:
    """Refuse rows of which kasuri cannot see that each comes from one record by itself."""
    why = stream.doubt.words(unit_id, wanted)
    if why is not None:
        raise PrivacyError(
            f"{stream.label}: one record might change the rows of others: {why}. Name a stored table and conditions "
            f"on its columns, or use (in DuckDB) one SELECT of expressions over its columns; or, {remedy}"
        )
