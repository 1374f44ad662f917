"""Coordinates to mesh codes: every corner in its own cell, equal to jismesh away from edges, areas by code."""

import numpy as np
import pytest

import kasuri as ks
from kasuri import meshcode

JISMESH = {"80km": 1, "10km": 2, "5km": 5000, "2km": 2000, "1km": 3, "500m": 4, "250m": 5, "125m": 6}


@pytest.mark.parametrize("level", meshcode.LEVELS)
def test_no_corner_in_a_neighbour_cell(level):
    """2 x 10^5 corners per level, each as the double nearest to its exact value, and its decimals to 12 places."""
    per = meshcode.LEVELS[level].per_first
    rng = np.random.default_rng(4)
    row = rng.integers(per * 30, per * 69, 200_000)
    col = rng.integers(per * 22, per * 55, 200_000)
    wanted = meshcode.encode(row, col, level)
    lat, lon = row * 2 / (3 * per), 100 + col / per  # one rounding each
    assert np.array_equal(meshcode.locate(lat, lon, level), wanted)
    assert np.array_equal(meshcode.locate(np.round(lat, 12), np.round(lon, 12), level), wanted)
    # the middle and (almost) the far edge stay in the cell too
    for share in (0.5, 1 - 1e-5):
        lat, lon = (row + share) * 2 / (3 * per), 100 + (col + share) / per
        assert np.array_equal(meshcode.locate(lat, lon, level), wanted)


@pytest.mark.parametrize("level", meshcode.LEVELS)
def test_equal_to_jismesh_on_random_points(level):
    jismesh = pytest.importorskip("jismesh.utils")
    rng = np.random.default_rng(5)
    lat, lon = rng.uniform(20, 46, 500_000), rng.uniform(122, 154, 500_000)
    assert np.array_equal(meshcode.locate(lat, lon, level), jismesh.to_meshcode(lat, lon, JISMESH[level]))


def test_two_kilometre_codes():
    """The 2 km mesh: two even digits below the 10 km mesh and a 5 (JIS X 0410, integrated mesh)."""
    assert meshcode.encode([53 * 40 + 4 * 5 + 1], [39 * 40 + 6 * 5 + 3], "2km").tolist() == [533946265]
    row, col = meshcode.decode([533946265], "2km")
    assert (row[0], col[0]) == (53 * 40 + 21, 39 * 40 + 33)
    for wrong in (533946261, 533946365, 533946275, 533986265):
        assert not meshcode.try_decode([wrong], "2km")[2][0]


def test_points_outside_the_grid():
    _, _, good = meshcode.try_locate([35.0, np.nan, -1.0, 35.0, 35.0, np.inf], [139.0, 139, 139, 99.9, 200.0, 1], "1km")
    assert good.tolist() == [True, False, False, False, False, False]
    with pytest.raises(ks.DomainError, match="positions 1"):
        meshcode.locate([35, 80], [139, 139], "1km")


def test_the_level_is_settled_by_digits_or_refused():
    assert [meshcode.level_of(c) for c in ("5339", "533946", "5339462", "53394611", "533946113", "533946265")] == [
        "80km", "10km", "5km", "1km", "500m", "2km",
    ]  # fmt: skip
    for unclear in ("5339461131", "53394", "533946119", "53394x"):
        with pytest.raises(ks.DomainError, match="not settled"):
            meshcode.level_of(unclear)


def test_area_by_code():
    domain = ks.Domain.of(ks.Mesh.window("grid", "5339", level="500m"))
    dense = np.random.default_rng(6).poisson(3, domain.shape)
    counts = ks.Counts.from_dense(dense, domain, ks.Unit("person", "add-remove", 1))
    out = ks.release(counts, ks.haar_topdown(), epsilon="1", ledger=None, source=ks.seeded(1))
    table = out.to_dense()
    assert out.area(code="5339") == out.total()
    assert out.area(code="533946") == table[80:100, 120:140].sum()
    assert out.area(code="53394611") == table[82:84, 122:124].sum()
    assert out.area(code="533946113") == table[83, 122]
    for wrong in ("5340", "5339461131"):
        with pytest.raises(ks.DomainError):
            out.area(code=wrong)
    assert sum(out.area(code=f"5339{q}{v}") for q in range(8) for v in range(8)) == out.total()
