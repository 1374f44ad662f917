"""From the tables people have to Counts."""

from kasuri.ingest.estat import read_estat
from kasuri.ingest.files import read_array, read_table
from kasuri.ingest.flows import read_mobile, read_people_flow
from kasuri.ingest.frames import count, read_public
from kasuri.ingest.sources import Query

__all__ = ["Query", "count", "read_array", "read_estat", "read_mobile", "read_people_flow", "read_public", "read_table"]
