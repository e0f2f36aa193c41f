"""What tables, results, advice and connections look like in a notebook: texts that are escaped, also strange ones."""

import dataclasses

import pyarrow as pa
import pytest

import lakesql
from lakesql import markup
from lakesql.write import WriteResult
from tests.unit.notebook.test_grid import Seen

EVIL = "<script>x</script>"


@pytest.fixture
def table(tmp_path):
    made = lakesql.create_table(
        str(tmp_path / "a<b>&c"),
        pa.schema(
            [
                pa.field("id", pa.int64(), nullable=False),
                ("note", pa.string()),
                ("ts", pa.int64()),
                ("day", pa.string()),
            ]
        ),
        type="mor",
        primary_key=["id"],
        ordering_fields=["ts"],
        partitioned_by=["day"],
        name="trips",
    )
    made.upsert([{"id": n, "note": "x", "ts": 1, "day": "a"} for n in range(40)])
    return made


def test_table_shows_what_it_is_and_its_columns(table):
    page = table._repr_html_()
    seen = Seen(page)
    assert "b" not in seen.tags
    for text in (
        "trips",
        "Merge-on-Read, table version 9",
        "a&lt;b&gt;&amp;c",
        "EVENT_TIME_ORDERING",
        "1 on the active timeline",
    ):
        assert text in page
    assert seen.cells[-12:] == [
        "id",
        "int64",
        "record key, not null",
        "note",
        "string",
        "",
        "ts",
        "int64",
        "ordering",
        "day",
        "string",
        "partition",
    ]


def test_empty_table_and_pending_instants_are_told(tmp_path, table):
    empty = lakesql.create_table(str(tmp_path / "empty"), pa.schema([("id", pa.int64())]))
    assert "no commit yet" in empty._repr_html_()
    table.upsert([{"id": 1, "note": "y", "ts": 2, "day": "a"}])
    table.compact(run=False)
    assert "compaction 2" in table._repr_html_()


def test_write_result_shows_counts_and_notes():
    result = WriteResult("20260101000000000", "commit", "upsert", rows_inserted=1234, notes=(EVIL,))
    page = result._repr_html_()
    assert "1,234" in page
    assert "&lt;script&gt;" in page
    assert EVIL not in page
    assert repr(result).startswith("<lakesql.WriteResult upsert: commit 20260101000000000: 1,234 inserted")
    assert "nothing written" in WriteResult(None, None, "upsert")._repr_html_()


def test_advice_shows_its_sentence_and_every_line(table):
    for share in range(4):
        table.upsert([{"id": 1, "note": "y", "ts": share + 2, "day": "a"}])
    advice = table.advise(reads_per_write=2)
    page = advice._repr_html_()
    assert markup.line(advice.sentence) in page
    shown = Seen(page).cells
    told = [line.measure for line in advice.lines if not line.measure.endswith("Merge-on-Read")]
    assert [name for name in told if name.removesuffix(", Copy-on-Write") not in shown] == []
    assert repr(advice) == f"<lakesql.Advice {table.path}: {advice.sentence}>"
    evil = dataclasses.replace(advice, table=EVIL, sentence=EVIL)
    assert EVIL not in evil._repr_html_()


def test_connection_shows_its_tables(tmp_path):
    with lakesql.connect(warehouse=tmp_path / "a<i>") as con:
        assert "0 Hudi tables" in con._repr_html_()
        con.sql("CREATE TABLE one (id BIGINT) USING hudi TBLPROPERTIES (primaryKey = 'id')")
        page = con._repr_html_()
    assert "1 Hudi table, warehouse" in page
    assert Seen(page).cells[:3] == ["table", "path", "one"]
    assert "<i>" not in page


@pytest.mark.parametrize("make", [markup.title, markup.line, markup.code, markup.details])
def test_every_part_escapes(make):
    assert "<script>" not in make(EVIL)
    assert "&lt;script&gt;" in make(EVIL)
    assert EVIL not in markup.facts([(EVIL, EVIL)])
    assert EVIL not in markup.table((EVIL,), [(EVIL,)], types=(EVIL,))
