"""From the tables people have to Counts."""

from kasuri.ingest.asked import Query, Table
from kasuri.ingest.estat import read_estat
from kasuri.ingest.files import read_array, read_table
from kasuri.ingest.flows import read_mobile, read_people_flow
from kasuri.ingest.frames import count, read_public
from kasuri.ingest.melt import Melt
from kasuri.ingest.sources import File

__all__ = [
    "File",
    "Melt",
    "Query",
    "Table",
    "count",
    "read_array",
    "read_estat",
    "read_mobile",
    "read_people_flow",
    "read_public",
    "read_table",
]
