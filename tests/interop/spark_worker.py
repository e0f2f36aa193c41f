"""A Spark session with one Hudi bundle: commands come as JSON lines on standard input, answers go to standard output.

Runs in the Spark environment, not in the one of the tests, so it imports pyspark and nothing else: rows travel as
Parquet files in both directions, which keeps timestamps, decimals, binaries and nested values exact. Commands
(`{"do": ..., ...}`): `sql` runs statements and keeps the rows of the last one, `read` and `write` are Hudi's DataFrame
reader and writer. The end of the input ends the process. Everything the JVM prints goes
to standard error. The tests talk to it through `spark.SparkHudi`.

Usage: spark_worker.py JAR SCRATCH_FOLDER TIME_ZONE_OF_THE_JVM
"""

import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.types import NullType

Command = dict[str, Any]


def start_session(jar: str, scratch: str, zone: str) -> SparkSession:
    """The session that works with all three bundles; two cores. SQL sees UTC whatever the JVM's zone is."""
    # One fast compiler and one collector thread: short jobs on two cores end a fifth sooner.
    java = [f"-Duser.timezone={zone}", f"-Djava.io.tmpdir={scratch}", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    settings = {
        "spark.jars": jar,
        "spark.driver.extraClassPath": jar,  # 1.0.2 fails in log scans without it
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": " ".join(java),
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        "spark.local.dir": f"{scratch}/local",
        "spark.hadoop.parquet.avro.write-old-list-structure": "false",  # arrays with null elements
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("interop")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def save(frame: DataFrame, folder: str) -> str:
    """Write the rows to one Parquet file and return its path. Columns of no type (NULL literals) become strings."""
    untyped = [f.name for f in frame.schema.fields if isinstance(f.dataType, NullType)]
    for name in untyped:
        frame = frame.withColumn(name, col(name).cast("string"))
    frame.coalesce(1).write.mode("overwrite").parquet(folder)
    (file,) = Path(folder).glob("part-*.parquet")
    return str(file)


def summary(error: Exception) -> str:
    """The first line and each distinct cause of an error; the stack goes to standard error only."""
    lines = str(error).splitlines() or [repr(error)]
    causes = [line for line in lines[1:] if line.startswith(("Caused by:", ": "))]
    return "\n".join(dict.fromkeys([lines[0], *causes]))


def run_sql(session: SparkSession, command: Command, folder: str) -> Command:
    """Run the statements in order; the answer has the rows of the last one if it gives any."""
    frame = None
    for statement in command["statements"]:
        frame = session.sql(statement)
    return {"rows": save(frame, folder)} if frame is not None and frame.columns else {}


def run_read(session: SparkSession, command: Command, folder: str) -> Command:
    reader = session.read.format("hudi").options(**command["options"])
    return {"rows": save(reader.load(command["path"]), folder)}


def run_write(session: SparkSession, command: Command, folder: str) -> Command:  # noqa: ARG001
    frame = session.read.parquet(command["rows"])
    frame.write.format("hudi").options(**command["options"]).mode("append").save(command["path"])
    return {}


COMMANDS = {"sql": run_sql, "read": run_read, "write": run_write}


def main(jar: str, scratch: str, zone: str) -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # the JVM inherits descriptor 1: whatever it prints must not mix with the answers
    session = start_session(jar, scratch, zone)
    print(json.dumps({"ready": session.version}), file=answers)
    for number, line in enumerate(sys.stdin):
        command = json.loads(line)
        started = time.monotonic()
        try:
            answer = COMMANDS[command["do"]](session, command, f"{scratch}/rows-{number}")
        except Exception as error:  # the test decides what an error means
            traceback.print_exc()
            answer = {"error": summary(error)}
        answer["seconds"] = round(time.monotonic() - started, 3)
        print(json.dumps(answer), file=answers)
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
