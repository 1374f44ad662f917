"""A release as a frame, a picture and a card: labels and times instead of indices, the 95 % interval beside the value.

All of it is post-processing of what the release holds; nothing is written.
"""

from __future__ import annotations

import base64
import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from kasuri import notebook
from kasuri.errors import DomainError
from kasuri.store.columns import LEFT_OUT, release_table, the_place

if TYPE_CHECKING:
    from kasuri.published.release import Release

_DRAWN = 1 << 24
_TOP = 5


def arrow(release: Release, *, geometry: bool = False) -> Any:
    """The released cells as an Arrow table: the columns of each axis (mesh code, row and col; labels; the start of each
    step of time), value, lower and upper. Absent cells were released as 0. The guarantee is in the metadata."""
    import pyarrow as pa

    table = release_table(release, geometry=geometry).drop_columns(["release_id", "cell"])
    for axis in release.domain.axes:
        if axis.timed:
            name = f"{release.domain.prefix(axis)}{axis.name}"
            starts = pa.array(axis.codes())
            at = table.schema.get_field_index(name)
            table = table.set_column(at, name, pa.chunked_array([starts.take(table[name].combine_chunks())]))
    left = geometry and the_place(release.domain).elsewhere
    about = {
        "release_id": release.provenance["release_id"],
        "guarantee": release.guarantee.to_json(),
        "absent_cells": LEFT_OUT if left else 0,
    }
    return table.replace_schema_metadata({"kasuri": json.dumps(about)})


def pandas(release: Release) -> Any:
    """The same as a pandas frame."""
    _installed("pandas")
    return arrow(release).to_pandas()


def polars(release: Release) -> Any:
    """The same as a polars frame."""
    return _installed("polars").from_arrow(arrow(release))


def geopandas(release: Release) -> Any:
    """The same as a geopandas frame, with the outline of each cell."""
    frames = _installed("geopandas")
    place = the_place(release.domain)
    found = arrow(release, geometry=True).to_pandas()
    outline = frames.GeoSeries.from_wkb(found.pop("geom"), crs=f"EPSG:{place.epsg}")
    return frames.GeoDataFrame(found, geometry=outline)


def _installed(name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError:
        raise DomainError(f"{name} is not installed here; pip install {name}, or use to_arrow()") from None


def figure(release: Release) -> Any:
    """A matplotlib figure: the map of the one mesh (logarithmic colours, other axes summed), else bars by label."""
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    if release.domain.size > _DRAWN:
        raise DomainError(
            f"a table of {release.domain.size:,} cells is not drawn; open its report, or draw an area of it"
        )
    drawn = Figure(figsize=(5, 4), layout="constrained")
    axes = drawn.add_subplot()
    dense = release.to_dense()
    planes = release.domain.planes
    if len(planes) == 1:
        keep = release.domain.positions(planes[0].name)
        values = dense.sum(axis=tuple(d for d in range(dense.ndim) if d not in keep)).astype(float)
        values = values[: planes[0].shape[0]]
        shown = np.ma.masked_less_equal(values, 0)
        norm = LogNorm(1, max(2.0, float(values.max(initial=2))))
        image = axes.imshow(shown, origin="lower", norm=norm, aspect=planes[0].aspect, interpolation="nearest")
        drawn.colorbar(image, ax=axes)
        axes.set_axis_off()
    else:
        axis = release.domain.axes[0]
        keep = release.domain.positions(axis.name)
        values = dense.sum(axis=tuple(d for d in range(dense.ndim) if d not in keep)).ravel()
        names = axis.shown() or [str(index) for index in range(values.size)]
        axes.bar(range(values.size), values)
        if values.size <= 40:
            axes.set_xticks(range(values.size), names, rotation=90)
        axes.set_xlabel(axis.name)
    axes.set_title(f"{release.recipe['name']}, {release.guarantee.model} DP", fontsize=9)
    return drawn


def html(release: Release) -> str:
    """What a notebook shows of a release: its promise, its size, a picture and its first rows."""
    rows: list[tuple[str, object]] = [
        ("promise", release.guarantee.words()),
        ("assumes", "; ".join(release.guarantee.assumes) or "nothing further"),
        ("cells", f"{release.non_zero:,} of {release.domain.size:,} are not 0"),
        ("total", f"{release.total():,}"),
        ("recipe", release.recipe["name"]),
    ]
    picture = ""
    if release.domain.size <= _DRAWN:
        out = io.BytesIO()
        figure(release).savefig(out, format="png", dpi=80, metadata={"Software": None})
        coded = base64.b64encode(out.getvalue()).decode()
        picture = f'<img alt="released values" src="data:image/png;base64,{coded}">'
    return notebook.card("kasuri Release", rows, picture)
