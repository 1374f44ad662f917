"""What a Spark session must be for a release to keep its promise, and the settings a release runs under."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kasuri import errors
from kasuri.errors import DomainError, KasuriError, PrivacyError, raise_faults
from kasuri.manifest.package import environment

SETTINGS = {
    "spark.sql.adaptive.enabled": "false",  # the layout of the output must follow from the output alone
    "spark.sql.execution.arrow.useLargeVarTypes": "false",  # the types of what tasks give back
}


def of(frame: Any) -> Any:
    """The session of `frame`, where everything the promise rests on holds; else every fault at once."""
    try:
        import pyspark
        from pyspark.sql.classic.dataframe import DataFrame
    except ImportError:
        raise DomainError("Spark needs the extra: pip install 'kasuri[spark]' (PySpark 4, Java 17 or later)") from None
    if not isinstance(frame, DataFrame):
        kind = f"{type(frame).__module__}.{type(frame).__name__}"
        raise DomainError(
            f"spark.release takes a DataFrame of a classic Spark session, not {kind}; "
            "under Spark Connect the release key would leave this process as part of a plan"
        )
    session: Any = frame.sparkSession
    faults = encryption_faults(session.sparkContext.master, dict(session.sparkContext.getConf().getAll()))
    if any(logging.getLogger(f"py4j.{name}").isEnabledFor(logging.DEBUG) for name in ("clientserver", "java_gateway")):
        faults.append(
            "the Python logger 'py4j' is at DEBUG and would write the release key into a log; raise its level"
        )
    if not frame._jdf.queryExecution().analyzed().deterministic():
        faults.append(
            "the frame is not deterministic (rand(), sample, ...): a task that runs again would see other records; "
            "write it to a table first"
        )
    raise_faults(PrivacyError, faults)
    if int(pyspark.__version__.split(".")[0]) < 4:
        raise DomainError(f"PySpark 4 or later is needed, not {pyspark.__version__}")
    return session


def encryption_faults(master: str, conf: Mapping[str, str]) -> list[str]:
    """What is not encrypted though true records pass through it: files always, the network where there is one."""
    faults = []
    if conf.get("spark.io.encryption.enabled", "false").lower() != "true":
        faults.append("spark.io.encryption.enabled must be true: shuffle and spill files hold true records")
    one_host = re.match(r"local(\[|-cluster\[|$)", master)
    if not one_host and conf.get("spark.network.crypto.enabled", "false").lower() != "true":
        faults.append("spark.network.crypto.enabled (with spark.authenticate) must be true off one host")
    return faults


@contextmanager
def settings(session: Any, partitions: int | None) -> Iterator[None]:
    """SETTINGS (and a number of shuffle partitions) for the length of the block."""
    wanted = dict(SETTINGS) | ({} if partitions is None else {"spark.sql.shuffle.partitions": str(partitions)})
    before = {name: session.conf.get(name) for name in wanted}
    try:
        for name, value in wanted.items():
            session.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            session.conf.set(name, value)


@contextmanager
def quiet(what: str) -> Iterator[None]:
    """Around the work of a task: errors that name no value, since Spark writes them, with their words, into logs."""
    try:
        yield
    except KasuriError as error:
        raise type(error)(*error.faults) from None
    except Exception as error:
        raise KasuriError(f"a task failed ({what}: {type(error).__name__})") from None


@contextmanager
def told() -> Iterator[None]:
    """Spark's errors as ours: a refusal made in a task keeps its words; of anything else only the kind is told."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        found = re.search(r"kasuri\.errors\.(\w+): ([^\n]*)", str(error))
        kind = getattr(errors, found[1], KasuriError) if found else KasuriError
        words = found[2] if found else f"the Spark job failed ({type(error).__name__}); the executors' logs say more"
        raise kind(words) from None


def probe(session: Any, folder: Path) -> None:
    """Refuse, before a record is read, executors that run other software or do not see `folder`."""
    import pyarrow as pa

    wanted, name = environment()["hash"], str(folder / "seen")

    def look(batches: Iterator[Any]) -> Iterator[Any]:
        for _ in batches:
            try:
                Path(name).touch()
                seen = True
            except OSError:
                seen = False
            same = environment()["hash"] == wanted
            yield pa.RecordBatch.from_arrays([pa.array([same]), pa.array([seen])], ["same", "seen"])

    with told():
        found = session.range(1).coalesce(1).mapInArrow(look, "same boolean, seen boolean").toArrow().to_pylist()[0]
    faults = []
    if not found["same"]:
        faults.append("the executors run other versions of kasuri or its numeric libraries; use one environment")
    if not found["seen"] or not (folder / "seen").exists():
        faults.append(f"{folder.parent}: driver and executors do not share this folder; give one they all can write")
    raise_faults(DomainError, faults)
