"""From the tables people have to Counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kasuri import doors

_HOME = {
    "File": "sources",
    "Melt": "melt",
    "Query": "asked",
    "Table": "asked",
    "count": "frames",
    "read_array": "files",
    "read_estat": "estat",
    "read_mobile": "flows",
    "read_people_flow": "flows",
    "read_public": "frames",
    "read_table": "files",
}

__all__ = sorted(_HOME)

if TYPE_CHECKING:
    from kasuri.ingest.asked import Query as Query
    from kasuri.ingest.asked import Table as Table
    from kasuri.ingest.estat import read_estat as read_estat
    from kasuri.ingest.files import read_array as read_array
    from kasuri.ingest.files import read_table as read_table
    from kasuri.ingest.flows import read_mobile as read_mobile
    from kasuri.ingest.flows import read_people_flow as read_people_flow
    from kasuri.ingest.frames import count as count
    from kasuri.ingest.frames import read_public as read_public
    from kasuri.ingest.melt import Melt as Melt
    from kasuri.ingest.sources import File as File
else:  # what a command does not ask for is not loaded
    __getattr__, __dir__ = doors.lazy("kasuri.ingest", _HOME)
