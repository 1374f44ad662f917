"""A release on disk and in databases: folders written whole or not at all, exports, and the way back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kasuri import doors

_HOME = {"ready": "folder", "save": "folder", "save_tables": "folder"}

__all__ = sorted(_HOME)

if TYPE_CHECKING:
    from kasuri.store.folder import ready as ready
    from kasuri.store.folder import save as save
    from kasuri.store.folder import save_tables as save_tables
else:  # `store.columns` is below the manifest and `store.folder` above it: neither is imported for the other
    __getattr__, __dir__ = doors.lazy("kasuri.store", _HOME)
