"""`doctor` finds each kind of damage, names the command that mends it, and finds nothing on a sound table."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import lakesql
from lakesql.cli import app
from lakesql.format import log
from tests.writing import put, table, upsert, values

INSTANT = "20200101000000000"


def made(tmp_path: Path, kind: str = "cow", version: int = 9) -> Any:
    state = table(tmp_path / "t", kind, version)
    upsert(state, ("a", "x", 1, 1), ("b", "y", 1, 1))
    upsert(state, ("a", "x", 2, 2))
    return state


def findings(tmp_path: Path) -> list[tuple[str, str, str, str]]:
    with lakesql.connect(warehouse=str(tmp_path), read_only=True) as con:
        return con.sql(f"CALL doctor(path => '{tmp_path}/t')").fetchall()


def aged(path: Path, data: bytes = b"") -> None:
    path.write_bytes(data)
    os.utime(path, (1, 1))


def base(tmp_path: Path, partition: str = "x") -> Path:
    """The newest base file of a partition."""
    return max((tmp_path / "t" / f"city={partition}").glob("*.parquet"), key=lambda p: p.name.rpartition("_")[2])


@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_nothing_is_wrong_with_a_sound_table(tmp_path: Path, kind: str, version: int) -> None:
    made(tmp_path, kind, version)
    assert findings(tmp_path) == []
    result = CliRunner().invoke(app, ["doctor", str(tmp_path / "t")])
    assert (result.exit_code, result.output) == (0, "Nothing is wrong.\n")


def stray_file(tmp_path: Path) -> None:
    (tmp_path / "t" / "city=x" / "f1_0-0-1_29990101000000000.parquet").write_bytes(b"x")


def second_attempt(tmp_path: Path) -> None:
    good = base(tmp_path)
    shutil.copy(good, good.with_name(good.name.replace("_0-", "_9-", 1)))


def gone(tmp_path: Path) -> None:
    base(tmp_path).unlink()


def torn_footer(tmp_path: Path) -> None:
    file = base(tmp_path)
    file.write_bytes(file.read_bytes()[:-4] + b"XXXX")


def no_metafile(tmp_path: Path) -> None:
    (tmp_path / "t" / "city=x" / ".hoodie_partition_metadata").unlink()


def dead_write(tmp_path: Path) -> None:
    aged(tmp_path / "t" / ".hoodie" / "timeline" / f"{INSTANT}.commit.requested")


def dead_clean(tmp_path: Path) -> None:
    aged(tmp_path / "t" / ".hoodie" / "timeline" / f"{INSTANT}.clean.requested")


def ahead(tmp_path: Path) -> None:
    folder = tmp_path / "t" / ".hoodie" / "timeline"
    newest = max(folder.glob("*.commit"), key=lambda p: p.name)
    shutil.copy(newest, folder / "29990101000000000_29990101000000001.commit")


def metadata_gone(tmp_path: Path) -> None:
    file = tmp_path / "t" / ".hoodie" / "hoodie.properties"
    file.write_text(file.read_text() + "hoodie.table.metadata.partitions=files\n")


def metadata_stale(tmp_path: Path) -> None:
    metadata_gone(tmp_path)
    timeline = tmp_path / "t" / ".hoodie" / "timeline"
    theirs = tmp_path / "t" / ".hoodie" / "metadata" / ".hoodie" / "timeline"
    theirs.mkdir(parents=True)
    first = min(p.name for p in timeline.glob("*.commit"))
    (theirs / first.replace(".commit", ".deltacommit")).write_bytes(b"x")


def no_checksum(tmp_path: Path) -> None:
    file = tmp_path / "t" / ".hoodie" / "hoodie.properties"
    file.write_text("".join(x for x in file.read_text().splitlines(True) if not x.startswith("hoodie.table.checksum")))


@pytest.mark.parametrize(
    ("harm", "severity", "check", "what", "command"),
    [
        (stray_file, "warning", "orphan files", "No instant knows file city=x/f1_", "run_clean"),
        (second_attempt, "error", "orphan files", "does not name", ""),
        (gone, "error", "missing files", "names this file, and it is not there", "rollback_to_instant"),
        (torn_footer, "error", "torn files", "cannot be read", "rollback_to_instant"),
        (no_metafile, "error", "partition metafiles", "does not see partition city=x", "repair_add_partition_meta"),
        (dead_write, "warning", "pending", f"commit {INSTANT} is requested since", "rollback_to_instant"),
        (dead_clean, "warning", "pending", f"clean {INSTANT} is requested since", "run_clean"),
        (ahead, "error", "clock", "ahead of this machine's clock", ""),
        (metadata_gone, "error", "metadata table", "it is not there", "delete_metadata_table"),
        (metadata_stale, "error", "metadata table", "It does not know commit 2", "delete_metadata_table"),
        (no_checksum, "error", "properties", "hoodie.table.checksum is missing", "repair_overwrite_hoodie_props"),
    ],
)
def test_harm_is_found_with_the_command_that_mends_it(
    tmp_path: Path, harm: Callable[[Path], None], severity: str, check: str, what: str, command: str
) -> None:
    made(tmp_path)
    harm(tmp_path)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    found = [f for f in findings(tmp_path) if f[1] == check]
    assert len(found) == 1, findings(tmp_path)
    assert found[0][0] == severity
    assert what in found[0][2]
    assert (f"CALL {command}(path => '{tmp_path}/t'" in found[0][3]) if command else found[0][3] == ""
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    result = CliRunner().invoke(app, ["doctor", str(tmp_path / "t")])
    assert result.exit_code == 1
    assert what in result.output


@pytest.mark.parametrize(
    ("harm", "call"),
    [
        (no_metafile, "repair_add_partition_meta('t', dry_run => false)"),
        (metadata_gone, "delete_metadata_table('t')"),
        (metadata_stale, "delete_metadata_table('t')"),
    ],
)
def test_the_command_mends_it(tmp_path: Path, harm: Callable[[Path], None], call: str) -> None:
    made(tmp_path)
    harm(tmp_path)
    with lakesql.connect(warehouse=str(tmp_path)) as con:
        (finding,) = findings(tmp_path)
        con.sql(finding[3])
    assert findings(tmp_path) == []
    assert call.split("(", maxsplit=1)[0] in finding[3]


def test_duplicate_keys_are_counted_by_partition_and_mended(tmp_path: Path) -> None:
    state = made(tmp_path, "mor")
    put(state, values(("a", "x", 3, 3), ("b", "x", 3, 3)), "insert")
    ((severity, check, what, command),) = findings(tmp_path)
    assert (severity, check) == ("warning", "duplicate keys")
    assert what == "Keys that are there more than once in partition city=x: 1."
    with lakesql.connect(warehouse=str(tmp_path)) as con:
        con.sql(command)
    assert findings(tmp_path) == []


def test_keys_of_both_spellings_are_an_error(tmp_path: Path) -> None:
    state = table(
        tmp_path / "t", event=False, properties={"hoodie.table.keygenerator.type": "COMPLEX"},
        partitioned_by=["city", "ts"],
    )  # fmt: skip
    put(state, values(("a", "x", 1, 1)), "insert")
    rows = f"SELECT *, 'b' AS _hoodie_record_key FROM ({values(('b', 'x', 1, 1))})"
    put(state, rows, "insert")
    ((severity, check, what, _),) = findings(tmp_path)
    assert (severity, check) == ("error", "key encodings")
    assert "Keys spelt id:value: 1; keys spelt value: 1;" in what


def test_many_logs_are_a_warning(tmp_path: Path) -> None:
    state = made(tmp_path, "mor")
    for number in range(11):
        upsert(state, ("a", "x", number, 10 + number))
    ((severity, check, what, command),) = findings(tmp_path)
    assert (severity, check) == ("warning", "compaction")
    assert what.startswith("1 file group with 12 log files")
    assert "run_compaction" in command


def test_a_torn_block_is_an_error_when_a_commit_counts_on_it_and_else_a_note(tmp_path: Path) -> None:
    made(tmp_path, "mor", 6)
    (file,) = (tmp_path / "t").rglob(".*.log.*")
    whole = file.read_bytes()
    file.write_bytes(whole + log.MAGIC + b"\0\0\0")
    ((severity, check, what, _),) = findings(tmp_path)
    assert (severity, check) == ("note", "torn files")
    assert f"torn block at byte {len(whole)}" in what
    assert CliRunner().invoke(app, ["doctor", str(tmp_path / "t")]).exit_code == 0
    file.write_bytes(b"\0" * 20 + whole[20:])
    assert ("error", "torn files") in {f[:2] for f in findings(tmp_path)}


def test_no_table_is_an_error_of_the_command(tmp_path: Path) -> None:
    with pytest.raises(lakesql.TableError, match="not a Hudi table"):
        findings(tmp_path)


@pytest.mark.parametrize("version", [9, 6])
@pytest.mark.parametrize("pattern", ["*.parquet", ".*.log*"])
def test_a_lost_file_is_one_finding(version, pattern, tmp_path):
    made(tmp_path, "mor", version)
    lost = min((tmp_path / "t" / "city=x").glob(pattern))
    lost.unlink()
    found = findings(tmp_path)
    assert [check for _, check, what, _ in found if lost.name in what] == ["missing files"]
    [rest] = [what for severity, _, what, _ in found if severity == "note"]
    assert rest == "Not checked until that is mended: torn files, partition metafiles, duplicate keys, compaction."
