"""In the stock DuckDB shell the macros of `sql/hudi.sql` read the golden tables as lakesql does, or say why not.

Copy-on-Write tables as snapshots, now and most as of an instant in the middle too; Merge-on-Read tables read-optimized, and as
snapshots where there is nothing to merge. Tables with services on their timeline moreover as of several instants, as
changes since one, and as timeline, files and partitions.
"""

import zipfile
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import lakesql
from lakesql.errors import LakeError
from tests.duckdb_shell import ask, difference
from tests.golden.test_real_tables import ARCHIVES, quoted

TO_MERGE = "there are log files to merge"
EVOLVED = "columns were changed by ALTER TABLE"
NO_PARTITION_COLUMNS = "the files leave out the partition columns"
NO_DATA = "no Hudi table here or one without data files"
ALIKE = ("_cdc_", "_payload_", "_late_", "_delthen_")
"""Tables that differ from others in what is merged, not in their files: they are read once."""
SERVICED = ("clustered", "overwrite", "services", "pending", "rollback", "archived")


def tables(kind: str, folder: Path) -> list[Path]:
    """The golden tables of one kind, unpacked."""
    found = []
    for archive in ARCHIVES:
        place = folder / archive.stem
        with zipfile.ZipFile(archive) as zipped:
            names = [n for n in zipped.namelist() if "/.hoodie/metadata/" not in n and not n.startswith("expected/")]
            zipped.extractall(place, names)
        for properties in place.rglob(".hoodie/hoodie.properties"):
            type_ = "COPY_ON_WRITE" if kind == "cow" else "MERGE_ON_READ"
            if f"hoodie.table.type={type_}" in properties.read_text():
                found.append(properties.parents[1])
    return found


def calls(con: lakesql.Connection, kind: str, table: Path) -> list[str]:
    """The reads of one table that both sides do."""
    path = quoted(str(table))
    read = "hudi_scan" if kind == "cow" else "hudi_read_optimized"
    found = [f"FROM {read}({path})"]
    if any(word in table.name for word in ALIKE):
        return found
    if kind == "mor":
        found.append(f"FROM hudi_scan({path})")
    writes = con.sql(
        f"SELECT instant, coalesce(completed, instant) FROM hudi_timeline({path}) WHERE rows_written IS NOT NULL"
    ).fetchall()
    middle = writes[len(writes) // 2 :]
    if not any(word in table.name for word in SERVICED):
        return found + [f"FROM {read}({path}, as_of := '{instant}')" for instant, _ in middle[:1] if kind == "cow"]
    found += [f"FROM {read}({path}, as_of := '{instant}')" for instant, _ in writes[1::2]]
    found += [f"FROM hudi_incremental({path}, '{time}')" for _, time in middle[:1]]
    return found + [f"FROM {name}({path})" for name in ("hudi_files", "hudi_timeline", "hudi_partitions")]


def allowed(call: str, text: str, has_logs: bool) -> bool:
    """Whether this error is the right one for a read that lakesql answers."""
    name = call.split("/")[-1]
    return (
        (TO_MERGE in text and has_logs and "hudi_read_optimized" not in call)
        or (EVOLVED in text and "_evolve_" in name)
        or (NO_PARTITION_COLUMNS in text and "_droppart_" in name)
        or (NO_DATA in text and "_empty" in name)
    )


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_golden_tables_read_as_lakesql_reads_them(kind: str, tmp_path: Path) -> None:
    con = lakesql.connect()
    con.execute("SET TimeZone = 'UTC'")
    asked = [
        (call, any(table.rglob(".*.log.*"))) for table in tables(kind, tmp_path) for call in calls(con, kind, table)
    ]
    answers = ask([call for call, _ in asked], tmp_path)
    wrong, read = [], 0
    for (call, has_logs), answer in zip(asked, answers, strict=True):
        try:
            want: pa.Table | str = con.sql(call).to_arrow_table()
        except (LakeError, duckdb.Error) as error:
            want = str(error)
        if isinstance(answer, str):
            if isinstance(want, pa.Table) and not allowed(call, answer, has_logs):
                wrong.append(f"{call}: {answer}")
        elif isinstance(want, str):
            wrong.append(f"{call}: rows instead of {want}")
        elif problem := difference(want, answer):
            wrong.append(f"{call}: {problem}")
        else:
            read += 1
    assert not wrong, "\n".join(wrong)
    assert read > len(asked) // 2
