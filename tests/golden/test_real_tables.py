"""Tables written by Apache Hudi on Spark and by hudi-rs give exactly the rows that Apache Hudi reads from them.

Each zip in `tables/` holds a table, the statements that made it and the expected rows of every kind of read. The
folder named by LAKESQL_GOLDEN_TABLES is read instead when that variable is set. Merge rules that lakesql does not
have yet are strict expected failures by the rule's name.
"""

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import duckdb
import pytest

import lakesql

FOLDER = Path(os.environ.get("LAKESQL_GOLDEN_TABLES") or Path(__file__).parent / "tables")
ARCHIVES = sorted(FOLDER.glob("*.zip"))

# Tables whose merge rule is not supported yet: the text their refusal must name.
UNSUPPORTED_RULES = {
    "h015_payload_AWSDmsAvroPayload_mor": "AWSDmsAvroPayload",
    "h015_payload_FirstValueAvroPayload_mor": "FirstValueAvroPayload",
    "h015_payload_MySqlDebeziumAvroPayload_mor": "MySqlDebeziumAvroPayload",
    "h015_payload_PostgresDebeziumAvroPayload_mor": "PostgresDebeziumAvroPayload",
    "h015_payload_OverwriteNonDefaultsWithLatestAvroPayload_mor": "OverwriteNonDefaultsWithLatestAvroPayload",
    "h015_payload_PartialUpdateAvroPayload_mor": "PartialUpdateAvroPayload",
    "h120_payload_PostgresDebeziumAvroPayload_mor": "FILL_UNAVAILABLE",
    "x120_payload_PartialUpdateAvroPayload_mor": "IGNORE_DEFAULTS",
}


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def reads_of(manifest: dict[str, Any], folder: Path) -> list[tuple[str, str, dict[str, Any]]]:
    """(what, table function call, expectation) for every read that the manifest describes."""
    reads = []
    for table in manifest["tables"]:
        path = quoted(str(folder / table["path"]))
        if table.get("snapshot"):
            reads.append(("snapshot", f"hudi_scan({path})", table["snapshot"]))
        if table.get("read_optimized"):
            reads.append(("read optimized", f"hudi_read_optimized({path})", table["read_optimized"]))
        for entry in table.get("as_of", []):
            reads.append((f"as of {entry['instant']}", f"hudi_scan({path}, as_of := {quoted(entry['instant'])})", entry))
        for entry in table.get("incremental", []):
            begin = entry["begin_exclusive"]
            reads.append((f"incremental from {begin}", f"hudi_incremental({path}, {quoted(begin)})", entry))
    return reads


def differing_rows(want: str, got: "duckdb.DuckDBPyRelation") -> str:
    """'' when the multisets of rows are equal, else a short account of the difference."""
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    con.execute(f"CREATE TABLE want AS SELECT * FROM read_parquet({quoted(want)})")
    got_table = got.to_arrow_table()
    con.register("got", got_table)
    columns = [c[0] for c in con.execute("DESCRIBE want").fetchall() if c[0] != "_hoodie_file_name"]
    missing = [c for c in columns if c not in got_table.column_names]
    if missing:
        return f"columns {missing} are missing"
    text = ", ".join(f'"{c}"::VARCHAR AS "{c}"' for c in columns)
    lost = con.execute(f"SELECT {text} FROM want EXCEPT ALL SELECT {text} FROM got").fetchall()
    extra = con.execute(f"SELECT {text} FROM got EXCEPT ALL SELECT {text} FROM want").fetchall()
    return "" if not lost and not extra else f"missing {lost[:3]} unexpected {extra[:3]}"


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda p: p.stem)
def test_real_table_reads_as_apache_hudi_reads_it(archive: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    with zipfile.ZipFile(archive) as zipped:
        zipped.extractall(tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    rule = UNSUPPORTED_RULES.get(archive.stem)
    if rule:
        request.applymarker(pytest.mark.xfail(reason=f"merge rule {rule}", raises=duckdb.Error, strict=True))
    con = lakesql.connect(warehouse=str(tmp_path / "warehouse"))
    problems = []
    for what, call, expected in reads_of(manifest, tmp_path):
        if "file" in expected:
            try:
                difference = differing_rows(str(tmp_path / "expected" / expected["file"]), con.sql(f"SELECT * FROM {call}"))
            except duckdb.Error as error:
                if rule and rule in str(error):
                    raise
                difference = str(error)
            if difference:
                problems.append(f"{what}: {difference}")
        elif "Cleaner cleaned up" in expected.get("error", ""):
            with pytest.raises(duckdb.Error, match="cleaned away"):
                con.sql(f"SELECT * FROM {call}").fetchall()
    assert not problems, "\n".join(problems)


def test_there_are_tables_to_read() -> None:
    assert ARCHIVES, f"no golden tables in {FOLDER}"
