"""A Spark session with the Hudi bundle, in the Spark environment: a JSON line with a command, a JSON line with its answer.

`run` executes statements, `read` consumes all rows of a query without keeping them, `rows` gives the rows of a small result.
Two cores, no other limits than Spark's own. Imports pyspark and nothing else.

Usage: spark_session.py JAR SCRATCH_FOLDER
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def session(jar: str, scratch: str) -> SparkSession:
    settings = {
        "spark.jars": jar,
        "spark.driver.extraClassPath": jar,
        "spark.driver.memory": "6g",
        "spark.driver.extraJavaOptions": f"-Duser.timezone=UTC -Djava.io.tmpdir={scratch}",
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.default.parallelism": "4",
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        "spark.local.dir": f"{scratch}/local",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("benchmark")
    for key, value in settings.items():
        builder = builder.config(key, value)
    found = builder.getOrCreate()
    found.sparkContext.setLogLevel("ERROR")
    return found


def answer(spark: SparkSession, command: dict[str, Any]) -> dict[str, Any]:
    if "parquet" in command:
        spark.read.parquet(*command["parquet"]).createOrReplaceTempView(command["view"])
        return {}
    if "read" in command:
        spark.sql(command["read"]).write.format("noop").mode("overwrite").save()
        return {}
    if "rows" in command:
        return {"rows": [list(row) for row in spark.sql(command["rows"]).collect()]}
    for statement in command["run"]:
        spark.sql(statement)
    return {}


def java_processes() -> list[int]:
    """The JVM below this process."""
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in children]


def main(jar: str, scratch: str) -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what the JVM prints must not mix with the answers
    spark = session(jar, scratch)
    print(json.dumps({"version": spark.version, "pids": [os.getpid(), *java_processes()]}), file=answers)
    for line in sys.stdin:
        try:
            found = answer(spark, json.loads(line))
        except Exception as error:  # the side that measures decides what an error means
            found = {"error": str(error)[:2000]}
        print(json.dumps(found), file=answers)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
