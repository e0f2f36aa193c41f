"""docs/plots.md: its code gives what it says, and its pictures are what the code draws now; `make regold` draws them anew."""

import contextlib
import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

import lakesql.advice
from lakesql import plot
from lakesql.advice import calibration
from lakesql.advice.costs import Row
from lakesql.plot.of_advice import advice_figure
from lakesql.plot.of_amplification import amplification_figure
from lakesql.plot.of_compaction import STRATEGIES, compaction_figure
from lakesql.plot.of_files import files_figure
from lakesql.plot.of_freshness import freshness_figure
from lakesql.plot.of_timeline import timeline_figure
from lakesql.table.state import TableState, load
from tests.synthetic import START_MS, synthetic
from tests.unit.test_advice import RECORD
from tests.zipped import open_zip

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "plots.md").read_text()
IMAGES = DOCS / "images" / "plots"
BYTES_MAX = 60_000


def stored(name: str) -> TableState:
    return load(open_zip(name))


def trips() -> TableState:
    return synthetic(6, 14, stride=3, name="trips", partition="day=2026-01-0", uneven=900)


def compacted() -> TableState:
    return synthetic(14, 12, stride=3, name="trips", partition="day=2026-01-0", compact=5)


RESULT = "SELECT * FROM (VALUES ('san francisco', 165.4, 4), ('são paulo', 77.6, 2), ('chennai', 58.9, 2)) t(city, fares, trips)"
PICTURES: dict[str, Callable[[], plot.Figure]] = {
    "timeline": lambda: timeline_figure(stored("h120_clustered_mor"), False),
    "files": lambda: files_figure(trips()),
    "files-many": lambda: files_figure(synthetic(6, 600, stride=7, name="trips", uneven=20_000)),
    "amplification": lambda: amplification_figure(compacted()),
    "advice": lambda: advice_figure(duckdb.connect(), synthetic(9, 40, name="trips"), 2.0),
    "freshness": lambda: freshness_figure(compacted(), START_MS + 14 * 60_000),
    "compaction": lambda: compaction_figure(None, "late", STRATEGIES, 24),
    "result": lambda: plot.result(duckdb.sql(RESULT)),
}


@pytest.fixture(autouse=True)
def fixed_prices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prices that do not change, and rows of a known size, since the files of these tables hold none."""
    monkeypatch.setattr(calibration, "own_path", lambda: tmp_path / "calibration.json")
    dear = {step: replace(price, row=2_000 * price.row) for step, price in RECORD.prices.items()}
    calibration.save(replace(RECORD, prices=dear))
    look = lakesql.advice.row_of
    monkeypatch.setattr(
        lakesql.advice,
        "row_of",
        lambda con, state: Row(7, 60) if state.path.startswith("memory:") else look(con, state),
    )


def told(svg: str) -> list[str]:
    """Every text of a picture; places may differ by the version of matplotlib."""
    return re.findall(r"<(?:title|desc|text)[^>]*>([^<]*)<", svg)


@pytest.mark.parametrize("name", PICTURES)
def test_picture_is_what_is_drawn_now(name: str, regold: bool) -> None:
    svg, file = PICTURES[name]().svg(), IMAGES / f"{name}.svg"
    assert len(svg.encode()) < BYTES_MAX
    if regold:
        file.write_text(svg, encoding="utf-8")
    assert told(file.read_text(encoding="utf-8")) == told(svg)


def test_the_page_shows_every_picture_and_names_every_plot() -> None:
    shown = re.findall(r"!\[[^\]]{20,}\]\(images/plots/([a-z-]+)\.svg\)", TEXT)
    assert sorted(shown) == sorted(PICTURES) == sorted(p.stem for p in IMAGES.glob("*.svg"))
    assert set(re.findall(r"^## (\w+)$", TEXT, re.M)) == set(plot.__all__) - {"KINDS", "Figure"}
    assert all(f"`{kind}`" in TEXT for kind in plot.KINDS)


def test_code_gives_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    given, checked = "", 0
    for language, body in re.findall(r"```(\w*)\n(.*?)```", TEXT, re.S):
        if language == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(body, scope)
            given = out.getvalue()
        elif language == "text":
            assert given == body
            checked += 1
    assert checked == 2
    assert (tmp_path / "timeline.svg").exists()
