"""A Spark Connect server and a client of it: `python connect.py FOLDER` prints what a release answers to its frame."""

import json
import os
import sys
from pathlib import Path


def main(folder: Path) -> None:
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    from pyspark.sql import SparkSession

    import kasuri as ks

    session = (
        SparkSession.builder.remote("local[2]").config("spark.io.encryption.enabled", "true")
        .config("spark.local.dir", str(folder)).config("spark.ui.enabled", "false").getOrCreate()
    )  # fmt: skip
    frame = session.range(50).selectExpr("id AS person", "id % 3 AS row", "id % 5 AS col")
    domain, unit = ks.Domain.of(ks.Mesh("grid", shape=(4, 8))), ks.Unit("person", "add-remove", 1)
    book = ks.Ledger.open(folder / "book.ledger", epsilon="1", unit=unit, data="visits")
    refused = ""
    try:
        ks.spark.release(frame, domain, epsilon="1", unit=unit, ledger=book, columns={"grid": ["row", "col"]},
                         data="visits", work=folder)  # fmt: skip
    except ks.DomainError as error:
        refused = str(error)
    kinds = [entry["kind"] for entry in book.entries()]
    print(json.dumps({"rows": frame.count(), "kind": type(frame).__module__, "refused": refused, "ledger": kinds}))
    session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
