"""What a Spark session must be for a release to keep its promise, and the settings a release runs under."""

from __future__ import annotations

import gc
import logging
import re
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from kasuri import errors
from kasuri.errors import DomainError, KasuriError, PrivacyError, raise_faults
from kasuri.manifest.package import environment

SETTINGS = {
    "spark.sql.adaptive.enabled": "false",  # the layout of the output must follow from the output alone
    "spark.sql.execution.arrow.useLargeVarTypes": "false",  # the types of what tasks give back
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",  # handing over a batch costs as much as many rows
    # no row is skipped by the least and the largest value of many, which one record moves: see docs/proofs/spark.md
    "spark.sql.parquet.filterPushdown": "false",
    "spark.sql.orc.filterPushdown": "false",
    "spark.sql.inMemoryColumnarStorage.partitionPruning": "false",
}

CONNECT = (
    "spark.release takes a DataFrame of a classic Spark session, not one of Spark Connect: there the keys of sampling "
    "and noise would leave this process as part of a plan, the plan that shows whether each record is mapped by itself "
    "is made on the server and cannot be read, and whether shuffle files are encrypted can be asked of the running JVM "
    'alone. Write the records to Parquet, and run the release (or a job file with engine = "spark") where the driver '
    "runs"
)
MOST_WAIT = 60.0
"""Seconds that cancelled tasks are waited for."""


def of(frame: Any) -> Any:
    """The session of `frame`, where everything the promise rests on holds; else every fault at once."""
    if type(frame).__module__.startswith("pyspark.sql.connect"):  # before a client without a JVM fails to import
        raise DomainError(CONNECT)
    try:
        import pyspark
        from pyspark.sql.classic.dataframe import DataFrame
    except ImportError:
        raise DomainError("Spark needs the extra: pip install 'kasuri[spark]' (PySpark 4, Java 17 or later)") from None
    if not isinstance(frame, DataFrame):
        kind = f"{type(frame).__module__}.{type(frame).__name__}"
        raise DomainError(f"spark.release takes a DataFrame of a classic Spark session, not {kind}")
    if frame.isStreaming:
        raise DomainError("a stream of records has no end to release at; release a table they were written to")
    session: Any = frame.sparkSession
    faults = encryption_faults(session.sparkContext.master, running(session))
    if any(logging.getLogger(f"py4j.{name}").isEnabledFor(logging.DEBUG) for name in ("clientserver", "java_gateway")):
        faults.append(
            "the Python logger 'py4j' is at DEBUG and would write the release key into a log; raise its level"
        )
    plan = frame._jdf.queryExecution().analyzed()
    unsteady = sorted(unsteady_parts(plan)) or ([] if plan.deterministic() else ["rand() or the like"])
    if unsteady:
        faults.append(
            f"the frame is not deterministic ({', '.join(unsteady)}): a task that runs again could see other records; "
            "write it to a table, or checkpoint() it, first (whether its rows depend on other records is then yours to "
            "know: see assume)"
        )
    raise_faults(PrivacyError, faults)
    if int(pyspark.__version__.split(".")[0]) < 4:
        raise DomainError(f"PySpark 4 or later is needed, not {pyspark.__version__}")
    return session


UNSTEADY = {
    "Sample", "GlobalLimit", "LocalLimit", "Offset", "Tail", "Deduplicate", "DeduplicateWithinWatermark", "First",
    "Last", "AnyValue", "MaxBy", "MinBy", "NthValue", "Mode", "CollectList", "CollectSet", "ListAgg",
    "ApproximatePercentile", "PythonUDF", "PythonUDAF", "PythonUDTF", "ScalaUDF", "ScriptTransformation", "LogicalRDD",
}  # fmt: skip
"""Parts of a plan that choose or join rows by their order or at random, or run a user's own code; so do the nodes whose
name has InArrow, InPandas or InPython in it."""
_WITH_PLAN = {"ScalarSubquery", "LateralSubquery", "Exists", "ListQuery", "FunctionTableSubqueryArgumentExpression"}


def unsteady_parts(plan: Any) -> set[str]:
    """The names of UNSTEADY parts in an analyzed plan, its expressions and subqueries."""
    found: set[str] = set()
    waiting = [(plan, True)]
    while waiting:
        node, is_plan = waiting.pop()
        name = node.getClass().getSimpleName()
        steady = (name == "Deduplicate" and node.keys().size() == node.output().size()) or (  # equal rows: any of them
            name == "LogicalRDD" and node.rdd().isCheckpointed()
        )
        if (name in UNSTEADY or re.search("In(Arrow|Pandas|Python)", name)) and not steady:
            found.add(name)
        waiting += [(child, is_plan) for child in _all(node.children())]
        if is_plan:
            waiting += [(expression, False) for expression in _all(node.expressions())]
        elif name in _WITH_PLAN:
            waiting.append((node.plan(), True))
    return found


def _all(items: Any) -> list[Any]:
    return [items.apply(i) for i in range(items.size())]


DEFAULTS = {
    "spark.io.encryption.enabled": "false",
    "spark.network.crypto.enabled": "false",
    "spark.network.crypto.saslFallback": "true",
    "spark.shuffle.manager": "sort",
    "spark.shuffle.sort.io.plugin.class": "org.apache.spark.shuffle.sort.io.LocalDiskShuffleDataIO",
}
"""What encryption rests on, with Spark's defaults."""
_SORT = ("sort", "tungsten-sort", "org.apache.spark.shuffle.sort.SortShuffleManager")


def running(session: Any) -> dict[str, str]:
    """DEFAULTS as they are in the running JVM, whatever the session was asked for later."""
    spark = session.sparkContext._jsc.sc()
    conf = spark.getConf()
    found = {name: str(conf.get(name, default)) for name, default in DEFAULTS.items()}
    # settings can be written into a running context; what it was started with is in its parts
    serializer = _part(session, spark.env(), "SparkEnv", "serializerManager", "serializer.SerializerManager")
    if not _part(session, serializer, "serializer.SerializerManager", "encryptionEnabled", bool):
        found["spark.io.encryption.enabled"] = "false"
    shuffle = _part(session, spark.env(), "SparkEnv", "shuffleManager", "shuffle.ShuffleManager").getClass().getName()
    return found if shuffle == _SORT[-1] else found | {"spark.shuffle.manager": shuffle}


def _part(session: Any, owner: Any, kind: str, name: str, result: str | type[bool]) -> Any:
    """owner.name(), looked up by itself: plain calls list all methods, and some name classes that are not there."""
    loader = session.sparkContext._jsc.sc().getClass().getClassLoader()
    java = session._jvm.java.lang

    def known(name: str) -> Any:
        return loader.loadClass(f"org.apache.spark.{name}")

    given = java.Boolean.TYPE if result is bool else known(str(result))
    signature = java.invoke.MethodType.methodType(given)
    handle = java.invoke.MethodHandles.publicLookup().findVirtual(known(kind), name, signature)
    arguments = session._jvm.java.util.ArrayList()
    arguments.add(owner)
    return handle.invokeWithArguments(arguments)


def encryption_faults(master: str, conf: Mapping[str, str]) -> list[str]:
    """What is not encrypted though true records pass through it: files always, the network where there is one."""
    faults, conf = [], DEFAULTS | dict(conf)
    if conf["spark.io.encryption.enabled"].lower() != "true":
        faults.append("spark.io.encryption.enabled must be true: shuffle and spill files hold true records")
    one_host = re.match(r"local(\[|-cluster\[|$)", master)
    if not one_host and conf["spark.network.crypto.enabled"].lower() != "true":
        faults.append("spark.network.crypto.enabled (with spark.authenticate) must be true off one host")
    if not one_host and conf["spark.network.crypto.saslFallback"].lower() != "false":
        faults.append(
            "spark.network.crypto.saslFallback must be false off one host: it allows weaker encryption or none"
        )
    plugin = "spark.shuffle.sort.io.plugin.class"
    if conf["spark.shuffle.manager"].lower() not in (*_SORT[:2], _SORT[-1].lower()) or conf[plugin] != DEFAULTS[plugin]:
        faults.append(
            f"spark.shuffle.manager and {plugin} must be Spark's own: another may write files that are not encrypted"
        )
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
def jobs(session: Any) -> Iterator[None]:
    """What runs in the block is one group of Spark jobs. If the block fails they are cancelled, and their tasks waited
    for, so that none writes while the folder it writes to is removed."""
    context = session.sparkContext
    group = f"kasuri-{secrets.token_hex(8)}"
    names = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
    before = {name: context.getLocalProperty(name) for name in names}
    context.setJobGroup(group, "kasuri release", interruptOnCancel=True)
    try:
        yield
    except BaseException:
        # from a thread of its own: after an interrupt this one's connection to Java may be out of step
        ending = threading.Thread(target=_end, args=(context, group), daemon=True)
        ending.start()
        ending.join(2 * MOST_WAIT)
        raise
    finally:
        for name, value in before.items():
            context.setLocalProperty(name, value)


def _end(context: Any, group: str) -> None:
    """Cancel the jobs of `group` and wait until none of their tasks is active."""
    with suppress(Exception):  # the context may be gone, and its tasks with it
        context.cancelJobGroup(group)
        tracker, until = context.statusTracker(), time.monotonic() + MOST_WAIT
        while time.monotonic() < until:
            told_of = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
            stages = {stage for job in told_of if job is not None for stage in job.stageIds}
            known = [tracker.getStageInfo(stage) for stage in stages]
            if not any(stage is not None and stage.numActiveTasks for stage in known):
                return
            time.sleep(0.1)


@contextmanager
def quiet(what: str) -> Iterator[None]:
    """Around the work of a task: errors that name no value, since Spark writes them, with their words, into logs."""
    try:
        yield
    except KasuriError as error:
        raise type(error)(*error.faults) from None
    except Exception as error:
        raise KasuriError(f"a task failed ({what}: {type(error).__name__})") from None
    finally:
        _settle()


_settled = 0
"""How many modules a worker had loaded when it last put them aside."""


def _settle() -> None:
    """After every task PySpark looks for garbage among all that its worker has ever loaded: .05 s, and a small task
    takes .005. What modules hold is not garbage; put aside, it is looked at once."""
    global _settled
    pyspark = sys.modules.get("pyspark.taskcontext")
    inside = pyspark is not None and pyspark.TaskContext.get() is not None
    if inside and len(sys.modules) != _settled:
        _settled = len(sys.modules)
        gc.freeze()


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


def probe(session: Any, seen: Callable[[], bool]) -> None:
    """Refuse, before a record is read, an executor that runs other software or does not see the private folder. One is
    asked; every task that writes looks again."""
    import pyarrow as pa

    wanted = environment()["hash"]

    def look(batches: Iterator[Any]) -> Iterator[Any]:
        for _ in batches:
            same = environment()["hash"] == wanted
            yield pa.RecordBatch.from_arrays([pa.array([same]), pa.array([seen()])], ["same", "seen"])

    with told():
        found = session.range(1).coalesce(1).mapInArrow(look, "same boolean, seen boolean").toArrow().to_pylist()[0]
    faults = []
    if not found["same"]:
        faults.append("the executors run other versions of kasuri or its numeric libraries; use one environment")
    if not found["seen"]:
        faults.append("driver and executors do not share the folder `work`; give one they all see")
    raise_faults(DomainError, faults)
