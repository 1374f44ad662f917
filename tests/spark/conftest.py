"""One Spark with two executor processes for all tests here, its every file in one folder that can be searched."""

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

LOGGING = """
rootLogger.level = info
logger.spark.name = org.apache.spark
logger.spark.level = info
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d %p %c: %m%n%ex
"""


JAVA = """#!/bin/sh
# The executor of each worker on a loopback address of its own: on one host Spark starts no second copy of a task.
for word do case $word in spark://Worker@*) port=${word##*:} ;; esac; done
for word do
  shift
  if [ "$before" = --hostname ]; then word=127.1.$((port / 256)).$((port % 256)); fi
  set -- "$@" "$word"
  before=$word
done
exec "$REAL_JAVA" "$@"
"""


def java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else shutil.which("java")


@dataclass(frozen=True)
class Cluster:
    """The session, the folders of all its files (logs, event log, shuffle and spill), and a folder to work in."""

    session: Any
    files: Path
    executors: Path
    work: Path


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    if java() is None:
        if os.environ.get("KASURI_NEEDS_JAVA"):
            pytest.fail("no Java, though KASURI_NEEDS_JAVA is set")
        pytest.skip("no Java on this machine (apt-get install default-jre-headless)")
    import pyspark
    from pyspark.sql import SparkSession

    files = tmp_path_factory.mktemp("spark")
    for name in ("local", "events"):
        (files / name).mkdir()
    (files / "log4j2.properties").write_text(LOGGING)
    own_java = files / "java" / "bin" / "java"
    own_java.parent.mkdir(parents=True)
    own_java.write_text(JAVA.replace("$REAL_JAVA", str(java())))
    own_java.chmod(0o700)
    before = dict(os.environ)
    os.environ.update(PYSPARK_PYTHON=sys.executable, PYSPARK_DRIVER_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    java_options = f"-Dlog4j2.configurationFile={files / 'log4j2.properties'}"
    settings = {
        "spark.io.encryption.enabled": "true",
        "spark.local.dir": str(files / "local"),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{files / 'events'}",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        # what is on disk is then as plain as encryption leaves it, and stays until the end
        "spark.shuffle.compress": "false",
        "spark.shuffle.spill.compress": "false",
        "spark.cleaner.referenceTracking": "false",
        "spark.executorEnv.JAVA_HOME": str(files / "java"),
        "spark.speculation": "true",
        "spark.speculation.interval": "50ms",
        "spark.speculation.multiplier": "3",
        "spark.speculation.quantile": "0.5",
        "spark.executor.memory": "1g",
        # small jobs: compiling costs more than it saves
        "spark.sql.codegen.wholeStage": "false",
        "spark.driver.extraJavaOptions": java_options,
        "spark.executor.extraJavaOptions": java_options,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "4",
    }
    builder = SparkSession.builder.master("local-cluster[2,1,2048]").appName("kasuri tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    kept = os.dup(2)
    with open(files / "driver.log", "wb") as log:  # the JVM keeps this as its standard error
        os.dup2(log.fileno(), 2)
        try:
            session = builder.getOrCreate()
        finally:
            os.dup2(kept, 2)
            os.close(kept)
    session.sparkContext.setLogLevel("INFO")
    executors = Path(pyspark.__file__).parent / "work" / session.sparkContext.applicationId  # where local-cluster logs
    yield Cluster(session, files, executors, tmp_path_factory.mktemp("work"))
    session.stop()
    shutil.rmtree(executors, ignore_errors=True)
    os.environ.clear()
    os.environ.update(before)
