"""Window: what a person is protected over where tables are published slot after slot, for ever."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from functools import cached_property
from typing import Any

from kasuri.errors import DomainError, PrivacyError, raise_faults

_SECONDS = {"min": 60, "h": 3600, "d": 86400}
_NAMES = {"min": "minute", "h": "hour", "d": "day"}
MOST_SLOTS = 1 << 16
"""Most slots of a window."""


@dataclass(frozen=True)
class Window:
    """Slots of equal length from a public origin, and how many consecutive ones a claim is about, sliding.

    span and slot are whole numbers of minutes, hours or days: Window("7d", slot="1h", zone="+09:00"). A slot is named
    by its start, a time with its zone; zone is a fixed offset, since slots of a clock that is put forward are not
    equal. Slots are counted from 1970-01-01T00:00 of that zone.
    """

    span: str
    slot: str
    zone: str = "+00:00"

    def __post_init__(self) -> None:
        faults = [
            f'window: {what} must be a whole number of minutes, hours or days such as "{such}"'
            for what, such in (("span", "7d"), ("slot", "1h"))
            if not _length(getattr(self, what))
        ]
        if not isinstance(self.zone, str) or not re.fullmatch(r"[+-](0\d|1[0-4]):[0-5]\d", self.zone):
            faults.append('window: zone must be an offset such as "+09:00": slots of a clock that is put forward or')
            faults[-1] += " back are not equal"
        if not faults and (_length(self.span) % _length(self.slot) or not 1 <= self.slots <= MOST_SLOTS):
            faults.append(f"window: {self.span} must be a whole number of slots of {self.slot}, at most {MOST_SLOTS}")
        raise_faults(PrivacyError, faults)

    @property
    def seconds(self) -> int:
        """Of one slot."""
        return _length(self.slot)

    @property
    def slots(self) -> int:
        """Of one window, w in the proofs."""
        return _length(self.span) // _length(self.slot)

    @cached_property
    def _zone(self) -> timezone:
        hours, minutes = map(int, self.zone[1:].split(":"))
        return timezone((-1 if self.zone[0] == "-" else 1) * timedelta(hours=hours, minutes=minutes))

    @cached_property
    def _origin(self) -> datetime:
        return datetime(1970, 1, 1, tzinfo=self._zone)

    def index(self, start: object) -> int:
        """The number of the slot that starts then; DomainError where no slot does."""
        shown = "a slot is named by its start, an ISO 8601 time with its zone"
        such = f"such as {self.label(self._gone(datetime.now(UTC)))}"
        if isinstance(start, str):
            try:
                start = datetime.fromisoformat(start)
            except ValueError:
                raise DomainError(f"{shown}, {such}") from None
        if not isinstance(start, datetime):
            raise DomainError(f"{shown}, {such}")
        if start.tzinfo is None:
            raise DomainError(f"the slot has no zone; {shown}, {such}")
        if start.utcoffset() != self._origin.utcoffset():
            raise DomainError(f"the slot is in another zone than the series ({self.zone}); {shown}, {such}")
        if start != self.start(self._gone(start)):
            raise DomainError(f"the slot overlaps others: slots of {self.slot} do not start then; {shown}, {such}")
        return self._gone(start)

    def _gone(self, moment: datetime) -> int:
        return (moment - self._origin) // timedelta(seconds=self.seconds)

    def start(self, index: int) -> datetime:
        """When a slot starts."""
        return self._origin + timedelta(seconds=self.seconds * index)

    def label(self, index: int) -> str:
        """A slot's start as text: what `index` reads."""
        return self.start(index).isoformat(timespec="minutes")

    def ended(self, index: int, moment: datetime) -> bool:
        """Is the slot over?"""
        return self.start(index + 1) <= moment

    def words(self) -> str:
        """The span, for a certificate: "any 7 consecutive days (168 whole slots)". A span that begins inside a slot
        touches one slot more, and parts of two: docs/proofs/window.md."""
        number, unit = _parts(self.span)
        name = _NAMES[unit]
        span = f"any {number} consecutive {name}s" if number > 1 else f"any {name}"
        return f"{span} ({self.slots} whole slot{'s' if self.slots > 1 else ''})"

    def spans(self) -> tuple[tuple[str, int], ...]:
        """Spans whose price readers are told, with their slots: slot, hour, day, window, 30 days, 365 days."""
        found = {self.slot: 1}
        for name in ("1h", "1d", self.span, "30d", "365d"):
            if _length(name) % self.seconds == 0:
                found.setdefault(name, _length(name) // self.seconds)
        return tuple(sorted(found.items(), key=lambda pair: pair[1]))

    def to_json(self) -> dict[str, Any]:
        return {"span": self.span, "slot": self.slot, "zone": self.zone}


def _parts(text: str) -> tuple[int, str]:
    found = re.fullmatch("([1-9][0-9]{0,5})(min|h|d)", text) if isinstance(text, str) else None
    return (int(found[1]), found[2]) if found else (0, "min")


def _length(text: str) -> int:
    """Seconds; 0 where it is not a length of time."""
    number, unit = _parts(text)
    return number * _SECONDS[unit]
