"""Figures: the file kinds, equal bytes from equal input, and negative cells in red."""

import numpy as np
import pytest

import kasuri as ks
from kasuri.report.figures import cell_aspect, map_png, mesh_values, small_multiples


@pytest.mark.parametrize(("kind", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_small_multiples_in_three_kinds(tmp_path, kind, start):
    panels = {f"map {i}": np.arange(30).reshape(5, 6) - 3 * i for i in range(4)}
    for name in ("a", "b"):
        small_multiples(panels, tmp_path / f"{name}.{kind}", "words")
    made = (tmp_path / f"a.{kind}").read_bytes()
    assert made.startswith(start) and made == (tmp_path / f"b.{kind}").read_bytes()


def test_negative_cells_are_red_and_counted(tmp_path):
    from matplotlib import image

    def reds(values):
        small_multiples({"x": values}, tmp_path / "x.png")
        seen = image.imread(tmp_path / "x.png")[:, :, :3]
        return int((np.abs(seen - np.array([215, 48, 31]) / 255).max(axis=2) < 0.02).sum())

    some = np.full((4, 4), 7)
    assert reds(some) == 0
    some[1, 2] = -3
    once = reds(some)
    some[3, 0] = -1
    assert once > 100 and reds(some) == pytest.approx(2 * once, rel=0.05)


def test_cells_have_their_shape_on_the_ground():
    """Around Tokyo a cell of the 500 m mesh is 463 m high and about 566 m wide."""
    kanto = ks.Mesh("grid", level="500m", origin=(8400, 6080), shape=(512, 512))
    latitude = (8400 + 256) / 240
    assert cell_aspect(kanto) == pytest.approx((1 / 240) / (np.cos(np.radians(latitude)) / 160))
    assert 0.8 < cell_aspect(kanto) < 0.85 and cell_aspect(ks.Mesh("grid", shape=(4, 4))) == 1


def test_a_map_sums_other_axes_and_needs_a_mesh(tmp_path):
    domain = ks.Domain.of(ks.Mesh("grid", shape=(3, 5)), ks.Nominal("sex", ("f", "m")))
    unit = ks.Unit("person", "add-remove", 1)
    counts = ks.Counts.from_dense(np.ones(domain.shape, dtype=int), domain, unit)
    out = ks.release(counts, ks.geometric(), epsilon="1", ledger=None)
    assert (mesh_values(out) == out.to_dense().sum(axis=2)).all()
    map_png(out, tmp_path / "m.png", title="t")
    with pytest.raises(ks.DomainError, match="figure is one of"):
        map_png(out, tmp_path / "m.bmp", title="t")
    bare = ks.Counts.from_dense(np.ones(3, dtype=int), ks.Domain.of(ks.Ordered("age", 3)), unit)
    with pytest.raises(ks.DomainError, match="one mesh"):
        mesh_values(ks.release(bare, ks.geometric(), epsilon="1", ledger=None))
