"""One module per paper: its tables and figures measured with kasuri, beside the printed ones; and all of them at once.

The noise is seeded: the data are public or made up, and a second run must give the same page. Times alone differ.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

PAPERS = ("terada2015", "matsumoto2025", "horigome2020_kanon", "horigome2020", "kii2022")
"""Modules with `run`, `text`, `QUICK` and `FULL`, each with a page beside it; the patent's page rests on the first."""


def everything(
    *, full: bool = False, data: Path | None = None, progress: Callable[[str], None] = lambda words: None
) -> dict[str, Any]:
    """The results of all papers; `data` is the folder with the national mesh."""
    from kasuri import seeded
    from kasuri.reproduce import horigome2020, horigome2020_kanon, kii2022, matsumoto2025, terada2015

    runs = {name: (paper.FULL if full else paper.QUICK) for name, paper in zip(
        PAPERS, (terada2015, matsumoto2025, horigome2020_kanon, horigome2020, kii2022), strict=True)}  # fmt: skip
    return {
        "terada2015": terada2015.run(runs["terada2015"], progress=progress, source=seeded),
        "matsumoto2025": matsumoto2025.run(runs["matsumoto2025"], data=data, progress=progress, source=seeded),
        "horigome2020_kanon": horigome2020_kanon.run(runs["horigome2020_kanon"], progress=progress),
        "horigome2020": horigome2020.run(runs["horigome2020"], progress=progress),
        "kii2022": kii2022.run(runs["kii2022"], progress=progress),
    }


def chapters(results: dict[str, Any], data: Path | None = None) -> list[Any]:
    """The chapters of the page, in order."""
    from kasuri.reproduce import (
        horigome2020_kanon_page,
        horigome2020_page,
        jp6310345b2_page,
        kii2022_page,
        matsumoto2025_page,
        terada2015_page,
    )

    return [
        terada2015_page.chapter(results["terada2015"]),
        jp6310345b2_page.chapter(results["terada2015"]),
        matsumoto2025_page.chapter(results["matsumoto2025"], data),
        horigome2020_kanon_page.chapter(results["horigome2020_kanon"]),
        horigome2020_page.chapter(results["horigome2020"]),
        kii2022_page.chapter(results["kii2022"]),
    ]


def write(results: dict[str, Any], folder: Path, data: Path | None = None) -> None:
    """papers.json, papers.md, every figure as PNG, and papers.html with all of them."""
    from kasuri.reproduce import paper

    told = chapters(results, data)
    paper.draw(told, folder)
    (folder / "papers.json").write_text(json.dumps(results, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    (folder / "papers.md").write_text(paper.markdown(told), encoding="utf-8")
    (folder / "papers.html").write_text(paper.page(told, folder), encoding="utf-8")
