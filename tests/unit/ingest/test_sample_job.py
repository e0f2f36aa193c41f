"""The well-known sample job file, as its users have it, from a topic with LinkedIn's frames to hourly Avro folders."""

import io
from pathlib import Path

import fastavro
import pytest
from typer.testing import CliRunner

from lakesql.cli import app
from tests.kafka.mock import MockCluster
from tests.kafka.produce import produce
from tests.kafka.registry import TestRegistry

JOB = Path(__file__).parent / "jobs" / "PullFromKafka.pull"
HEADER = {"type": "record", "name": "Header", "fields": [{"name": "time", "type": "long"}]}
EVENT = {
    "type": "record", "name": "CaptchaEvent", "namespace": "com.example",
    "fields": [{"name": "header", "type": HEADER}, {"name": "answer", "type": ["null", "string"], "default": None}],
}  # fmt: skip
QUARTER_MS = 900_000
START = 1428532345678  # 2015-04-08 22:32:25 UTC, 15:32 in Los Angeles


def framed(md5: str, record: dict[str, object]) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(dict(EVENT)), record)
    return b"\0" + bytes.fromhex(md5) + body.getvalue()


def read(folder: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("*.avro")):
        with path.open("rb") as data:
            rows = [row["answer"] for row in fastavro.reader(data)]  # type: ignore[index,call-overload]
        found.setdefault(str(path.parent.relative_to(folder)), []).extend(rows)
    return found


@pytest.fixture
def pull(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mock_kafka: MockCluster) -> Path:
    """The sample with its brokers and folder named, and nothing else changed."""
    monkeypatch.chdir(tmp_path)
    text = JOB.read_text().replace("kafka.brokers=#Kafka brokers URI", f"kafka.brokers={mock_kafka.brokers}")
    job = tmp_path / "PullFromKafka.pull"
    job.write_text(text + f"\ndata.publisher.final.dir={tmp_path}/out\nwriter.partition.timezone=America/Los_Angeles\n")
    return job


def test_the_sample_runs_as_it_is_and_goes_on_where_it_stopped(
    pull: Path, tmp_path: Path, mock_kafka: MockCluster
) -> None:
    mock_kafka.create("CaptchaEvent", 2)
    events = [{"header": {"time": START + n * QUARTER_MS}, "answer": f"a{n}"} for n in range(4)]
    with TestRegistry() as registry:
        md5 = registry.add("CaptchaEvent", EVENT).md5
        for n, event in enumerate(events):
            produce(mock_kafka.brokers, "CaptchaEvent", [framed(md5, event)], partition=n % 2)
        pull.write_text(pull.read_text() + f"kafka.schema.registry.url={registry.url}\n")
        first = CliRunner().invoke(app, ["ingest", str(pull)])
        assert first.exit_code == 0, first.output
        found = {folder: sorted(rows) for folder, rows in read(tmp_path / "out").items()}
        assert found == {
            "CaptchaEvent/hourly/2015/04/08/15": ["a0", "a1"],
            "CaptchaEvent/hourly/2015/04/08/16": ["a2", "a3"],
        }
        late = {"header": {"time": START}, "answer": None}
        produce(mock_kafka.brokers, "CaptchaEvent", [framed(md5, late)], partition=0)
        second = CliRunner().invoke(app, ["ingest", str(pull)])
        assert second.exit_code == 0, second.output
        assert "Pulling partition CaptchaEvent:0 from offset 2 to 3" in second.output
        assert sorted(map(str, read(tmp_path / "out")["CaptchaEvent/hourly/2015/04/08/15"])) == ["None", "a0", "a1"]
    schema = next((tmp_path / "out").rglob("*.avro"))
    with schema.open("rb") as data:
        assert fastavro.reader(data).writer_schema["name"].endswith("CaptchaEvent")


def test_as_printed_the_sample_says_what_is_missing(tmp_path: Path) -> None:
    job = tmp_path / "PullFromKafka.pull"
    job.write_text(JOB.read_text())
    result = CliRunner().invoke(app, ["ingest", str(job)])
    assert result.exit_code == 5
    assert "kafka.brokers" in result.output
    assert "line 18" in result.output
