"""Calendar: the public rhythm of a series, which hours are alike and which days are off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from kasuri.errors import DomainError, raise_faults
from kasuri.refine.filter import When
from kasuri.refine.learn import PARTS
from kasuri.schema import Window

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_PARTS = (0, 6, 10, 17)  # hours at which another part of the day begins
_DAY = 86400


@dataclass(frozen=True)
class Calendar:
    """Days of the week and single days that are off, and how many slots a season has.

    Slots of a day or less have the season of a day, longer ones none, unless `season` says how many slots it has (12:
    a year of months). Hour by hour each class of days, working and off, has a profile of its own. All of it is public
    and declared beforehand: a day off is a day of the timetable, never one that the counts show.
    """

    off: tuple[str, ...] = ("sat", "sun")
    days_off: tuple[str, ...] = ()
    season: int | None = None

    def __post_init__(self) -> None:
        faults = [f"calendar: {day!r} is not a day; use {', '.join(_DAYS)}" for day in self.off if day not in _DAYS]
        for day in self.days_off:
            try:
                date.fromisoformat(day)
            except (TypeError, ValueError):
                faults.append(f"calendar: {day!r} is not a date such as 2020-11-03")
        if self.season is not None and (not isinstance(self.season, int) or not 1 <= self.season <= 1 << 10):
            faults.append("calendar: a season has from 1 to 1024 slots")
        raise_faults(DomainError, faults)

    @classmethod
    def weekly(cls, off: Sequence[str] = ("sat", "sun"), days_off: Sequence[str] = ()) -> Calendar:
        """Weeks with these days off, and these dates."""
        return cls(tuple(off), tuple(sorted(map(str, days_off))))

    def phases(self, window: Window) -> int:
        """Slots of a season."""
        if self.season is not None:
            return self.season
        return _DAY // window.seconds if _DAY % window.seconds == 0 else 1

    def rows(self, window: Window) -> int:
        """Of a profile: every phase for working days, and again for days off."""
        return 2 * self.phases(window)

    def when(self, window: Window, slot: int) -> When:
        """Where a slot is."""
        phases = self.phases(window)
        start = window.start(slot)
        daily = self.season is None and window.seconds <= _DAY
        rest = daily and (_DAYS[start.weekday()] in self.off or start.date().isoformat() in self.days_off)
        phase = slot % phases
        hour = start.hour if daily and window.seconds < _DAY else 0
        part = sum(hour >= begins for begins in _PARTS) - 1
        row = phase + phases * rest
        return When(row, phase + phases * (not rest) if daily else row, min(part, PARTS - 1))

    def to_json(self) -> dict[str, Any]:
        return {"off": list(self.off), "days_off": list(self.days_off), "season": self.season}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Calendar:
        return cls(tuple(data["off"]), tuple(data["days_off"]), data["season"])
