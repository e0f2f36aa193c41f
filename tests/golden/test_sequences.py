"""Every short sequence of operations merges as Apache Hudi merges it: read from its logs, and written by lakesql.

The rows of the logs are those that Hudi reads. What a write means is what Hudi's copy-on-write tables hold, on both
table types; one difference on merge-on-read is meant and computed here (`keep_dead`).
"""

import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakesql
from lakesql.table.merge import ALWAYS, rule_of
from tests.lakes import Lake
from tests.sequences import FOLDER, STEPS, State, create, golden, keep_dead, play, state
from tests.sequences import PAYLOADS as SHAPES

TABLES = sorted(path.stem for path in FOLDER.glob("*.zip"))
# Apache Hudi 1.2.0 has no FirstValueAvroPayload, and its MySQL tables of version 9 cannot run a DELETE statement.
WRITABLE = [f"v{v}_{p}" for v in (9, 8, 6) for p in SHAPES if (v, p) != (9, "FirstValueAvroPayload")]


@pytest.mark.on_store(every=15)
@pytest.mark.parametrize("name", TABLES)
def test_logs_of_every_sequence_read_as_apache_hudi_reads_them(name: str, tmp_path: Path, lake: Lake) -> None:
    with zipfile.ZipFile(FOLDER / f"{name}.zip") as archive:
        archive.extractall(tmp_path)
    table = lakesql.open_table(lake.bring(tmp_path / name))
    want = golden("logs", name)
    instants = dict(zip(want["instant"].to_pylist(), want["step"].to_pylist(), strict=True))
    for instant, step in instants.items():
        there = want.filter(pc.equal(want["instant"], instant))
        got = table.read(as_of=instant).read_all()
        assert commit_times(got, "_hoodie_commit_time") == commit_times(there, "commit_time"), step
        assert differing(state(got), state(there)) == {}, step
    assert instants


def commit_times(rows: pa.Table, column: str) -> list[tuple[str, str]]:
    return sorted(zip(rows["id"].to_pylist(), rows[column].to_pylist(), strict=True))


def differing(
    got: dict[str, list[State]], want: dict[str, list[State]]
) -> dict[str, tuple[list[State] | None, list[State] | None]]:
    keys = sorted(got.keys() | want.keys())
    return {key: (got.get(key), want.get(key)) for key in keys if got.get(key) != want.get(key)}


@pytest.mark.on_store(every=15)
@pytest.mark.parametrize("type_", ["cow", "mor"])
@pytest.mark.parametrize("name", WRITABLE)
def test_every_sequence_written_gives_the_rows_of_apache_hudi(name: str, type_: str, lake: Lake) -> None:
    version, payload = int(name[1]), name[3:]
    table = create(lake.path(), payload, type_, version)
    rule = rule_of(table.state.config, name, payload)
    remembers = type_ == "mor" and rule.write.delete != ALWAYS and not rule.sequence
    rows = golden("writes", name)
    for step in STEPS:
        play(table, SHAPES[payload], step)
        there = rows.filter(pc.equal(rows["step"], step))
        if not there.num_rows:
            break
        want = state(there)
        if remembers:
            keep_dead(want, SHAPES[payload], step)
        assert differing(state(table.read().read_all()), want) == {}, step
