"""Frames and notebooks: labels, times and intervals as people read them, and cards that escape every word."""

import json

import duckdb
import numpy as np
import polars as pl
import pytest

import kasuri as ks

PERSON = ks.Unit("person", "add-remove", 1)


@pytest.fixture(scope="module")
def out():
    domain = ks.Domain.of(
        ks.Mesh("grid", level="500m", origin=(8400, 6080), shape=(4, 4)),
        ks.Nominal("sex", labels=("female", "male")),
        ks.Time("hour", start="2020-10-01T22:00", seconds=3600, size=4),
    )
    dense = np.zeros(domain.shape, int)
    dense[1, 2, 0, 3], dense[3, 0, 1, 0] = 90_000, 50_000
    counts = ks.Counts.from_dense(dense, domain, PERSON)
    return ks.release(counts, ks.haar_topdown(), epsilon="5", ledger=None)


def test_columns_are_labels_times_and_limits(out):
    table = out.to_arrow()
    assert table.column_names == ["mesh_code", "row", "col", "sex", "hour", "value", "lower", "upper"]
    largest = max(table.to_pylist(), key=lambda row: row["value"])
    assert (largest["row"], largest["col"], largest["sex"]) == (1, 2, "female")
    assert largest["hour"].isoformat() == "2020-10-02T01:00:00"  # the fourth hour: the next day
    assert largest["lower"] <= largest["value"] <= largest["upper"]
    one = out.interval(cells=[out.cells[np.argmax(out.values)]])
    assert (largest["lower"], largest["upper"]) == (one.lower, one.upper)
    assert table.num_rows == out.cells.size and sum(table["value"].to_pylist()) == out.total()
    about = json.loads(table.schema.metadata[b"kasuri"])
    assert about["guarantee"] == out.guarantee.to_json()


def test_every_frame_is_the_same_table(out):
    rows = out.to_arrow().to_pylist()
    assert out.to_polars().to_dicts() == rows
    frame = out.to_pandas()
    assert frame["hour"].dt.hour.tolist() == [row["hour"].hour for row in rows]
    assert frame["value"].tolist() == [row["value"] for row in rows]
    assert pl.DataFrame(out).to_dicts() == rows  # __arrow_c_stream__
    with duckdb.connect() as base:
        assert base.execute("SELECT sum(value)::BIGINT FROM out").fetchone() == (out.total(),)


def test_outlines_or_what_to_install(out):
    try:
        import geopandas  # noqa: F401
    except ImportError:
        with pytest.raises(ks.DomainError, match="pip install geopandas"):
            out.to_geopandas()
        return
    frame = out.to_geopandas()
    assert frame.geometry.is_valid.all() and frame.crs.to_epsg() == 6668


def test_pictures(out):
    drawn = out.plot()
    assert len(drawn.axes) == 2  # the map and its scale
    plain = ks.Domain.of(ks.Nominal("sex", labels=("female", "male")))
    bars = ks.release(ks.Counts.from_dense(np.array([5, 9]), plain, PERSON), ks.geometric(), epsilon="5", ledger=None)
    assert [text.get_text() for text in bars.plot().axes[0].get_xticklabels()] == ["female", "male"]
    huge = ks.Domain.of(ks.Mesh("grid", shape=(1 << 13, 1 << 13)))
    large = ks.release(ks.Counts.from_coo([1], [5], huge, PERSON), ks.haar_topdown(), epsilon="5", ledger=None)
    with pytest.raises(ks.DomainError, match="report"):
        large.plot()
    assert "<img" not in large._repr_html_()


def test_cards_tell_the_promise_and_escape_every_word(out, tmp_path):
    card = out._repr_html_()
    assert "epsilon 5" in card and "data:image/png;base64," in card and "http" not in card
    odd = ks.Unit("<script>x</script>", "add-remove", 1)
    guarantee = ks.geometric().guarantee(ks.Domain.of(ks.Ordered("age", 4)), odd, "1")
    assert "<script>" not in guarantee._repr_html_() and "&lt;script&gt;" in guarantee._repr_html_()
    ledger = ks.Ledger.open(tmp_path / "a.ledger", epsilon="1", unit=PERSON, data="<b>wards</b>")
    assert "&lt;b&gt;wards" in ledger._repr_html_() and "epsilon 1" in ledger._repr_html_()
    domain = ks.Domain.of(ks.Mesh("grid", shape=(4, 4)))
    plan = ks.plan([ks.geometric()], domain, PERSON, epsilons=["1"])
    assert "geometric, epsilon 1" in plan._repr_html_()
    counts = ks.Counts.from_dense(np.ones((4, 4), int), domain, PERSON)
    found = ks.compare(counts, [ks.geometric()], epsilons=["1"], areas=[1], trials=2)
    assert "CONFIDENTIAL" in found._repr_html_().upper()
