"""Plots: their numbers against tables whose facts are known, and what every drawing must be, whatever the table is like."""

import contextlib
import itertools
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from xml.etree import ElementTree

import duckdb
import matplotlib as mpl
import numpy as np
import pyarrow as pa
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from matplotlib.transforms import Bbox

import lakesql.advice
from lakesql import plot
from lakesql.advice import advise, calibration
from lakesql.advice.costs import Row
from lakesql.errors import LakeError, SQLError
from lakesql.plot import figure as figures
from lakesql.plot import sheet, ticks, words
from lakesql.plot.fonts import replace_unknown, text_width
from lakesql.plot.of_advice import advice_figure
from lakesql.plot.of_amplification import amplification_data, amplification_figure
from lakesql.plot.of_compaction import compaction_figure
from lakesql.plot.of_files import files_data, files_figure
from lakesql.plot.of_freshness import NOW, freshness_data, freshness_figure
from lakesql.plot.of_result import result_figure
from lakesql.plot.of_timeline import timeline_data, timeline_figure
from lakesql.plot.replay import replayed
from lakesql.services.freshness import freshness
from lakesql.simulation.strategies import FIXED, named
from lakesql.table import inspect
from lakesql.table.state import load
from tests.synthetic import BASE, CHANGED, LOG, ROWS, START_MS, synthetic
from tests.zipped import FOLDER, open_zip

SVG = "{http://www.w3.org/2000/svg}"
PARTS = {"svg", "title", "desc", "g", "path", "text", "use", "defs", "clipPath", "rect", "pattern"}
LONG = "ein sehr langer Name mit vielen Wörtern und 日本語の表 $x^2$ \\frac <b>&" + "x" * 60


@dataclass(frozen=True)
class Case:
    """A table; `after_s`: when it is looked at, after its last commit."""

    commits: int
    groups: int
    stride: int = 1
    name: str = "made_up"
    kind: str = "mor"
    partition: str = ""
    pending: str | None = None

    @cache  # noqa: B019  the few cases below
    def state(self):
        return synthetic(
            self.commits, self.groups, stride=self.stride, name=self.name, kind=self.kind, partition=self.partition,
            pending=self.pending,
        )  # fmt: skip

    @property
    def now_ms(self) -> int:
        return START_MS + 60_000 * self.commits + 100_000


CASES = {
    "empty": Case(0, 0),
    "one commit": Case(1, 1),
    "copy on write": Case(5, 4, kind="cow"),
    "long names": Case(5, 9, name=LONG, partition=f"ein/sehr/langer/Pfad/{'y' * 60}/日本=", pending="deltacommit"),
    "many commits": Case(1000, 4, stride=2),
    "many groups": Case(4, 600, stride=2, partition="day="),
}
DRAWN = {
    "timeline": lambda c: timeline_figure(c.state(), False),
    "files": lambda c: files_figure(c.state()),
    "amplification": lambda c: amplification_figure(c.state()),
    "advice": lambda c: advice_figure(duckdb.connect(), c.state(), 3.0),
    "freshness": lambda c: freshness_figure(c.state(), c.now_ms),
    "compaction": lambda c: compaction_figure(c.state(), "", ("every 5 commits", "adaptive, reads 1.2", "never"), 30),
}
RESULTS = {
    "bars": "SELECT 'group ' || i AS g, i * 100 AS a, (3 - i) * 50.5 AS b FROM range(7) t(i)",
    "one bar": "SELECT 'only' AS g, 1 AS n",
    "no rows": "SELECT 'x' AS g, 1 AS n WHERE false",
    "nulls": "SELECT * FROM (VALUES (NULL, 1::DECIMAL(9,2)), ('b', NULL), (repeat('長い名前', 30), -7.25)) t(g, n)",
    "times": "SELECT TIMESTAMP '2026-01-01' + i * INTERVAL 1 HOUR AS t, sin(i / 9) AS s, 1e9 * i AS large FROM range(100) t(i)",
    "numbers": "SELECT i::DOUBLE AS x, i * i AS y FROM range(50000) t(i)",
    "twice the same name": "SELECT 'a' AS g, 1 AS n, 2 AS n",
    "very large numbers": "SELECT 'a' AS g, 9007199254740993 AS n, 18446744073709551615::UBIGINT AS m, 1e300 AS k",
    "moments of a zone": "SELECT TIMESTAMPTZ '2026-01-01 10:00:00+02' + i * INTERVAL 1 DAY AS t, i AS n FROM range(4) t(i)",
    "infinite moments": "SELECT * FROM (VALUES (TIMESTAMP 'infinity', 1), ('0044-03-15'::TIMESTAMP, 2), ('9998-01-01', 3)) t(t, n)",
    "no name": "SELECT NULL AS g, 3 AS n",
    "one moment": "SELECT DATE '2026-01-01' AS d, 3 AS n",
    "no number": "SELECT i AS x, NULL::DOUBLE AS y FROM range(3) t(i)",
}


@pytest.fixture(autouse=True)
def shipped_prices(tmp_path, monkeypatch):
    """Prices that do not depend on who runs the tests, and rows of a known size where the files hold none."""
    monkeypatch.setattr(calibration, "own_path", lambda: tmp_path / "none.json")
    look = lakesql.advice.row_of
    monkeypatch.setattr(
        lakesql.advice,
        "row_of",
        lambda con, state: Row(7, 60) if state.path.startswith("memory:") else look(con, state),
    )


def all_figures():
    for (kind, draw), (name, case) in itertools.product(DRAWN.items(), CASES.items()):
        if kind != "compaction" or name not in ("empty", "one commit", "copy on write"):
            yield pytest.param(lambda draw=draw, case=case: draw(case), id=f"{kind} of {name}")
    for name, sql in RESULTS.items():
        yield pytest.param(lambda sql=sql: result_figure(duckdb.sql(sql)), id=f"result, {name}")


FIGURES = list(all_figures())

# ---------------------------------------------------------------- every drawing


@pytest.mark.parametrize("make", FIGURES)
def test_no_text_overlaps_another_one_or_leaves_the_page(make):
    drawing = make()._draw()
    replace_unknown(drawing)
    drawing.set_dpi(4 * 72)  # letters of few pixels would be wider than those of a font
    renderer = FigureCanvasAgg(drawing).get_renderer()
    texts = [t for t in drawing.findobj(Text) if t.get_visible() and t.get_text().strip()]
    assert texts
    boxes = [(t.get_text(), Bbox(t.get_window_extent(renderer).get_points() / 4)) for t in texts]
    for text, box in boxes:
        assert 0 <= box.x0 <= box.x1 <= sheet.WIDTH, text
        assert 0 <= box.y0 <= box.y1 <= drawing.bbox.height / 4, text
    for (one, a), (other, b) in itertools.combinations(boxes, 2):
        across = min(a.x1, b.x1) - max(a.x0, b.x0)
        upright = min(a.y1, b.y1) - max(a.y0, b.y0)
        assert across <= 0.5 or upright <= 2.0, (one, other)  # boxes have room above and below letters


@pytest.mark.parametrize("make", FIGURES)
def test_svg_is_well_formed_and_says_what_it_shows(make):
    figure = make()
    text = figure.svg()
    root = ElementTree.fromstring(text)
    ids = [e.get("id") for e in root.iter() if e.get("id")]
    assert len(ids) == len(set(ids))
    assert root.get("role") == "img"
    title, desc = (root.find(f"{SVG}{tag}") for tag in ("title", "desc"))
    assert root.get("aria-labelledby").split() == [title.get("id"), desc.get("id")]
    assert (title.text, desc.text) == (figures.plain(figure.title), figures.plain(figure.alt))
    assert set(re.findall(r'(?:url\(#|href="#)([^)"]+)', text)) <= set(ids)
    assert {e.tag.removeprefix(SVG) for e in root.iter()} <= PARTS
    assert "<style" not in text
    assert "<script" not in text
    assert figure.svg() == text
    assert len(text) < 200_000


def test_a_page_takes_several_drawings_in_the_colour_of_its_text():
    one, other = (DRAWN["files"](CASES[name]) for name in ("long names", "many groups"))
    both = one._repr_html_() + other._repr_html_()
    ids = re.findall(r' id="([^"]+)"', both)
    assert len(ids) == len(set(ids))
    assert sheet.INK not in both
    assert 'fill="currentColor"' in both
    assert sheet.INK in one._repr_svg_()


def test_colours_stand_out_from_light_and_dark_grounds():
    def light(colour: str) -> float:
        parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05

    def contrast(a: str, b: str) -> float:
        return max(light(a), light(b)) / min(light(a), light(b))

    for ground in ("#ffffff", "#1e1e1e", "#0d1117"):
        assert contrast(sheet.INK, ground) >= 4
        assert all(contrast(colour, ground) >= 3 for colour in sheet.COLOURS)


def test_settings_of_matplotlib_do_not_count_and_do_not_change():
    figure = DRAWN["amplification"](CASES["long names"])
    plain = figure.svg()
    look = {
        "text.usetex": True,
        "svg.fonttype": "path",
        "font.size": 40,
        "axes.grid": True,
        "figure.facecolor": "black",
    }
    with mpl.rc_context(look):
        before = dict(mpl.rcParams)
        assert figure.svg() == plain
        assert dict(mpl.rcParams) == before


def test_threads_draw_at_the_same_time():
    drawn = [DRAWN[kind](CASES["long names"]) for kind in ("timeline", "files", "amplification", "freshness")]
    wanted = [f.svg() for f in drawn]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda n: drawn[n % 4].svg(), range(12))) == [wanted[n % 4] for n in range(12)]


def test_drawing_loads_neither_pyplot_nor_matplotlib_before_it_is_wanted():
    code = (
        "import sys, lakesql, pyarrow as pa; p = lakesql.plot; assert 'matplotlib' not in sys.modules;"
        "f = p.result(pa.table({'a': ['x'], 'b': [1]})); f.svg(); f._repr_html_();"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_files_by_their_endings(tmp_path):
    figure = DRAWN["files"](CASES["long names"])
    for ending, start in ((".svg", b"<svg"), (".png", b"\x89PNG"), (".pdf", b"%PDF"), (".PNG", b"\x89PNG")):
        assert figure.save(tmp_path / f"a{ending}").read_bytes().startswith(start)
    with pytest.raises(SQLError, match=r"\.svg, \.png, \.pdf"):
        figure.save(tmp_path / "a.jpg")


def test_without_matplotlib_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(figures.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(LakeError, match=r"lakesql\[plot\]"):
        plot.timeline(tmp_path)
    with pytest.raises(LakeError, match=r"lakesql\[plot\]"):
        plot.result(pa.table({"a": ["x"], "b": [1]}))


# ---------------------------------------------------------------- data


@pytest.mark.parametrize("name", sorted(p.stem for p in FOLDER.glob("*.zip")))
def test_replaying_the_timeline_ends_at_the_files_that_are_there(name):
    state = load(open_zip(name))
    after = replayed(state)
    latest = inspect.files(state)
    latest = latest.filter(latest["latest"]).to_pylist()
    found = (after[-1].base_bytes, after[-1].log_bytes) if after else (0, 0)
    assert found == (sum(f["base_bytes"] or 0 for f in latest), sum(f["log_bytes"] for f in latest))


def test_amplification_of_a_table_made_by_hand():
    data = amplification_data(synthetic(4, 4, stride=2)).to_pylist()
    base = 4 * BASE + 6
    assert [r["log_bytes"] for r in data] == [0, 2 * LOG, 4 * LOG, 6 * LOG]
    assert [r["read_amplification"] for r in data] == [pytest.approx(1 + 2 * n * LOG / base) for n in range(4)]
    changed = 2 * CHANGED * base / (4 * ROWS)
    assert [r["bytes_changed"] for r in data] == [None, *[pytest.approx(changed)] * 3]
    assert [r["write_amplification"] for r in data] == [None, *[pytest.approx(2 * LOG / changed)] * 3]


def test_write_amplification_ends_at_what_the_advice_says(worked_on):
    state = worked_on.state
    advice = {line.measure: line.value for line in advise(duckdb.connect(), state).lines}
    data = amplification_data(state).to_pylist()
    assert data[-1]["write_amplification"] == pytest.approx(advice["write amplification paid, Merge-on-Read"])
    assert data[-1]["read_amplification"] == pytest.approx(advice["read amplification now"])
    folded = next(r for r in data if r["action"] == "compaction")
    assert folded["read_amplification"] == 1
    assert "compaction" in plot.amplification(worked_on).svg()


@pytest.fixture(scope="module")
def worked_on(tmp_path_factory):
    """A small Merge-on-Read table, really written: a first load, five upserts, a compaction, one more upsert."""
    folder = tmp_path_factory.mktemp("plotted")
    batch = pa.table({"id": range(500), "v": ["some value"] * 500, "ts": [0] * 500})
    table = lakesql.create_table(folder / "t", batch.schema, type="mor", primary_key=["id"], ordering_fields=["ts"])
    table.bulk_insert(batch)
    for n in range(6):
        if n == 5:
            table.compact()
        table.upsert(batch.slice(20 * n, 40))
    return table


def test_freshness_of_a_table_made_by_hand():
    state = synthetic(4, 2)
    now = START_MS + 300_000
    rows = freshness_data(state, now).to_pylist()
    # Commit 1 completes at 62 s and is in a log from then on; later ones at 122 s and 182 s.
    assert [(r["lag_before_s"], r["lag_after_s"]) for r in rows] == [
        (0, 0),
        (0, 0),
        (60, 60),
        (120, 120),
        (238, 238),
        (238, 238),
    ]
    assert [r["action"] for r in rows] == ["deltacommit"] * 4 + [NOW] * 2
    assert rows[4]["lag_before_s"] == freshness(state, now)[0].lag_s


def test_freshness_falls_when_logs_are_compacted(worked_on):
    rows = plot.freshness(worked_on).data.to_pylist()
    folded = next(r for r in rows if r["action"] == "compaction")
    assert folded["lag_before_s"] > 0
    assert folded["lag_after_s"] == 0
    last = next(r for r in rows if r["action"] == NOW)
    assert last["lag_before_s"] == pytest.approx(worked_on.freshness().lag_s, abs=5)


def test_files_are_those_of_the_newest_slices_largest_first():
    data = files_data(synthetic(3, 4, stride=2)).to_pylist()
    assert [(r["file_id"], r["base_bytes"], r["log_bytes"]) for r in data] == [
        ("g00003-0", BASE + 3, LOG), ("g00002-0", BASE + 2, LOG), ("g00001-0", BASE + 1, LOG), ("g00000-0", BASE, LOG),
    ]  # fmt: skip
    assert data[0]["log_share"] == pytest.approx(LOG / (BASE + 3 + LOG))


def test_timeline_has_the_moments_of_requests_and_completions():
    state = synthetic(3, 1, pending="clustering")
    data = timeline_data(state).to_pylist()
    begun = [r["requested_at"].timestamp() * 1000 - START_MS for r in data]
    assert begun == [0, 60_000, 120_000, 180_000]
    assert [r["completed_at"] and r["completed_at"].timestamp() * 1000 - START_MS for r in data] == [
        2_000,
        62_000,
        122_000,
        None,
    ]
    figure = timeline_figure(state, False)
    assert figure.alt.endswith("1 is not completed: clustering 20260101000300000.")
    assert "clustering  1, 1 pending" in figure.svg()


def test_advice_has_the_costs_of_the_formula_and_the_place_of_the_table(worked_on):
    figure = plot.advice(worked_on, 3)
    rows = figure.data.to_pylist()
    lines = {line.measure: line.value for line in worked_on.advise(3).lines}
    [own] = [r for r in rows if r["over"] == "reads per write" and r["mark"] == "table"]
    assert own["x"] == 3
    assert own["cow_s"] == pytest.approx(lines["all together, Copy-on-Write"])
    assert own["mor_s"] == pytest.approx(lines["all together, Merge-on-Read"])
    for even in (r for r in rows if r["mark"] == "break-even"):
        assert even["cow_s"] == pytest.approx(even["mor_s"], rel=1e-3)
    assert figure.alt.startswith(worked_on.advise(3).sentence)


def test_advice_without_history_says_what_is_missing():
    figure = DRAWN["advice"](CASES["one commit"])
    assert figure.data.num_rows == 0
    assert "at least 3" in figure.alt
    assert "at least 3" in figure.svg()


def test_simulation_with_the_commits_of_a_table():
    state = CASES["long names"].state()
    figure = compaction_figure(state, "", ("every 2 commits", "never"), 10)
    rows = figure.data.to_pylist()
    never = [r for r in rows if r["strategy"] == "never"]
    base = sum(r["base_bytes"] for r in files_data(state).to_pylist())
    assert never[0]["read_amplification"] == pytest.approx(1 + 9 * LOG / base)
    assert never[-1]["read_amplification"] == pytest.approx(1 + 10 * 9 * LOG / base)
    assert never[-1]["rewritten_bytes"] == 0
    assert [r for r in rows if r["strategy"] != "never"][-1]["rewritten_bytes"] >= 4 * base


def test_simulation_of_a_pattern_keeps_the_target():
    data = plot.compaction_simulation(strategies=["adaptive, reads 1.2", "never"], commits=40).data
    by = {
        name: max(r["read_amplification"] for r in data.to_pylist() if r["strategy"] == name)
        for name in ("adaptive, reads 1.2", "never")
    }
    assert by["adaptive, reads 1.2"] < 1.21 < by["never"]


def test_a_line_that_is_cut_is_said_to_go_on():
    assert "never: the line goes on to " in plot.compaction_simulation().svg()
    assert "the line goes on" not in plot.compaction_simulation(strategies=["never"]).svg()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"pattern": "odd"}, "'odd' is unknown; there are uniform"),
        ({"strategies": ["weekly"]}, "'weekly' is no strategy"),
        ({"strategies": ["never"] * 2}, "different"),
        ({"strategies": ["adaptive, reads 0.5"]}, "no strategy"),
        ({"commits": 1}, "from 2 to"),
    ],
)
def test_simulation_refuses_what_it_cannot_do(arguments, text):
    with pytest.raises(SQLError, match=re.escape(text)):
        plot.compaction_simulation(**arguments)


def test_simulation_of_a_copy_on_write_table_is_refused():
    with pytest.raises(SQLError, match="no logs to compact"):
        DRAWN["compaction"](CASES["copy on write"])


def test_strategies_of_the_benchmark_have_the_names_that_are_understood():
    assert all(named(name) for name in FIXED)


# ---------------------------------------------------------------- results


def test_result_of_a_text_and_numbers_is_bars_in_the_order_of_the_query():
    figure = plot.result(duckdb.sql("SELECT * FROM (VALUES ('b', 3, 1.5), ('a', 7, -2.0)) t(g, n, m)"))
    assert figure.title == "n, m by g"
    assert (
        figure.alt
        == "2 rows by g: n is largest for a (7) and smallest for b (3); m is largest for b (1.5) and smallest for a (-2)."
    )
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", figure.svg())
    assert [t for t in texts if t in ("a", "b")] == ["b", "a"]


def test_result_with_times_is_lines_in_the_order_of_time():
    table = pa.table({"t": pa.array([3, 1, 2], pa.timestamp("s")), "n": [30, 10, 20]})
    figure = plot.result(table)
    assert figure.data is table or figure.data.equals(table)
    assert "from 1970-01-01 00:00:01 to 1970-01-01 00:00:03: n runs from 10 to 30" in figure.alt


def test_meta_columns_are_left_out_and_every_stream_is_taken():
    table = pa.table({"_hoodie_commit_time": ["1"], "g": ["x"], "n": [1]})
    for source in (table, table.to_reader(), table.to_pandas(), duckdb.from_arrow(table)):
        assert plot.result(source).data.schema.names == ["g", "n"]


def test_long_lines_keep_their_extremes():
    values = np.zeros(100_000)
    values[77_777] = 5
    table = pa.table({"x": np.arange(100_000), "y": values})
    drawing = plot.result(table)._draw()
    [line] = drawing.axes[0].lines
    assert line.get_ydata().max() == 5
    assert len(line.get_ydata()) < 3_000


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("SELECT 'a' AS g, 'b' AS h", "This result has g (string), h (string)"),
        ("SELECT 1 AS n", "This result has n (int32)"),
        ("SELECT [1] AS l, 1 AS n", "The first column, l, is of type list"),
        ("SELECT i::VARCHAR AS g, i AS n FROM range(99) t(i)", "ORDER BY n DESC LIMIT 40"),
        ("SELECT 'a' AS g, 1, 2, 3, 4, 5, 6", "at most 5 columns of numbers"),
    ],
)
def test_result_that_cannot_be_drawn_says_what_can(sql, text):
    with pytest.raises(SQLError, match=re.escape(text)):
        plot.result(duckdb.sql(sql))


def test_what_is_no_result_and_no_table_is_named():
    with pytest.raises(SQLError, match="A int cannot be drawn"):
        plot.result(7)
    with pytest.raises(SQLError, match="A int is no table"):
        plot.files(7)


# ---------------------------------------------------------------- ways to ask


def test_a_table_by_handle_path_and_name(worked_on, tmp_path):
    wanted = plot.files(worked_on)
    assert plot.files(worked_on.path.removeprefix("file://")).alt == wanted.alt
    with lakesql.connect(warehouse=tmp_path) as con:
        con.execute(f"CREATE TABLE visits USING hudi LOCATION '{worked_on.path}'")
        assert plot.files("visits", connection=con).data == wanted.data


def test_command_writes_a_file_and_says_what_it_shows(worked_on, tmp_path, monkeypatch, capsys):
    from lakesql import cli

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["lakesql", "plot", *arguments])
        code = 0
        try:
            cli.main()
        except SystemExit as end:
            code = int(end.code or 0)
        return code, *capsys.readouterr()

    monkeypatch.chdir(tmp_path)
    path = worked_on.path.removeprefix("file://")
    code, out, _ = run("files", path)
    assert (code, out.splitlines()) == (0, [plot.files(worked_on).alt, "t-files.svg"])
    assert (tmp_path / "t-files.svg").read_text().startswith("<svg")
    assert run("advice", path, "--reads-per-write", "2", "--out", "a.png")[0] == 0
    assert run("compaction", "--out", "c.svg")[1].endswith("c.svg\n")
    assert "Did you mean files?" in run("fles", path)[2]
    assert "give the folder" in run("files")[2]
    assert "is for advice" in run("files", path, "--reads-per-write", "2")[2]


# ---------------------------------------------------------------- words and ticks


def test_numbers_as_words():
    assert [words.bytes_text(n) for n in (0, 999, 1000, 999_600, 12_345_678, 5e15)] == [
        "0 B",
        "999 B",
        "1 kB",
        "1 MB",
        "12.3 MB",
        "5,000 TB",
    ]
    assert [words.percent_text(n) for n in (0, 0.00123, 0.1, 1)] == ["0 %", "0.12 %", "10 %", "100 %"]
    assert [words.seconds_text(n) for n in (0.0123, 2.5, 7200)] == ["12.3 ms", "2.5 s", "2 h"]


def test_long_names_stay_different():
    names = [f"{'x' * 60}{n}{'y' * 60}" for n in range(3)]
    short = words.distinct([*names, names[0]])
    assert len(set(short)) == 3
    assert short[0] == short[3]
    assert all(words.width(s) <= words.NAME_MAX for s in short)
    assert words.distinct(["a", "b"]) == ["a", "b"]


@pytest.mark.parametrize("span_ms", [0, 7, 950, 61_000, 3e6, 5e7, 9e8, 4e9, 4e10, 3e12])
def test_axes_of_time_have_a_few_ticks_within_their_range(span_ms):
    axis = ticks.time_axis(START_MS, START_MS + span_ms)
    assert 1 <= len(axis.ticks) <= 7
    assert all(axis.low <= v <= axis.high for v, _ in axis.ticks)
    assert len({text for _, text in axis.ticks}) == len(axis.ticks)


@pytest.mark.parametrize("high", [0.0, 1e-6, 0.3, 1.0, 7.0, 99.0, 12_345.0, 3e12])
def test_axes_of_numbers_reach_a_little_above_the_largest(high):
    for axis in (ticks.linear(high, str), ticks.spans(high, str)):
        assert axis.low == 0
        assert axis.high >= high
        assert 2 <= len(axis.ticks) <= 7
        assert all(v <= axis.high for v, _ in axis.ticks)


def test_width_of_a_text_is_that_of_the_font_and_none_is_lost():
    assert text_width("", 9) == 0
    assert text_width("日本", 9) > text_width("ii", 9)
    with contextlib.suppress(KeyError):
        assert sheet.wrapped("a " * 200, 100, 9)
    assert " ".join(sheet.wrapped("one two three four", 50, 9)) == "one two three four"
