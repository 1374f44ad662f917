"""The internal report: the same page with the truth beside it. Confidential, on top and on every figure.

Takes the true cells as plain arrays; it is never written into a release folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.arrays import Int
from kasuri.errors import DomainError
from kasuri.report import frame, levels, page
from kasuri.report.frame import Section, Text
from kasuri.report.sheet import Sheet
from kasuri.schema import Domain

_DENSE = 1 << 26


def build(folder: str | Path, domain: Domain, cells: Int, values: NDArray[Any]) -> str:
    """The report of the release in `folder` against the true `values` of `cells` (absent ones are 0) of `domain`."""
    folder = Path(folder)
    about = page.read_manifest(folder)
    sheet = Sheet.read(folder, about)
    if Domain.from_json(about["domain"]) != domain:
        raise DomainError("the true table has another domain than the release; take the job the release was made with")
    true = Sheet(domain, cells, values, *np.full((2, cells.size), np.nan)).mapped()
    full = with_truth(sheet, true.cells, true.values)
    words = [frame.markdown(page.text_of(folder / name)) for name in page.CERTIFICATES]
    head = Text("Error against the truth", "真の値に対する誤差")
    ranges, beyond = page.ranges_of(folder, about), page.elsewhere(folder, about)
    first = (Section("truth", head, [_by_level(full)]),)
    return page.compose(about, full, words, ranges=ranges, first=first, beyond=beyond, secret=True)


def with_truth(sheet: Sheet, cells: Int, values: NDArray[Any]) -> Sheet:
    """Released and true values on the cells that either lists."""
    every = np.union1d(sheet.cells, cells)
    own, true = np.searchsorted(every, sheet.cells), np.searchsorted(every, cells)
    released = np.zeros(every.size, sheet.values.dtype)
    released[own] = sheet.values
    truth = np.zeros(every.size, np.asarray(values).dtype)
    truth[true] = values
    lower, upper = np.full(every.size, np.nan), np.full(every.size, np.nan)
    lower[own], upper[own] = sheet.lower, sheet.upper
    return replace(sheet, cells=every, values=released, lower=lower, upper=upper, truth=truth)


def errors_by_level(sheet: Sheet) -> list[dict[str, Any]]:
    """Error of the areas at each level of the first mesh (else of the cells): over all possible areas, 0 or not."""
    out = []
    now: Sheet | None = sheet
    possible = sheet.domain.possible_dense() if sheet.domain.size <= _DENSE else None
    while now is not None:
        assert now.truth is not None
        error = now.values.astype(np.float64) - now.truth
        size = now.domain.size if possible is None else int(possible.sum())
        out.append(
            {
                "name": now.meshes[0].level if now.meshes else None,
                "side": round((sheet.domain.size / now.domain.size) ** 0.5),
                "areas": size,
                "rmse": float(np.sqrt((error**2).sum() / size)),
                "mae": float(np.abs(error).sum() / size),
                "bias": float(error.sum() / size),
                "largest": float(np.abs(error).max(initial=0)),
            }
        )
        coarse = now.coarser()
        if coarse is not None and possible is not None:
            possible = _coarse(possible, now.domain, coarse.domain)
        now = coarse
    return out


def _coarse(possible: NDArray[np.bool_], domain: Domain, coarse: Domain) -> NDArray[np.bool_]:
    """Which areas hold a possible cell."""
    mesh = next(plane for plane, small in zip(domain.planes, coarse.planes, strict=True) if plane is not small)
    step = mesh.levels[1]
    index = list(np.nonzero(possible))
    for place, off in zip(domain.positions(mesh.name), step.offset, strict=True):
        index[place] = (index[place] + off) // step.side
    out = np.zeros(coarse.shape, dtype=bool)
    out[tuple(index)] = True
    return out


def _by_level(sheet: Sheet) -> str:
    head = [
        Text("area", "区域"), Text("areas", "区域数"), Text("root mean square error", "二乗平均平方根誤差"),
        Text("mean absolute error", "平均絶対誤差"), Text("bias", "偏り"), Text("largest error", "最大の誤差"),
    ]  # fmt: skip
    rows = [_row(item) for item in errors_by_level(sheet)]
    words = Text(
        "Of sums over all areas of each size, empty ones included.",
        "大きさごとのすべての区域（0 の区域を含む）の合計についての誤差です。",
    )
    return f"<p>{words.html()}</p>" + frame.table([part.html() for part in head], rows, numbers=range(1, 6))


def _row(item: Mapping[str, Any]) -> list[str]:
    numbers = [f"{item[key]:,.2f}" for key in ("rmse", "mae", "bias", "largest")]
    return [levels.area_name(item["name"], item["side"]).html(), f"{item['areas']:,}", *numbers]
