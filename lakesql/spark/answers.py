"""What becomes of each statement on engine spark: the table of `docs/spark.md`. A statement that is missing here fails a test.

same        Spark runs the statement as it stands, in Spark's words
composed    Spark runs what means the same: a stage and Hudi's own MERGE
here        this process runs it, over the same folders: metadata, settings, what is no Hudi table
refused     Unsupported, with what to do instead
"""

import re

from lakesql.sql import nodes

SAME, COMPOSED, HERE, REFUSED = "same", "composed", "here", "refused"

ANSWERS: dict[type, tuple[str, str]] = {
    nodes.Merge: (COMPOSED, "every clause, `THEN ERROR` and `RETURNING` included; refused: `WITH SCHEMA EVOLUTION`"),
    nodes.Update: (COMPOSED, "rows may move to another partition; `RETURNING`"),
    nodes.Delete: (COMPOSED, "`RETURNING`"),
    nodes.Insert: (
        SAME,
        "`INTO` and `OVERWRITE`; as an upsert its counts are those of Spark's commit, which has no ignored "
        "rows; refused: `RETURNING`, new columns, `OVERWRITE` with a part of the partition columns",
    ),
    nodes.Truncate: (HERE, "one replacecommit, metadata only"),
    nodes.CreateTable: (
        HERE,
        "at the newest table version that the bundle makes; the rows of `AS SELECT` are Spark's to write",
    ),
    nodes.DropTable: (HERE, ""),
    nodes.ShowProperties: (HERE, ""),
    nodes.ShowTables: (HERE, ""),
    nodes.ShowColumns: (HERE, ""),
    nodes.SetSetting: (HERE, "`hoodie.*` are given to Spark with each write"),
    nodes.ResetSetting: (HERE, ""),
    nodes.CreateSecret: (HERE, "for what this process reads; Spark has its own credentials"),
    nodes.DropSecret: (HERE, ""),
    nodes.Explain: (HERE, "`EXPLAIN` and `EXPLAIN (FATES)` of a change read the rows with DuckDB and write nothing"),
    nodes.Call: (HERE, "all procedures, `RUN COMPACTION` too: they work on this machine"),
    nodes.Ingest: (HERE, "written by this process"),
    nodes.CreateIngestion: (HERE, ""),
    nodes.RunIngestion: (HERE, "written by this process"),
    nodes.ReplayIngestion: (HERE, "written by this process"),
    nodes.ShowIngestion: (HERE, ""),
    nodes.AlterIngestion: (HERE, ""),
    nodes.SetOffsets: (HERE, ""),
    nodes.DropIngestion: (HERE, ""),
    nodes.ExplainIngest: (HERE, ""),
    nodes.Passed: (SAME, "queries that read Hudi tables are Spark's; every other statement is DuckDB's"),
}
"""By the kind of statement that the parser makes."""

OTHERS: dict[str, tuple[str, str]] = {
    "EXPLAIN of a query on a Hudi table": (SAME, "Spark's plan"),
    "CREATE TABLE AS, INSERT, COPY (query) TO without USING hudi": (COMPOSED, "Spark runs the query, DuckDB keeps the rows"),
    "hudi_scan, hudi_snapshot, read_hudi, hudi_read_optimized, hudi_incremental, hudi_table_changes, t_changes": (
        SAME, "Spark's reader",
    ),
    "hudi_timeline, hudi_files, hudi_freshness, hudi_advice, hudi_diff and the other table functions": (
        HERE, "their rows can be joined with Spark's",
    ),
    "BEGIN, PREPARE, SUMMARIZE, PIVOT of a Hudi table": (REFUSED, "Spark keeps no snapshot; the others have no counterpart"),
}  # fmt: skip
"""What is no kind of statement of its own."""


_NAMES = {
    nodes.SetSetting: "SET", nodes.ResetSetting: "RESET", nodes.Explain: "EXPLAIN of a change", nodes.Passed: "SELECT, all others",
    nodes.ShowProperties: "SHOW TBLPROPERTIES", nodes.SetOffsets: "ALTER INGESTION ... SET OFFSETS",
    nodes.AlterIngestion: "ALTER INGESTION ... SET OPTIONS", nodes.CreateTable: "CREATE TABLE ... USING hudi",
}  # fmt: skip


def rows() -> list[tuple[str, str, str]]:
    """The rows of the table: a statement, what becomes of it, what to know."""
    named = [(words(kind), *found) for kind, found in ANSWERS.items()]
    return [*named, *((name, *found) for name, found in OTHERS.items())]


def words(kind: type) -> str:
    """How a kind of statement begins."""
    return _NAMES.get(kind) or re.sub("(?<!^)(?=[A-Z])", " ", kind.__name__).upper()
