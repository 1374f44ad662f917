"""From the tables people have to Counts."""

from kasuri.ingest.files import read_table
from kasuri.ingest.frames import count
from kasuri.ingest.sources import Query

__all__ = ["Query", "count", "read_table"]
