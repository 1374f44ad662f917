"""Revised: published slots estimated once more with those before and after them; a file of its own, at no cost."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kasuri import files
from kasuri.arrays import Array, Float, Int
from kasuri.errors import DomainError
from kasuri.schema import Domain
from kasuri.series import folder as disk


@dataclass(frozen=True, eq=False)
class Revised:
    """The revised maps of some slots. `used` are all the slots that went into them."""

    domain: Domain
    labels: tuple[str, ...]
    maps: tuple[tuple[Int, Int, Float], ...]
    used: tuple[str, ...]
    series: dict[str, Any]

    def to_dense(self, slot: str) -> Array:
        """One revised map as an array."""
        if slot not in self.labels:
            raise DomainError(f"slot {slot} was not revised")
        cells, values, _ = self.maps[self.labels.index(slot)]
        out = np.zeros(self.domain.size, dtype=np.int64)
        out[cells] = values
        return out.reshape(self.domain.shape)

    def save(self, folder: str | Path) -> None:
        """Write revision.json and revised.parquet (slot, cell, value, model_error) to a new folder."""
        import pyarrow as pa
        from pyarrow import parquet

        place = Path(folder)
        if place.exists():
            raise DomainError(f"{place} exists; a revision is never written over another")
        place.mkdir(parents=True)
        sizes = [cells.size for cells, _, _ in self.maps]
        columns = [np.concatenate(one) for one in zip(*self.maps, strict=True)]
        slots = pa.array(self.labels).take(pa.array(np.repeat(np.arange(len(sizes)), sizes)))
        names = ("cell", "value", "model_error")
        table = pa.table({"slot": slots} | dict(zip(names, columns, strict=True)))
        with files.whole(place / "revised.parquet", new=True) as aside:
            parquet.write_table(table, aside, compression="zstd")
        told = self.series | {"status": "revised", "slots": list(self.labels), "used": list(self.used)}
        files.write(place / "revision.json", disk.text(told), new=True)
