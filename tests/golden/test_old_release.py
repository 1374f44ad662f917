"""Releases saved by kasuri before `verify` computed anything again: they load, verify, and their values come out.

The archive was written by the commit before that change (16 x 16 cells of made-up counts, epsilon 0.5). Where these
tests fail because a refinement gives other numbers, raise `refine.VERSION`.
"""

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

import kasuri as ks
from kasuri.published import intervals

ARCHIVE = Path(__file__).parent / "releases_before_recomputing.tar.xz"


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    folder = tmp_path_factory.mktemp("old")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.mark.parametrize("name", ["haar_topdown", "refined_tree", "bayes_tree", "bayes_tree_prior"])
def test_an_old_release_loads_and_verifies(old, name):
    assert "recipe" not in json.loads((old / name / "datapackage.json").read_text())["privacy"]["implementation"]
    found = ks.verify(old / name)
    assert found["ok"], found["faults"]
    assert any("another version of kasuri" in item for item in found["not_recomputed"])
    back = ks.Release.load(str(old / name))
    assert back.total() > 1000 and back.interval(rows=slice(0, 4), cols=slice(0, 4)).upper > 0


@pytest.mark.parametrize("name", ["haar_topdown", "refined_tree", "bayes_tree"])
def test_todays_refinement_gives_the_old_values(old, name):
    """To the last one; bayes_tree, whose exponentials may differ in the last digit elsewhere, up to rounding."""
    found = [item for item in ks.verify(old / name)["not_recomputed"] if item.startswith("values")]
    assert all(name == "bayes_tree" and "to within rounding" in item for item in found)


def test_what_only_the_public_table_tells_is_named(old):
    found = ks.verify(old / "bayes_tree_prior")["not_recomputed"]
    assert any(item.startswith("values: refined with a public table") for item in found)
    assert any(item.startswith("configuration_hash") for item in found)


@pytest.mark.parametrize("name", ["haar_topdown", "refined_tree"])
def test_a_release_saved_with_windows_without_an_end_verifies(tmp_path, name):
    """Written by the commit before windows had an end (32 x 32 cells of made-up counts, epsilon 0.1), and its recipe
    taken out of the manifest as an earlier version has it. Limits of today's rule would be others."""
    with tarfile.open(Path(__file__).parent / "releases_with_windows.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    found = ks.verify(tmp_path / name)
    assert found["ok"], found["faults"]
    back = ks.Release.load(str(tmp_path / name))
    told = json.loads((tmp_path / name / "datapackage.json").read_text())["intervals"]["method"]
    saved, today = intervals.saved_columns(back, told), intervals.columns(back)
    assert told.endswith("pooled with the nodes around it") and (saved[1] != today[1]).sum() > 10


@pytest.mark.parametrize("name", ["haar_topdown", "refined_tree"])
def test_a_release_saved_with_two_windows_verifies(tmp_path, name):
    """Written by the commit before counts were weighed against the way to them, and its recipe taken out likewise."""
    with tarfile.open(Path(__file__).parent / "releases_with_two_windows.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    found = ks.verify(tmp_path / name)
    assert found["ok"], found["faults"]
    back = ks.Release.load(str(tmp_path / name))
    told = json.loads((tmp_path / name / "datapackage.json").read_text())["intervals"]["method"]
    saved, today = intervals.saved_columns(back, told), intervals.columns(back)
    apart = np.abs(saved[1] - today[1]).max()  # of counts only the steps of their noise came since
    assert told.endswith("in two windows at most") and (apart > 1 if name == "haar_topdown" else apart == 1)
