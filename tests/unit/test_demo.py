"""`lakesql demo`: its story, what it leaves out and why, how it fails, and a machine whose clock is behind its tables."""

import contextlib
import importlib.util
import io
import re
import time
from pathlib import Path

import pytest

import lakesql
from lakesql import demo, plot
from lakesql.errors import LakeError
from lakesql.table import clock

PAST_MS = 1_700_000_000_000  # November 2023


def test_demo_runs_on_a_machine_whose_clock_is_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started = time.monotonic()
    monkeypatch.setattr(clock.time, "time_ns", lambda: int((PAST_MS / 1000 + time.monotonic() - started) * 1e9))
    demo.main(str(tmp_path / "demo"))
    assert "behind the demo's tables" in capsys.readouterr().out
    for kind in demo.KINDS:
        timeline = lakesql.open_table(str(tmp_path / "demo" / f"trips_{kind}")).timeline().to_pylist()
        assert sorted(i["instant"] for i in timeline)[-1] == timeline[-1]["instant"]
        assert timeline[-1]["operation"] == "UPSERT"


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the whole demo prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        demo.main(str(tmp_path_factory.mktemp("demo") / "d"))
    return out.getvalue()


def test_demo_tells_its_story_in_seven_chapters_of_100_columns(told: str) -> None:
    lines = told.splitlines()
    assert [line[0] for line in lines if line.endswith("──")] == list("1234567")
    own = [line for line in lines if "/" not in line]  # a folder may be as long as it likes
    assert max(map(len, own)) <= demo.WIDTH
    assert "hudi-rs reads the same 8 rows of trips_cow." in told
    assert "hudi-rs reads the same 1,980 rows of orders." in told
    assert "2             61        60               1               0" in told


def test_demo_without_a_kafka_client_or_matplotlib_says_so_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo.demo_broker, "librdkafka", lambda: None)
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "matplotlib" else found(name, *a))
    demo.main(str(tmp_path / "d"))
    out = capsys.readouterr().out
    assert "lakesql[kafka]" in out
    assert "lakesql[plot]" in out
    assert "hudi-rs reads the same 1,980 rows of orders." in out
    assert not (tmp_path / "d" / "plots").exists()


def test_demo_draws_every_plot(told: str) -> None:
    folder = Path(re.findall(r"\.svg are in\s+(\S+)\.", told)[0])
    assert sorted(p.stem for p in folder.iterdir()) == sorted(plot.KINDS)


def test_demo_fails_when_orders_are_not_what_they_should_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = demo.newest
    monkeypatch.setattr(demo, "newest", lambda batches: {**real(batches), 5: {**real(batches)[5], "amount": 0.0}})
    with pytest.raises(LakeError, match="Please report this"):
        demo.main(str(tmp_path / "d"))
    assert list((tmp_path / "d").iterdir()) == []
