"""Folders of files as a target: what is committed is there once, whatever dies in between."""

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest

from lakesql.errors import FormatError, IngestConflict, IngestError, IngestionRunning, LakeError
from lakesql.ingest import manifest
from lakesql.ingest.file_sink import FileSink
from lakesql.ingest.model import (
    BAD,
    KAFKA,
    Decoded,
    Format,
    Job,
    PartitionState,
    Range,
    State,
    Target,
    TopicPartition,
    WorkUnit,
)
from lakesql.storage import LocalStorage
from tests.faulty import HOW, FaultError, FaultyStorage

HOUR = 3_600_000
AT = TopicPartition("orders", 0)


def job(path: Path, **options: str) -> Job:
    hourly = {"writer.partition.level": "hourly", "writer.partition.pattern": "yyyy/MM/dd/HH", **options}
    return Job("pull", {}, Target("files", str(path), options=hourly), Format("json"))


def unit(low: int, high: int, group: int = 0, topic: str = "orders") -> WorkUnit:
    return WorkUnit(topic, (Range(topic, 0, low, high, "stored"),), group)


def decoded(low: int, high: int, topic: str = "orders", bad: int = 0) -> Decoded:
    """Records low to high, four an hour; the first `bad` of them cannot be decoded."""
    offsets = list(range(low, high))
    kafka = pa.table(
        [
            pa.array([topic] * len(offsets)).dictionary_encode(),
            pa.array([0] * len(offsets), pa.int32()),
            pa.array(offsets, pa.int64()),
            pa.array([o * HOUR // 4 for o in offsets], pa.timestamp("ms", "UTC")),
            pa.array(["create"] * len(offsets)).cast(pa.dictionary(pa.int8(), pa.string())),
            pa.nulls(len(offsets), pa.binary()),
            pa.nulls(len(offsets), KAFKA.field("_headers").type),
        ],
        schema=KAFKA,
    )
    rows = pa.table({"number": pa.array(offsets, pa.int64()), **{n: kafka.column(n) for n in KAFKA.names}})
    lost = kafka.slice(0, bad).append_column("_value", pa.array([b"?"] * bad, pa.binary()))
    for name in ("schema_id", "stage", "error"):
        lost = lost.append_column(name, pa.array(["decode"] * bad, pa.string()))
    return Decoded(rows.slice(bad), rows.slice(0, 0), lost.cast(BAD))


def state(upto: int) -> State:
    return State("pull", "run", 1, {AT: PartitionState(next=upto, low=0, records=upto)})


def run(sink: FileSink, upto: int, *, bad: int = 0) -> None:
    """What a run does: from the stored offset to `upto`, in batches of three."""
    before = sink.stored()
    low = before.offsets().get(AT, 0)
    load = sink.begin(before, f"run-{low}-{upto}")
    try:
        for first in range(low, upto, 3):
            load.take(unit(low, upto), decoded(first, min(first + 3, upto), bad=bad if first == low else 0))
        load.commit(state(upto))
    finally:
        load.discard()


def numbers(path: Path) -> list[int]:
    """What a reader sees who walks the folder, leaving out names that begin with _ or a dot."""
    found: list[int] = []
    for file in sorted(path.rglob("*")):
        hidden = any(part[0] in "_." for part in file.relative_to(path).parts)
        if file.is_file() and not hidden:
            with file.open("rb") as data:
                found += [row["number"] for row in fastavro.reader(data)]  # type: ignore[index,call-overload]
    return sorted(found)


def test_records_lie_in_the_folders_of_their_hours(tmp_path: Path) -> None:
    sink = FileSink(job(tmp_path), str(tmp_path))
    run(sink, 6)
    found = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*.avro"))
    assert found == [
        "orders/hourly/1970/01/01/00/part.task_pull_0000000001_0.avro",
        "orders/hourly/1970/01/01/01/part.task_pull_0000000001_0.avro",
    ]
    assert numbers(tmp_path) == list(range(6))
    assert sink.stored().offsets() == {AT: 6}


def test_nothing_is_visible_before_the_commit(tmp_path: Path) -> None:
    sink = FileSink(job(tmp_path), str(tmp_path))
    load = sink.begin(sink.stored(), "r")
    load.take(unit(0, 6), decoded(0, 6))
    assert numbers(tmp_path) == []
    load.discard()
    assert numbers(tmp_path) == []
    assert not list(tmp_path.rglob("staging/*"))


def test_the_next_run_goes_on_and_keeps_what_is_there(tmp_path: Path) -> None:
    for upto in (5, 5, 9):
        run(FileSink(job(tmp_path), str(tmp_path)), upto)
    assert numbers(tmp_path) == list(range(9))
    last = manifest.newest(LocalStorage(tmp_path), "pull")
    assert last.number == 3
    assert (
        json.loads((tmp_path / "_lakesql/pull/0000000003.json").read_text())["before"]
        == manifest.read(LocalStorage(tmp_path), "pull", 2).checksum
    )


def test_a_unit_that_is_forgotten_leaves_nothing(tmp_path: Path) -> None:
    sink = FileSink(job(tmp_path), str(tmp_path))
    load = sink.begin(sink.stored(), "r")
    load.take(unit(0, 6), decoded(0, 6))
    load.take(unit(0, 3, group=1), decoded(100, 103))
    load.forget(unit(0, 6))
    load.take(unit(0, 6), decoded(0, 4))
    load.commit(state(4))
    assert numbers(tmp_path) == [0, 1, 2, 3, 100, 101, 102]


def test_records_with_another_schema_go_to_a_file_of_their_own(tmp_path: Path) -> None:
    sink = FileSink(job(tmp_path), str(tmp_path))
    load = sink.begin(sink.stored(), "r")
    first, second = decoded(0, 2), decoded(2, 4)
    wider = second.rows.add_column(1, "more", pa.array(["a", "b"]))
    load.take(unit(0, 4), first)
    load.take(unit(0, 4), Decoded(wider, second.deletes, second.bad))
    load.commit(state(4))
    assert len(list(tmp_path.rglob("*.avro"))) == 2
    assert numbers(tmp_path) == [0, 1, 2, 3]


def test_file_names_tell_the_number_of_records_when_asked(tmp_path: Path) -> None:
    named = job(tmp_path, **{"writer.include.record.count.in.file.names": "true"})
    run(FileSink(named, str(tmp_path)), 3)
    assert [p.name for p in tmp_path.rglob("*.avro")] == ["part.task_pull_0000000001_0.3.avro"]


def test_a_topic_may_have_settings_of_its_own(tmp_path: Path) -> None:
    asked = replace(job(tmp_path), topic_settings=(("ord.*", {"extract.table.name": "t_orders"}),))
    run(FileSink(asked, str(tmp_path)), 2)
    assert [p.name for p in tmp_path.iterdir() if p.name[0] != "_"] == ["t_orders"]


def test_two_runs_at_once_are_refused_and_the_first_ends_well(tmp_path: Path) -> None:
    first = FileSink(job(tmp_path), str(tmp_path))
    load = first.begin(first.stored(), "r1")
    load.take(unit(0, 3), decoded(0, 3))
    with pytest.raises(IngestionRunning, match="running already"):
        FileSink(job(tmp_path), str(tmp_path)).begin(State("pull"), "r2")
    load.commit(state(3))
    assert numbers(tmp_path) == [0, 1, 2]


def test_a_run_planned_on_old_offsets_is_refused_before_it_reads(tmp_path: Path) -> None:
    sink = FileSink(job(tmp_path), str(tmp_path))
    before = sink.stored()
    run(sink, 3)
    with pytest.raises(IngestConflict, match="have moved"):
        sink.begin(before, "late")


def test_of_two_commits_of_one_number_only_one_counts(tmp_path: Path) -> None:
    """The lock holds on one machine; another machine may have committed meanwhile."""
    sink = FileSink(job(tmp_path), str(tmp_path))
    load = sink.begin(sink.stored(), "r1")
    load.take(unit(0, 3), decoded(0, 3))
    manifest.commit(LocalStorage(tmp_path), manifest.newest(LocalStorage(tmp_path), "pull"), state(1), ())
    with pytest.raises(IngestConflict, match="number 1 first"):
        load.commit(state(3))
    load.discard()
    assert numbers(tmp_path) == []


def test_a_damaged_manifest_is_an_error_and_no_empty_state(tmp_path: Path) -> None:
    sink = FileSink(job(tmp_path), str(tmp_path))
    run(sink, 3)
    (tmp_path / "_lakesql/pull/0000000001.json").write_text('{"version": 1')
    with pytest.raises(FormatError, match="damaged"):
        sink.stored()


@pytest.mark.parametrize("text", ["[" * 100_000, '{"version": 1, "files": [{"path": 5}]}'])
def test_a_manifest_that_is_no_manifest_is_an_error(text: str, tmp_path: Path) -> None:
    sink = FileSink(job(tmp_path), str(tmp_path))
    run(sink, 3)
    (tmp_path / "_lakesql/pull/0000000001.json").write_text(text)
    with pytest.raises(FormatError, match="damaged"):
        sink.stored()


def test_strange_files_beside_the_bad_records_stay(tmp_path: Path) -> None:
    sink = FileSink(job(tmp_path), str(tmp_path))
    run(sink, 3, bad=1)
    note = tmp_path / "_lakesql/pull/quarantine/readme.txt"
    note.write_text("mine")
    run(sink, 5)
    assert note.exists()


def test_a_file_that_a_commit_named_and_that_is_gone_is_an_error(tmp_path: Path) -> None:
    sink = FileSink(job(tmp_path), str(tmp_path))
    run(sink, 3)
    next(iter(tmp_path.rglob("*.avro"))).unlink()
    with pytest.raises(IngestError, match="is gone"):
        sink.begin(sink.stored(), "r")


def test_bad_records_are_in_the_file_that_the_commit_names(tmp_path: Path) -> None:
    sink = FileSink(job(tmp_path), str(tmp_path))
    run(sink, 6, bad=2)
    (named,) = sink.stored().quarantine
    assert (tmp_path / named).exists()
    assert numbers(tmp_path) == [2, 3, 4, 5]


@pytest.mark.parametrize("how", HOW)
def test_death_at_any_call_loses_nothing_and_doubles_nothing(how: str, tmp_path: Path) -> None:
    for fail_at in range(1, 200):
        target = tmp_path / str(fail_at)
        run(FileSink(job(target), str(target)), 4)
        faulty = FaultyStorage(LocalStorage(target), fail_at, how)
        try:
            run(FileSink(job(target), str(target), storage=faulty), 11, bad=1)
        except FaultError:
            seen = numbers(target)
            assert len(seen) == len(set(seen))
            assert {0, 1, 2, 3} <= set(seen)
        run(FileSink(job(target), str(target)), 11, bad=1)
        run(FileSink(job(target), str(target)), 14)
        expected = [n for n in range(14) if n != 4]
        assert numbers(target) == expected, fail_at
        assert not list(target.rglob("staging/*"))
        if not faulty.failed:
            return
    raise AssertionError("the run has more calls than are tried")


@pytest.mark.parametrize("how", HOW)
def test_an_error_at_any_call_that_the_run_survives_loses_nothing(how: str, tmp_path: Path) -> None:
    """The run goes on to clean up after itself, other than a dead one."""
    for fail_at in range(1, 200):
        target = tmp_path / str(fail_at)
        faulty = FaultyStorage(LocalStorage(target), fail_at, how, dead=False)
        with suppress(FaultError, LakeError):
            run(FileSink(job(target), str(target), storage=faulty), 5)
        run(FileSink(job(target), str(target)), 9)
        assert numbers(target) == list(range(9)), fail_at
        assert not list(target.rglob("staging/*"))
        if not faulty.failed:
            return
    raise AssertionError("the run has more calls than are tried")


def test_files_of_a_commit_that_cannot_get_their_names_wait_for_a_run_that_can_give_them(tmp_path: Path) -> None:
    sink = FileSink(job(tmp_path), str(tmp_path))
    (tmp_path / "orders").write_text("a file where the folder of the topic should be")
    with pytest.raises(IngestError, match="commit 1 of the ingestion pull is complete"):
        run(sink, 5)
    assert sink.stored().offsets() == {AT: 5}
    with pytest.raises(LakeError, match="Remove the file"):
        sink.settle()
    (tmp_path / "orders").unlink()
    sink.settle()
    assert numbers(tmp_path) == list(range(5))


def test_a_run_that_lives_gives_the_names_itself(tmp_path: Path) -> None:
    sink = FileSink(job(tmp_path), str(tmp_path))
    load = sink.begin(sink.stored(), "r")
    load.take(unit(0, 3), decoded(0, 3))
    FileSink(job(tmp_path), str(tmp_path)).settle()
    load.commit(state(3))
    assert numbers(tmp_path) == [0, 1, 2]


def test_ingestions_of_a_folder_and_their_commits_can_be_listed(tmp_path: Path) -> None:
    assert manifest.ingestions(LocalStorage(tmp_path)) == []
    sink = FileSink(job(tmp_path), str(tmp_path))
    run(sink, 3)
    run(sink, 5, bad=1)
    assert manifest.ingestions(LocalStorage(tmp_path)) == ["pull"]
    commits = manifest.history(LocalStorage(tmp_path), "pull")
    assert [(c.number, sum(f.rows for f in c.files), len(c.state.quarantine)) for c in commits] == [
        (1, 3, 0),
        (2, 1, 1),
    ]
