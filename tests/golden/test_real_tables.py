"""Tables written by Apache Hudi on Spark and by hudi-rs give exactly the rows that Apache Hudi reads from them.

Each zip in `tables/` holds a table, the statements that made it and the expected rows of every kind of read. The
folder named by LAKESQL_GOLDEN_TABLES is read instead when that variable is set.
"""

import json
import os
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest

import lakesql
from tests.lakes import Lake

FOLDER = Path(os.environ.get("LAKESQL_GOLDEN_TABLES") or Path(__file__).parent / "tables")
ARCHIVES = sorted(FOLDER.glob("*.zip"))

# Version 6 MoR tables, unzipped: Hudi 1.2.0 takes the completion time of a version 6 commit from the modification time of
# its file, which unzipping (or copying) sets to now, and then applies logs to base files that already contain them. The
# rows that Hudi 0.15.0 read right after each step are the right ones; `h102_evolve_cow` loses a renamed column on Spark at
# the very instant of the ALTER; Hudi 1.2.0 no longer has FirstValueAvroPayload.
EXPECT_STEPS = {
    "h015_clustered_mor",
    "h015_evolve_mor",
    "h015_late_commit_mor",
    "h015_late_event_mor",
    "h015_logcompact_mor",
    "h015_payload_FirstValueAvroPayload_mor",
    "h015_pending_mor",
    "h015_positions_mor",
    "h015_types_mor",
    "h102_evolve_cow",
    "x015_delthen_DefaultHoodieRecordPayload_mor",
    "x015_delthen_EventTimeAvroPayload_mor",
    "x015_delthen_OverwriteWithLatestAvroPayload_mor",
}
# The same tables where moreover Hudi 0.15.0 merged by the payload class and not by the merge mode (hudi-format 1.5):
# neither of the two recorded results is the one of the merge mode, so only the compacted end is compared.
ONLY_THE_END = {name for name in EXPECT_STEPS if name.startswith("x015_delthen_")}
# Incremental reads where Spark gives rows that its own snapshot does not have: late rows that lost the merge and rows
# that lack the columns of older versions, because it leaves out the base file (5.7 n), and URL-encoded partition values.
# The snapshot's rows of the same commits are right.
EXPECT_SNAPSHOT_ROWS = {
    "h015_evolve_mor",
    "h015_partitions_mor",
    "h015_payload_DefaultHoodieRecordPayload_mor",
    "h015_payload_EventTimeAvroPayload_mor",
    "h015_payload_MySqlDebeziumAvroPayload_mor",
    "h015_payload_OverwriteNonDefaultsWithLatestAvroPayload_mor",
    "h015_payload_PartialUpdateAvroPayload_mor",
    "h015_payload_PostgresDebeziumAvroPayload_mor",
    "h102_partitions_cow",
    "h102_partitions_mor",
    "h120_partitions_cow",
    "h120_payload_PostgresDebeziumAvroPayload_mor",
    "r060_mor_v8_flat",
    "r060_mor_v8_part_compact",
    "r060_mor_v9_part_md",
    "x015_delthen_DefaultHoodieRecordPayload_mor",
    "x015_delthen_EventTimeAvroPayload_mor",
    "x015_delthen_OverwriteWithLatestAvroPayload_mor",
    "x120_payload_DefaultHoodieRecordPayload_mor",
    "x120_payload_EventTimeAvroPayload_mor",
    "x120_payload_OverwriteNonDefaultsWithLatestAvroPayload_mor",
    "x120_payload_PartialUpdateAvroPayload_mor",
}


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@dataclass(frozen=True)
class Read:
    """One read of a table: a table function call, and the query for the rows it must give, or the error."""

    what: str
    call: str
    want: str | None
    error: str = ""


def reads_of(manifest: dict[str, Any], folder: Path, lake: Lake) -> list[Read]:
    """Every read that the manifest describes; the tables are brought to where they are read."""
    name = manifest["name"]

    def rows(entry: dict[str, Any] | None) -> str | None:
        return (
            f"SELECT * FROM read_parquet({quoted(str(folder / 'expected' / entry['file']))})"
            if entry and "file" in entry
            else None
        )

    steps: dict[str, dict[str, Any]] = {}
    for step in manifest.get("steps", []) if name in EXPECT_STEPS else []:
        if "file" in step:
            for instant in step.get("completed_instants", []):
                steps.setdefault(re.split(r"[_.]", instant)[0], step)
    reads = []
    for table in manifest["tables"]:
        path = quoted(lake.bring(folder / table["path"]))
        snapshot = rows(manifest["steps"][-1] if steps else table.get("snapshot"))
        reads.append(Read("snapshot", f"hudi_scan({path})", snapshot))
        reads.append(Read("read optimized", f"hudi_read_optimized({path})", rows(table.get("read_optimized"))))
        for entry in table.get("as_of", []):
            want = (
                rows(steps.get(entry["instant"], entry)) if "error" not in entry and name not in ONLY_THE_END else None
            )
            call = f"hudi_scan({path}, as_of := {quoted(entry['instant'])})"
            reads.append(Read(f"as of {entry['instant']}", call, want, entry.get("error", "")))
        for entry in table.get("incremental", []):
            want = rows(entry) if name not in ONLY_THE_END else None
            if want and name in EXPECT_SNAPSHOT_ROWS:
                want = f"SELECT * FROM ({snapshot}) WHERE _hoodie_commit_time IN (SELECT _hoodie_commit_time FROM ({want}))"
            begin = entry["begin_exclusive"]
            reads.append(
                Read(
                    f"incremental from {begin}",
                    f"hudi_incremental({path}, {quoted(begin)})",
                    want,
                    entry.get("error", ""),
                )
            )
    return reads


def differing_rows(want: str, got: duckdb.DuckDBPyRelation) -> str:
    """'' when the multisets of rows are equal, else a short account of the difference."""
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    con.execute(f"CREATE TABLE want AS {want}")
    con.register("got", got.to_arrow_table())
    columns = [c[0] for c in con.execute("DESCRIBE want").fetchall() if c[0] != "_hoodie_file_name"]
    found = [c[0] for c in con.execute("DESCRIBE got").fetchall()]
    missing = [c for c in columns if c not in found]
    if missing:
        return f"columns {missing} are missing"
    text = ", ".join(f'"{c}"::VARCHAR AS "{c}"' for c in columns)
    lost = con.execute(f"SELECT {text} FROM want EXCEPT ALL SELECT {text} FROM got").fetchall()
    extra = con.execute(f"SELECT {text} FROM got EXCEPT ALL SELECT {text} FROM want").fetchall()
    return "" if not lost and not extra else f"missing {lost[:3]} unexpected {extra[:3]}"


@pytest.mark.on_store(every=20)
@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda p: p.stem)
def test_real_table_reads_as_apache_hudi_reads_it(archive: Path, tmp_path: Path, lake: Lake) -> None:
    with zipfile.ZipFile(archive) as zipped:
        zipped.extractall(tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    con = duckdb.connect()
    lakesql.register(con)
    con.execute("SET TimeZone = 'UTC'")
    problems, compared = [], 0
    for read in reads_of(manifest, tmp_path, lake):
        if "Cleaner cleaned up" in read.error:
            with pytest.raises(duckdb.Error, match="cleaned away"):
                con.sql(f"SELECT * FROM {read.call}").fetchall()
        if read.want is None:
            continue
        try:
            difference = differing_rows(read.want, con.sql(f"SELECT * FROM {read.call}"))
        except duckdb.Error as error:
            difference = str(error)
        compared += 1
        if difference:
            problems.append(f"{read.what}: {difference}")
    assert not problems, "\n".join(problems)
    assert compared


def test_there_are_tables_to_read() -> None:
    assert ARCHIVES, f"no golden tables in {FOLDER}"
