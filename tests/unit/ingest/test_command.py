"""`lakesql ingest`: what it prints, its exit codes, rounds, metrics; no password anywhere."""

import io
import json
import subprocess
import sys

import pytest

import lakesql
from lakesql import cli, ingest_command, upkeep
from lakesql.errors import (
    CommitUnknown,
    IngestConflict,
    IngestError,
    IngestionRunning,
    JobError,
    SQLError,
    TableError,
    TooManyBadRecords,
)
from lakesql.ingest import kafka
from lakesql.ingest.model import TopicPartition
from tests.unit.ingest.fakes import Broker, FakeClient, Faults

JOB = """\
job.name=PullFromKafka
source.class=gobblin.source.extractor.extract.kafka.KafkaSimpleJsonSource
kafka.brokers=h:1
topic.whitelist=orders
bootstrap.with.offset=earliest
task.retry.intervalinsec=0
task.maxretries=0
mr.job.root.dir=/x
foo.bar=1
sasl.password=geheim-xyz
"""


@pytest.fixture
def broker(monkeypatch):
    found = Broker().add("orders", 0, [b'{"id": %d}' % i for i in range(5)]).add("orders", 1, [b'{"id": 9}'] * 2)
    found.client = FakeClient(found)
    monkeypatch.setattr(kafka, "open_client", lambda *_, **__: found.client)
    return found


@pytest.fixture
def run(tmp_path, monkeypatch, capsys, broker):  # noqa: ARG001
    """Run the command with arguments in a folder of its own that has a job file; (exit code, output, errors)."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.pull").write_text(JOB)

    def call(*arguments, command="ingest"):
        monkeypatch.setattr(sys, "argv", ["lakesql", command, *arguments])
        monkeypatch.setattr(sys, "stdin", io.StringIO())
        code = 0
        try:
            cli.main()
        except SystemExit as end:
            code = end.code or 0
        out, err = capsys.readouterr()
        assert "geheim-xyz" not in out + err
        assert "Traceback" not in err
        return code, out, err

    return call


def test_a_job_goes_into_a_table_and_says_so_in_the_words_of_the_quick_start(run, tmp_path):
    code, out, err = run("job.pull", "--into", "orders")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert "Pulling partition orders:0 from offset 0 to 5, range=5 (bootstrap earliest)" in lines
    assert any(
        one.startswith("Actual high watermark for partition orders:0=5, expected=5, read=5, written=5") for one in lines
    )
    assert lines.count("Unknown settings: foo.bar.") == 1
    assert [one for one in lines if one.startswith("Not used: mr.job.root.dir (")]
    with lakesql.connect(warehouse=tmp_path / "warehouse") as con:
        assert con.execute("SELECT count(*), sum(id) FROM orders").fetchall() == [(7, 28)]


def test_without_into_files_are_written(run, tmp_path):
    assert run("job.pull", "--set", f"data.publisher.final.dir={tmp_path}/out")[0] == 0
    assert list((tmp_path / "out" / "orders").rglob("*.avro"))


def test_a_dry_run_shows_the_plan_alone(run, tmp_path):
    code, out, _ = run("job.pull", "--dry-run", "--into", "orders")
    assert code == 0
    assert "range=5" in out
    assert "Actual high" not in out
    assert not (tmp_path / "warehouse" / "orders").exists()


def test_json_lines_say_the_same(run):
    _, out, _ = run("job.pull", "--into", "orders", "--json")
    events = [json.loads(line) for line in out.splitlines()]
    assert [e["event"] for e in events].count("range") == 2
    assert {"note", "commit", "partition", "end"} <= {e["event"] for e in events}
    assert (events[-1]["exit_code"], events[-1]["read"], events[-1]["written"]) == (0, 7, 7)


def test_metrics_are_written_as_openmetrics_text(run, tmp_path):
    assert run("job.pull", "--into", "orders", "--metrics", "m-{job}.prom")[0] == 0
    text = (tmp_path / "m-PullFromKafka.prom").read_text()
    assert text.endswith("# EOF\n")
    assert 'job="PullFromKafka"' in text


def test_the_table_may_be_a_path_or_one_for_each_topic(run, tmp_path, broker):
    broker.add("clicks", 0, [b'{"id": 1}'])
    assert run("job.pull", "--into", f"{tmp_path}/far/t")[0] == 0
    assert (tmp_path / "far/t/.hoodie/hoodie.properties").exists()
    assert (
        run(
            "job.pull",
            "--into",
            "raw_{topic}",
            "--set",
            "topic.whitelist=.*",
            "--set",
            "job.name=all",
            "--warehouse",
            "w",
        )[0]
        == 0
    )
    assert {p.name for p in (tmp_path / "w").glob("raw_*")} == {"raw_orders", "raw_clicks"}


def test_several_jobs_all_run_and_the_first_failure_is_the_exit_code(run, tmp_path):
    (tmp_path / "bad.pull").write_text(JOB.replace("earliest", "first"))
    (tmp_path / "two.pull").write_text(JOB.replace("PullFromKafka", "Two"))
    code, out, err = run("bad.pull", "two.pull", "--into", "orders")
    assert code == 5
    assert "bootstrap.with.offset" in err
    assert "Two: Unknown settings: foo.bar." in out
    assert "Ingestion Two: 7 read" in out


# ---------------------------------------------------------------- exit codes


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["nix.pull"], "there is no such job file"),
        (["job.pull", "--strict"], "Unknown settings: foo.bar"),
        (["job.pull", "--set", "x"], "--set x: write KEY=VALUE"),
        (["job.pull", "--set", "bootstrap.with.offset=first"], "bootstrap.with.offset"),
        (["job.pull", "--set", "sasl.password=${env:LAKESQL_NOT_THERE}"], "LAKESQL_NOT_THERE is not set"),
        (["job.pull", "--every", "soon"], "is no length of time"),
        (["job.pull", "--every", "5m", "--once"], "exclude each other"),
        (["job.pull", "--every", "5m", "--dry-run"], "leave --every out"),
        (["job.pull", "job.pull", "--metrics", "x"], "put {job} into the name"),
    ],
)
def test_a_wrong_configuration_ends_with_5(run, arguments, text):
    code, _, err = run(*arguments)
    assert text in err
    assert code == 5


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (JobError("x"), 5),
        (SQLError("x"), 5),
        (IngestionRunning("x"), 4),
        (TooManyBadRecords("x"), 6),
        (IngestConflict("x"), 7),
        (IngestError("x"), 3),
        (CommitUnknown("x"), 3),
        (TableError("x"), 1),
    ],
)
def test_each_error_has_its_code(error, code):
    assert ingest_command.code_of(error) == code


def test_a_partition_that_fails_ends_with_3_and_blocks_its_table(run, broker, tmp_path):
    broker.client.failing = {TopicPartition("orders", 0): 2}
    code, out, err = run("job.pull", "--into", "orders")
    assert code == 3
    assert "leader lost" in out + err
    assert not (tmp_path / "warehouse/orders/.hoodie/hoodie.properties").exists()


def test_too_many_bad_records_end_with_6(run, broker):
    broker.add("orders", 1, [b"{"] * 30)
    code, _, err = run("job.pull", "--into", "orders", "--set", "lakesql.bad.records.max.count=3")
    assert code == 6
    assert "Error: " in err


def test_a_run_beside_another_ends_with_4(run, monkeypatch):
    def held(*_, **__):
        raise IngestionRunning("process 7 holds the lock of PullFromKafka")

    monkeypatch.setattr("lakesql.ingest.run.run", held)
    assert run("job.pull", "--into", "orders")[::2] == (4, "Error: process 7 holds the lock of PullFromKafka\n")


def test_brokers_that_do_not_answer_end_with_3_and_without_the_password(run, monkeypatch):
    def fails(settings, **_):
        raise IngestError(f"h:1 does not answer to {settings['sasl.password']}")

    monkeypatch.setattr(kafka, "open_client", fails)
    assert run("job.pull", "--into", "orders")[::2] == (3, "Error: h:1 does not answer to ***\n")


# ---------------------------------------------------------------- again and again


def test_every_runs_until_it_is_stopped(run, broker, monkeypatch):
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        if len(slept) == 3:
            raise KeyboardInterrupt
        broker.add("orders", 0, [b'{"id": 50}'])

    monkeypatch.setattr(ingest_command, "keep", lambda work, say, every: upkeep.keep(work, say, every, sleep))
    code, out, _ = run("job.pull", "--into", "orders", "--every", "5m")
    assert code == 0
    assert all(200 < s <= 300 for s in slept)
    assert [one.split(": ")[1].split(" ")[0] for one in out.splitlines() if one.startswith("Ingestion ")] == [
        "7",
        "1",
        "1",
    ]
    assert out.count("Unknown settings") == 1
    assert out.endswith("Stopped after 3 rounds.\n")


@pytest.mark.parametrize("as_json", [False, True])
def test_a_round_without_news_says_one_line_and_notes_are_said_once(run, broker, monkeypatch, as_json):
    rounds = [0]

    def sleep(_):
        rounds[0] += 1
        if rounds[0] == 4:
            raise KeyboardInterrupt
        if rounds[0] == 2:
            broker.add("orders", 0, [b'{"id": 50}'])

    monkeypatch.setattr(ingest_command, "keep", lambda work, say, every: upkeep.keep(work, say, every, sleep))
    more = ["--json"] if as_json else []
    _, out, _ = run("job.pull", "--into", "o", "--every", "5m", "--set", "bootstrap.with.offset=latest", *more)
    assert out.count("Skipped: 7 records") == 1
    if as_json:
        events = [json.loads(line)["event"] for line in out.splitlines()]
        assert events[events.index("end") + 1 :][:2] == ["end", "range"]
        return
    assert "7 skipped)" not in out
    lines = [line.rpartition(",")[0] for line in out.splitlines() if "nothing new" in line]
    assert lines == ["Ingestion PullFromKafka: nothing new in 2 partitions"] * 2
    assert [line for line in out.splitlines() if line.startswith("Pulling")] == [
        "Pulling partition orders:0 from offset 5 to 6, range=1 (stored)"
    ]


def test_a_dry_run_says_that_bytes_are_assumed(run):
    _, out, _ = run("job.pull", "--dry-run", "--into", "orders")
    assert "The expected bytes of 2 partitions (7,168) are an assumption, 1,024 bytes for each record" in out
    _, out, _ = run("job.pull", "--into", "orders")
    assert "assumption" not in out


def test_what_is_tried_again_is_said_at_once_and_in_the_end(run, broker):
    broker.client.faults = Faults({"open": {1: IngestError("the brokers are away"), 2: IngestError("still away")}})
    code, out, _ = run("job.pull", "--into", "orders", "--set", "task.maxretries=3")
    assert code == 0
    lines = out.splitlines()
    first = lines.index("Task 0 starts again in 0 s, try 2 of 4: the brokers are away")
    assert first < lines.index("Task 0 starts again in 0 s, try 3 of 4: still away") < len(lines) - 1
    assert "try 3 of 4: still away That was the last of 2 times." in out


def test_ctrl_c_ends_with_130(run, broker):
    def stop():
        raise KeyboardInterrupt

    broker.client.during = stop
    assert run("job.pull", "--into", "orders")[0] == 130


def test_help_names_the_exit_codes_and_options(run):
    code, out, _ = run("--help")
    assert code == 0
    assert "--into" in out


def test_the_package_runs_as_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "lakesql", "ingest", "nope.pull"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, "there is no such job file" in done.stderr) == (5, True)
