"""The researchers' notebook runs from top to bottom, and what it prints about the three maps holds."""

import json
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebooks" / "compare-mechanisms.ipynb"


def test_the_notebook_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    book = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert book["nbformat"] == 4 and all("id" in cell for cell in book["cells"])
    names: dict = {"__name__": "__notebook__"}
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
            printed = capsys.readouterr().out
            stored = "".join("".join(out["text"]) for out in cell["outputs"])
            assert bool(printed) == bool(stored), "a cell that prints is stored with what it printed"
    result = names["RESULT"]
    assert list(result) == ["Tokyo", "plain", "mountains"] and (tmp_path / "mountains.png").exists()
    for rows in result.values():
        cell, block = 0, 3
        assert rows["geometric"][cell] < rows["refined_tree"][cell] < rows["haar_topdown"][cell]
        assert max(rows["refined_tree"][block], rows["haar_topdown"][block]) < rows["geometric"][block] / 4
        assert rows["geometric"][cell] == pytest.approx(14.14, rel=0.03)
