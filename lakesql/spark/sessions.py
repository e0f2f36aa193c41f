"""The Spark session of a connection: one that is given, looked at; or one that is started with a Hudi bundle.

pyspark is needed here alone, and the JVM below it. Settings of a statement are put into the session for as long as it
runs and then are what they were.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lakesql.errors import LakeError, TableError

BUNDLE, PACKAGES, MASTER, MEMORY, EXCHANGE = (
    f"lakesql.spark.{name}" for name in ("bundle", "packages", "master", "memory", "exchange")
)
SETTINGS = {
    BUNDLE: "path of the Hudi bundle for Spark, a jar; also in the environment variable LAKESQL_SPARK_BUNDLE",
    PACKAGES: "coordinates of the bundle, which Spark then fetches",
    MASTER: "where Spark runs; default local[*]",
    MEMORY: "memory of the driver; default 2g",
    EXCHANGE: "a folder that this process and Spark's workers both see, for rows handed to Spark; needed on a cluster",
}
_VARIABLE = "LAKESQL_SPARK_BUNDLE"
_EXTENSION = "org.apache.spark.sql.hudi.HoodieSparkSessionExtension"
_CATALOG = "org.apache.spark.sql.hudi.catalog.HoodieCatalog"

NEEDED = {
    "spark.sql.extensions": _EXTENSION,
    "spark.sql.catalog.spark_catalog": _CATALOG,
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
}
"""What a session must have from its start for Hudi's SQL."""

SAME = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.caseSensitive": "false",
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.storeAssignmentPolicy": "ANSI",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
}
"""In force while a statement of ours runs: with them Spark answers as DuckDB does, or says that it cannot."""


def require_pyspark() -> None:
    """LakeError without pyspark."""
    if find_spec("pyspark") is None:
        raise LakeError("engine spark needs the package pyspark: pip install 'lakesql[spark]'.")


def adopted(spark: Any) -> Any:
    """A session that was given. LakeError when it cannot read and write Hudi tables."""
    lacking = [f"{key} = {value}" for key, value in NEEDED.items() if value not in (spark.conf.get(key, "") or "")]
    if lacking:
        raise LakeError(
            f"the Spark session lacks settings that Hudi needs from the start: {'; '.join(lacking)}. Make the session with "
            "them and the Hudi bundle, or leave spark=... out and SET lakesql.spark.bundle."
        )
    newest_table_version(spark)
    return spark


def newest_table_version(spark: Any) -> int:
    """The newest version of a table that the session's Hudi bundle makes. LakeError when there is no bundle."""
    try:
        return int(spark._jvm.org.apache.hudi.common.table.HoodieTableVersion.current().versionCode())
    except Exception as error:
        raise LakeError(
            "the Spark session has no Hudi bundle on its class path. Start it with spark.jars=hudi-spark3.5-bundle_2.12-....jar."
        ) from error


def start(config: Mapping[str, str], warehouse: str) -> Any:
    """A session that is started here. `config`: the settings lakesql.spark.* and further ones of Spark's, spark.*."""
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        return adopted(running)
    bundle, packages = config.get(BUNDLE) or os.environ.get(_VARIABLE), config.get(PACKAGES)
    if not bundle and not packages:
        raise LakeError(
            "engine spark needs the Hudi bundle for Spark, a jar. Give connect(..., config={'lakesql.spark.bundle': 'path of "
            f"hudi-spark3.5-bundle_2.12-1.2.0.jar'}}), {_VARIABLE} in the environment, lakesql.spark.packages with its "
            "coordinates, or a session of yours: connect(engine='spark', spark=session)."
        )
    if bundle and not Path(bundle).is_file():
        raise LakeError(f"{bundle}: there is no such file; {BUNDLE} is the path of the Hudi bundle for Spark.")
    options = {
        **NEEDED,
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.driver.memory": config.get(MEMORY, "2g"),
        "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
        "spark.hadoop.parquet.avro.write-old-list-structure": "false",  # arrays with NULL elements fail to write without
        "spark.sql.warehouse.dir": f"{warehouse}/.spark",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if bundle:
        options |= {"spark.jars": bundle, "spark.driver.extraClassPath": bundle}  # log scans of 1.0.2 need the second
    if packages:
        options["spark.jars.packages"] = packages
    options |= {key: value for key, value in config.items() if key.startswith("spark.")}
    builder = SparkSession.builder.master(config.get(MASTER, "local[*]")).appName("lakesql")
    for key, value in options.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("FATAL")  # what fails is raised, with its cause
    return adopted(session)


def is_local(spark: Any) -> bool:
    """Whether the workers of a session are in this machine, and see its files."""
    return str(spark.sparkContext.master).startswith("local")


@contextmanager
def settings(spark: Any, wanted: Mapping[str, str]) -> Iterator[None]:
    """Within, the session has these settings, and what makes it answer as DuckDB does."""
    before: dict[str, str | None] = {}
    try:
        for key, value in {**SAME, **wanted}.items():
            before[key] = spark.conf.get(key, None)
            try:
                spark.conf.set(key, value)
            except Exception as error:
                raise TableError(f"Spark does not take the setting {key} = {value!r}: {error}") from error
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)
