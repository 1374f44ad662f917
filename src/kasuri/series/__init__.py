"""Tables slot after slot, for ever: drawn once, paid once, filtered with what was published before.

Only `release` sees counts. Everything else is a function of published numbers and may be computed again by anyone who
has them (docs/proofs/series.md).
"""

from kasuri.series.calendar import Calendar
from kasuri.series.flow import Series
from kasuri.series.hour import Hour
from kasuri.series.revised import Revised

__all__ = ["Calendar", "Hour", "Revised", "Series"]
