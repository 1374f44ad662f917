"""From the tables people have to Counts."""

from kasuri.ingest.files import read_table
from kasuri.ingest.frames import count

__all__ = ["count", "read_table"]
