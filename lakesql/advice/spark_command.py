"""A statement as a `spark-sql` call: the bundle that writes the table's version, the session it needs, and Spark's words. Pure."""

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lakesql.table.state import TableState

WITHIN_S = 3600.0

FORMATS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json"}
BUNDLES = {6: "0.15.0", 8: "1.0.2", 9: "1.2.0"}
_BUNDLE = "org.apache.hudi:hudi-spark3.5-bundle_2.12:"
_CONF = (
    "spark.serializer=org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrator=org.apache.spark.HoodieSparkKryoRegistrar",
    "spark.hadoop.parquet.avro.write-old-list-structure=false",
    "spark.sql.session.timeZone=UTC",
    "spark.sql.extensions=org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.catalog.spark_catalog=org.apache.spark.sql.hudi.catalog.HoodieCatalog",
)


@dataclass(frozen=True, slots=True)
class Asked:
    """A statement: what it does, with how many rows, from which file, and as which script, where there is one."""

    statement: str
    rows: int
    within_s: float = WITHIN_S
    data: str | None = None
    script: str | None = None


def spark_command(state: TableState, asked: Asked) -> str:
    """The `spark-sql` call that does the statement on the table, with the bundle that writes its version."""
    bundle = _BUNDLE + BUNDLES[state.config.version]
    what = (
        f"-f {shlex.quote(asked.script)}" if asked.script is not None else f"-e {shlex.quote(spark_sql(state, asked))}"
    )
    options = " ".join(f"--conf {conf}" for conf in _CONF)
    return f"spark-sql --packages {bundle} {options} {what}"


def spark_sql(state: TableState, asked: Asked) -> str:
    """The statement in Spark's words. Without a file the rows are a view `changes` that is still to be made."""
    name, source = _spark_name(state.name), "changes"
    parts = [f"CREATE TABLE IF NOT EXISTS {name} USING hudi LOCATION {_text(state.path)}"]
    if asked.statement == "compaction":
        return (
            "; ".join([*parts, f"CALL run_compaction(op => 'scheduleAndExecute', table => {_text(state.name)})"]) + ";"
        )
    if asked.data is not None:
        parts.append(_view(source, asked.data))
    return "; ".join([*parts, *_SQL[asked.statement](state, name, source)]) + ";"


def _merge(state: TableState, name: str, source: str, *clauses: str) -> Iterator[str]:
    keys = (*state.config.record_key_fields, *state.config.partition_fields)
    if not state.config.record_key_fields:
        yield from _insert(state, name, source)
        return
    on = " AND ".join(f"t.{_spark_name(k)} = s.{_spark_name(k)}" for k in keys)
    yield f"MERGE INTO {name} t USING {source} s ON {on} {' '.join(clauses)}"


def _insert(state: TableState, name: str, source: str) -> Iterator[str]:
    columns = ", ".join(map(_spark_name, state.schema.names))
    yield f"INSERT INTO {name} ({columns}) SELECT {columns} FROM {source}"


def _upsert(state: TableState, name: str, source: str) -> Iterator[str]:
    return _merge(state, name, source, "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")


_SQL: dict[str, Callable[[TableState, str, str], Iterator[str]]] = {
    "upsert": _upsert,
    "merge": _upsert,
    "update": lambda state, name, source: _merge(state, name, source, "WHEN MATCHED THEN UPDATE SET *"),
    "delete": lambda state, name, source: _merge(state, name, source, "WHEN MATCHED THEN DELETE"),
    "insert": lambda state, name, source: iter(
        ("SET hoodie.spark.sql.insert.into.operation = insert", *_insert(state, name, source))
    ),
    "bulk_insert": lambda state, name, source: iter(
        ("SET hoodie.spark.sql.insert.into.operation = bulk_insert", *_insert(state, name, source))
    ),
}


def _view(name: str, data: str) -> str:
    kind = FORMATS[Path(data).suffix.lower()]
    header = ", header 'true', inferSchema 'true'" if kind == "csv" else ""
    return f"CREATE TEMPORARY VIEW {name} USING {kind} OPTIONS (path {_text(str(Path(data).absolute()))}{header})"


def _spark_name(name: str) -> str:
    """A name, or the path of a nested column."""
    return ".".join(part if part.isidentifier() else "`" + part.replace("`", "``") + "`" for part in name.split("."))


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
