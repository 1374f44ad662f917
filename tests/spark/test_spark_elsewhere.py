"""A cell elsewhere on a cluster: the same table as one machine makes, people beyond the window counted once."""

import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import kasuri as ks

sys.path.insert(0, str(Path(__file__).parent))
import test_spark as plain


@pytest.mark.parametrize("recipe", [ks.refined_tree(), ks.haar_topdown(), ks.geometric()], ids=lambda one: one.name)
def test_a_cell_elsewhere_is_that_of_one_machine(cluster, recipe):
    domain = ks.Domain.of(ks.Mesh("grid", shape=(300, 500), elsewhere=True))
    table = plain.records((900, 900), 6000, 2500, 3)
    path = cluster.work / f"elsewhere-{recipe.name}.parquet"
    pq.write_table(table, path)
    unit, columns = ks.Unit("person", "add-remove", 2), {"grid": ["c0", "c1"]}
    counts = ks.count(table, domain, columns=columns, unit=unit, key=plain.KEY)
    local = ks.release(counts, recipe, epsilon="0.5", ledger=None, source=ks.seeded(7))
    frame = cluster.session.read.parquet(str(path)).repartition(5)
    call = {"domain": domain, "recipe": recipe, "epsilon": "0.5", "unit": unit, "ledger": None, "columns": columns}
    with ks.spark.release(frame, **call, key=plain.KEY, source=ks.seeded(7), work=cluster.work, partitions=5) as out:
        plain.assert_same(out.collect(), local)
    assert 1500 < local.area(grid="elsewhere") < 3000, "of 2,500 people with two cells each"
