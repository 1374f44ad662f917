"""Pictures with matplotlib: of a release, from released values alone; of expected or measured errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kasuri.errors import DomainError
from kasuri.published import Release
from kasuri.schema import Mesh


def map_png(release: Release, path: Path, *, title: str, credit: str = "") -> None:
    """A map of a release on one mesh: logarithmic colours, empty cells pale, negative cells red (as in Terada's
    Figures 2-4). Other axes are summed."""
    meshes = [axis for axis in release.domain.axes if isinstance(axis, Mesh)]
    if len(meshes) != 1:
        raise DomainError("a map needs a domain with one mesh")
    mesh = meshes[0]
    dense = release.to_dense()
    keep = release.domain.positions(mesh.name)
    values = dense.sum(axis=tuple(d for d in range(dense.ndim) if d not in keep))

    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_facecolor("#f4f2ee")
    top = max(float(values.max()), 10.0)
    shown = np.ma.masked_less_equal(values.astype(float), 0)
    image = axes.imshow(shown, origin="lower", norm=LogNorm(1, top), cmap="viridis", interpolation="nearest")
    negative = np.ma.masked_where(values >= 0, np.ones(values.shape))
    if negative.count():
        axes.imshow(negative, origin="lower", cmap="Reds", vmin=0, vmax=1.4, interpolation="nearest")
    axes.set_title(title, loc="left")
    where = "" if mesh.level is None else f" ({mesh.level} cells)"
    axes.set_xlabel(f"column{where}")
    axes.set_ylabel(f"row{where}")
    figure.colorbar(image, ax=axes, shrink=0.8, label="people per cell (log scale)")
    words = f"{release.guarantee.words()}  ·  recipe {release.recipe['name']}"
    figure.supxlabel(words + (f"\n{credit}" if credit else ""), fontsize=7, color="#555555")
    figure.savefig(path, dpi=130)


def errors_figure(rows: Sequence[Mapping[str, Any]], path: Path, *, metric: str, title: str, note: str = "") -> None:
    """Errors by area size, one line per recipe and epsilon (rows of `plan` or `compare`); PNG or SVG by the path's
    ending. `note` stands under the picture, e.g. that it is confidential."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.6, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    lines: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for row in rows:
        if isinstance(row["cells"], int) and row[metric] is not None:
            lines.setdefault((row["recipe"], row["epsilon"]), []).append((row["cells"], abs(row[metric])))
    for (recipe, epsilon), points in lines.items():
        cells, values = zip(*sorted(points), strict=True)
        axes.plot(cells, values, "o-", markersize=4, label=f"{recipe}, epsilon {epsilon}")
    axes.set_xscale("log", base=4)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    if any(value > 0 for points in lines.values() for _, value in points):
        axes.set_yscale("log")
    axes.set_xlabel("cells in the area")
    axes.set_ylabel(metric.replace("_", " "))
    axes.grid(alpha=0.3, which="both")
    axes.set_title(title, loc="left")
    axes.legend(fontsize=8)
    if note:
        figure.supxlabel(note, fontsize=8, color="#a02020")
    figure.savefig(path, dpi=130)
