"""The exception tree. A message says what was asked, what was found and what to do; never a confidential value.

KasuriError
├── DomainError(ValueError)   a fact about the table is wrong (all found at once: file, row, column, remedy)
├── PrivacyError              going on would weaken or falsify a claim
│   ├── BudgetError           the ledger cannot pay
│   └── ProtocolError         a step out of order, a destroyed secret
├── NumericsError             no convergence, overflow
└── FormatError               a file we cannot trust (names the field)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_SHOWN = 10


class KasuriError(Exception):
    """Base of every error kasuri raises on purpose."""

    def __init__(self, *faults: str) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(faults))


class DomainError(KasuriError, ValueError):
    """A fact about the table, its domain or its file is wrong."""


class PrivacyError(KasuriError):
    """Going on would weaken or falsify a privacy claim."""


class BudgetError(PrivacyError):
    """The ledger cannot pay."""


class ProtocolError(PrivacyError):
    """A step out of order, or a secret that is destroyed already."""


class NumericsError(KasuriError):
    """No convergence, or a number too large for exact arithmetic."""


class FormatError(KasuriError):
    """A file that cannot be trusted."""


class AccuracyWarning(UserWarning):
    """What is asked for is allowed, and public facts show that plain noise would serve better."""


def raise_faults(kind: type[KasuriError], faults: Iterable[str]) -> None:
    """Raise `kind` naming every fault at once; do nothing when there is none."""
    found = tuple(faults)
    if found:
        raise kind(*found)


def unknown(kind: type[KasuriError], what: str, found: object, known: Iterable[str]) -> KasuriError:
    """The error of a word its reader does not know: whoever reads words of a recipe has no default for the rest."""
    return kind(f"{what} {found!r} is not known here; known: {', '.join(known)}")


def rows_faults(file: str, column: str, rule: str, rows: Sequence[int], many: int | None = None) -> list[str]:
    """The fault of `rows` (1 is the first below the header), or none: the first ten by number, all (`many`, where
    `rows` are not all) by count."""
    more = (len(rows) if many is None else many) - _SHOWN
    shown = ", ".join(map(str, rows[:_SHOWN])) + (f" and {more} more" if more > 0 else "")
    return [f"{file}: {f'column {column}: ' if column else ''}{rule}: rows {shown}"] if rows else []
