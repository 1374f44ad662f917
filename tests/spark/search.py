"""Search everything under a folder for secrets in the forms they could be written in, and a Spark without encryption in
which the search must find them: `python search.py FOLDER` makes it, and prints what was found."""

import base64
import re
import sys
from pathlib import Path


def forms(secret) -> dict[str, bytes]:
    """The bytes a secret would appear as: raw, hexadecimal and base64 (a key), or text and 64-bit words (a number)."""
    if isinstance(secret, bytes):
        out = {"raw": secret, "hex": secret.hex().encode(), "HEX": secret.hex().upper().encode()}
        for skip in range(3):  # wherever the key stands in what was encoded
            coded = base64.b64encode(secret[skip : skip + (len(secret) - skip) // 3 * 3])
            out[f"base64+{skip}"] = coded
        return out | {"repr": repr(secret)[2:-1].encode()}
    if isinstance(secret, str):
        return {"text": secret.encode()}
    return {
        "text": str(secret).encode(),
        "little": secret.to_bytes(8, "little"),
        "big": secret.to_bytes(8, "big"),
    }


def found(folder: Path, secrets: dict) -> set[tuple[str, str]]:
    """{(name of the secret, file)} over every file below `folder`."""
    out = set()
    for path in folder.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            for name, secret in secrets.items():
                if any(form in content and _alone(form, content, secret) for form in forms(secret).values()):
                    out.add((name, str(path.relative_to(folder))))
    return out


def _alone(form: bytes, content: bytes, secret) -> bool:
    """A number in decimal counts where no digit is beside it: time stamps hold all sorts of digits."""
    return not isinstance(secret, int) or not form.isdigit() or bool(re.search(rb"(?<!\d)%s(?!\d)" % form, content))


PLANTED = bytes(range(200, 232))


def plant(session) -> None:
    """A job whose rows carry a key, and are shuffled."""
    import pyarrow as pa

    planted = bytes(range(200, 232))  # by value: executors do not know this module

    def rows(batches):
        for batch in batches:
            columns = [batch.column("id"), pa.array([planted] * batch.num_rows)]
            yield pa.RecordBatch.from_arrays(columns, ["id", "key"])

    frame = session.range(0, 100, 1, 2).mapInArrow(rows, "id bigint, key binary").repartition(3, "id")
    assert frame.rdd.getNumPartitions() == 3 and frame.where("length(key) = 32").count() == 100


def main(folder: Path) -> None:
    """The same release and the planted key in a Spark whose files are not encrypted (the refusal is switched off)."""
    import json
    import os

    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    from pyspark.sql import SparkSession

    import kasuri as ks
    from kasuri.spark import session as checks

    (folder / "local").mkdir()
    (folder / "work").mkdir()
    session = (
        SparkSession.builder.master("local[2]").config("spark.local.dir", str(folder / "local"))
        .config("spark.shuffle.compress", "false").config("spark.ui.enabled", "false")
        .config("spark.cleaner.referenceTracking", "false")  # what was shuffled stays to be found
        .config("spark.ui.showConsoleProgress", "false").config("spark.sql.codegen.wholeStage", "false")
        .getOrCreate()
    )  # fmt: skip
    session.sparkContext.setLogLevel("ERROR")
    frame, call, secrets = case(session, folder)
    refused = ""
    try:
        ks.spark.release(frame, work=folder / "work", **call)
    except ks.PrivacyError as error:
        refused = str(error)
    checks.of = lambda frame: frame.sparkSession
    ks.spark.release(frame, work=folder / "work", **call).close()
    plant(session)
    print(json.dumps({"refused": refused, "found": sorted({n for n, _ in found(folder / "local", secrets)})}))
    session.stop()


def case(session, folder: Path):
    """Records with one conspicuous person in one conspicuous place, the call, and what must not be found anywhere."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    import kasuri as ks

    source = ks.seeded(20261)
    rng = np.random.default_rng(5)
    n, weight = 3000, 61_234_567
    domain = ks.Domain.of(ks.Mesh("grid", shape=(512, 256)))
    table = pa.table(
        {
            "person": pa.array([f"person-{i}" for i in rng.integers(0, 2000, n)] + ["zz-planted-person-7f3a"]),
            "row": np.append(rng.integers(0, 512, n), 401),
            "col": np.append(rng.integers(0, 256, n), 211),
            "weight": np.append(rng.integers(1, 9, n), weight),
        }
    )
    pq.write_table(table, folder / "records.parquet")
    unit = ks.Unit("person", "add-remove", 2, 1 << 26)
    call = {
        "domain": domain,
        "recipe": ks.geometric(),
        "epsilon": "1000 weak",
        "unit": unit,
        "ledger": None,
        "columns": {"grid": ["row", "col"]},
        "weight": "weight",
        "key": bytes(range(100, 132)),
        "source": source,
        "partitions": 2,
    }
    secrets = {
        "release key": source.release_key(),
        "sampling key": call["key"],
        "planted key": PLANTED,
        "cell value": weight,
        "id": "zz-planted-person-7f3a",
    }
    return session.read.parquet(str(folder / "records.parquet")), call, secrets


if __name__ == "__main__":
    main(Path(sys.argv[1]))
