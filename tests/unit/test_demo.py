"""`lakesql demo`: also on a machine whose clock is behind the day on which its tables were written."""

import time
from pathlib import Path

import pytest

import lakesql
from lakesql import demo
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


def test_timeline_of_the_demo_fits_its_width(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo.main(str(tmp_path / "demo"))
    lines = capsys.readouterr().out.splitlines()
    rows = [line for line in lines if "│ UPSERT" in line]
    assert rows
    assert all(len(line) <= 110 and "deltacommit │" in line for line in rows if "delta" in line)
