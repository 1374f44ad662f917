"""Pictures with matplotlib: one map, small multiples, errors by area size; PNG, SVG or PDF by the file's ending.

Logarithmic colours (viridis: safe for colour-blind readers), empty cells pale, negative cells red, as in Terada's
Figures 1-5. Files are a function of their input: no date is written into them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.errors import DomainError
from kasuri.files import whole
from kasuri.published.release import Release
from kasuri.schema import Plane

KINDS = (".png", ".svg", ".pdf")
_METRICS = {"rmse": "root mean square error", "mae": "mean absolute error"}
_PALE, _RED = "#f4f2ee", "#d7301f"
_NO_DATE: dict[str, dict[str, Any]] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": {}}


def mesh_values(release: Release) -> NDArray[Any]:
    """The released values of the one mesh as rows x cols; other axes are summed."""
    meshes = release.domain.planes
    if len(meshes) != 1:
        raise DomainError("a map needs a domain with one mesh")
    dense = release.to_dense()
    keep = release.domain.positions(meshes[0].name)
    return dense.sum(axis=tuple(d for d in range(dense.ndim) if d not in keep))[: meshes[0].shape[0]]


def map_png(release: Release, path: Path, *, title: str, credit: str = "") -> None:
    """One map of a release, with its guarantee below."""
    words = f"{release.guarantee.words()}  ·  recipe {release.recipe['name']}"
    under = words + (f"\n{credit}" if credit else "")
    aspect = next((plane.aspect for plane in release.domain.planes), 1.0)
    small_multiples({title: mesh_values(release)}, path, under, aspect=aspect)


def cell_aspect(mesh: Plane) -> float:
    """Height of a cell over its width on the ground."""
    return mesh.aspect


def small_multiples(
    panels: Mapping[str, NDArray[Any]], path: Path, words: str = "", *, columns: int = 3, aspect: float = 1.0
) -> None:
    """Maps side by side under their titles, all in one colour scale; the south-west cell of each array is [0, 0].

    A panel with negative cells says how many. `aspect`: height of a cell over its width (`cell_aspect`).
    """
    if path.suffix.lower() not in KINDS:
        raise DomainError(f"{path}: a figure is one of {', '.join(KINDS)}")
    if not panels:
        raise DomainError("no map to draw")
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    wide = min(columns, len(panels))
    high = -(-len(panels) // wide)
    one = 7.4 if len(panels) == 1 else 4.2
    with mpl.rc_context({"svg.hashsalt": "kasuri", "svg.fonttype": "path"}):
        tall = min(2.0, max(0.4, *(aspect * values.shape[0] / values.shape[1] for values in panels.values())))
        figure = Figure(figsize=(one * wide + 1, one * high * tall + 0.8), layout="constrained")
        FigureCanvasAgg(figure)
        norm = LogNorm(1, max(10.0, *(float(values.max()) for values in panels.values())))
        every: list[Any] = figure.subplots(high, wide, squeeze=False).ravel().tolist()
        image: Any = None
        for axes, (title, values) in zip(every, panels.items(), strict=False):
            image = _one(axes, title, values, norm, aspect)
        for axes in every[len(panels) :]:
            axes.set_axis_off()
        below = any(bool((values < 0).any()) for values in panels.values())
        label = "count per cell (log scale)" + ("; red: below 0" if below else "")
        figure.colorbar(image, ax=every, shrink=0.8, label=label, format=lambda value, _: f"{value:,.0f}")
        figure.supxlabel(words, fontsize=7, color="#555555")
        with whole(path) as part:
            kind = path.suffix.lower()
            figure.savefig(part, format=kind[1:], dpi=130, metadata=_NO_DATE[kind])


def _one(axes: Any, title: str, values: NDArray[Any], norm: Any, aspect: float) -> Any:
    from matplotlib.colors import ListedColormap

    axes.set_facecolor(_PALE)
    shown = np.ma.masked_less_equal(values.astype(float), 0)
    how = {"origin": "lower", "interpolation": "nearest", "aspect": aspect}
    image = axes.imshow(shown, norm=norm, cmap="viridis", **how)
    below = int((values < 0).sum())
    if below:
        negative = np.ma.masked_where(values >= 0, np.ones(values.shape))
        axes.imshow(negative, cmap=ListedColormap([_RED]), **how)
    axes.set_title(title + (f"\n{below:,} cells below 0" if below else ""), loc="left", fontsize=10)
    axes.set_xticks([])
    axes.set_yticks([])
    return image


def errors_figure(rows: Sequence[Mapping[str, Any]], path: Path, *, metric: str, title: str, note: str = "") -> None:
    """Errors by area size, one line per recipe and epsilon (rows of `plan` or `compare`); PNG, SVG or PDF by the
    path's ending. `note` is printed under the picture, e.g. that it is confidential."""
    import matplotlib as mpl
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
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    if any(value > 0 for points in lines.values() for _, value in points):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        axes.yaxis.set_minor_formatter(lambda value, _: "")
    axes.set_xlabel("cells in the area")
    axes.set_ylabel(_METRICS.get(metric, metric.replace("_", " ")))
    axes.grid(alpha=0.3, which="both")
    axes.set_title(title, loc="left")
    axes.legend(fontsize=8)
    if note:
        figure.supxlabel(note, fontsize=8, color="#a02020")
    with mpl.rc_context({"svg.hashsalt": "kasuri", "svg.fonttype": "path"}), whole(path) as part:
        kind = path.suffix.lower()
        figure.savefig(part, format=kind[1:], dpi=130, metadata=_NO_DATE[kind])
