"""Rows in and out: pandas, polars, pyarrow and DuckDB, by the Arrow stream; tools that speak the DB-API; other catalogs beside."""

import datetime
import decimal
import threading
import warnings

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lakesql

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("name", pa.string()),
        ("price", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("x", pa.float64()), ("y", pa.float64())])),
        ("raw", pa.binary()),
        ("live", pa.bool_()),
    ]
)
MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678000, datetime.UTC)
FULL = {
    "id": 1,
    "name": "Ærø 🚲",
    "price": decimal.Decimal("12.50"),
    "at": MOMENT,
    "day": datetime.date(2026, 1, 2),
    "tags": ["a", None],
    "place": {"x": 1.5, "y": None},
    "raw": b"\x00\xff",
    "live": True,
}
EMPTY = {**dict.fromkeys(FULL), "id": 2}
ROWS = pa.Table.from_pylist([FULL, EMPTY], schema=SCHEMA)

CARRIERS = {
    "pyarrow table": lambda: ROWS,
    "pyarrow reader": ROWS.to_reader,
    "pyarrow batch": lambda: ROWS.to_batches()[0],
    "pandas with arrow types": lambda: ROWS.to_pandas(types_mapper=pd.ArrowDtype),
    "polars": lambda: pl.from_arrow(ROWS),
    "duckdb relation": lambda: duckdb.connect().from_arrow(ROWS),
    "list of dicts": lambda: [FULL, EMPTY],
}


@pytest.fixture
def con(tmp_path):
    with lakesql.connect(warehouse=tmp_path / "lake") as made:
        yield made


def stored(table):
    return sorted(table.read(columns=SCHEMA.names).read_all().to_pylist(), key=lambda row: row["id"])


@pytest.mark.parametrize("carrier", CARRIERS)
def test_rows_of_every_kind_arrive_unchanged(tmp_path, carrier):
    table = lakesql.create_table(str(tmp_path / "t"), SCHEMA, type="mor", primary_key=["id"])
    assert table.upsert(CARRIERS[carrier]()).rows_inserted == 2
    assert stored(table) == [FULL, EMPTY]
    assert table.upsert(CARRIERS[carrier]()).rows_updated == 2
    assert stored(table) == [FULL, EMPTY]


@pytest.mark.parametrize("carrier", [c for c in CARRIERS if c not in ("duckdb relation", "list of dicts")])
def test_rows_of_every_kind_are_sources_in_sql_by_their_name(con, carrier):
    con.table(lakesql.create_table(f"{con.warehouse}/t", SCHEMA, type="mor", primary_key=["id"]).path)
    news = CARRIERS[carrier]()
    con.sql("MERGE INTO t USING news n ON t.id = n.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")
    assert con.last_result.rows_inserted == 2
    assert stored(con.table("t")) == [FULL, EMPTY]
    assert news is not None


@pytest.mark.filterwarnings("ignore:Arrow output on a DB-API result")
def test_rows_come_out_as_what_is_asked_for(con):
    lakesql.create_table(f"{con.warehouse}/t", SCHEMA, type="mor", primary_key=["id"]).upsert(ROWS)
    columns = ", ".join(f'"{name}"' for name in SCHEMA.names)
    query = f"SELECT {columns} FROM t ORDER BY id"
    for table in (
        con.sql(query).to_arrow_table(),
        con.execute(query).arrow(),
        con.execute(query).to_arrow_reader().read_all(),
    ):
        assert table.to_pylist() == [FULL, EMPTY]
    assert con.sql(query).pl().to_dicts() == con.execute(query).pl().to_dicts() == [FULL, EMPTY]
    frame = con.sql(query).df()
    assert (frame.id.tolist(), frame.name[0], frame["at"][0]) == ([1, 2], FULL["name"], pd.Timestamp(MOMENT))
    assert pl.from_arrow(con.table("t").read(columns=["id"])).height == 2
    assert pa.table(con.sql(query)).num_rows == 2


def test_index_of_a_pandas_frame_is_no_column(tmp_path):
    table = lakesql.create_table(
        str(tmp_path / "t"), pa.schema([("id", pa.int64()), ("v", pa.int64())]), primary_key=["id"]
    )
    frame = pd.DataFrame({"id": [3, 1, 2], "v": [3, 1, 2]}).sort_values("id")
    assert table.upsert(frame).rows_inserted == 3
    assert table.upsert(pa.Table.from_pandas(frame)).rows_updated == 3
    assert table.upsert(pl.LazyFrame({"id": [1], "v": [9]}).collect()).rows_updated == 1
    assert sorted(table.read(columns=["v"]).read_all()["v"].to_pylist()) == [2, 3, 9]


def test_pandas_reads_by_the_db_api(con):
    con.sql("CREATE TABLE t (id BIGINT, v VARCHAR) USING hudi TBLPROPERTIES (primaryKey = 'id')")
    con.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="pandas only supports SQLAlchemy")
        frame = pd.read_sql("SELECT id, v FROM t ORDER BY id", con)
        assert frame.v.tolist() == ["a", "b"]
        assert pd.read_sql("SELECT v FROM t WHERE id = ?", con, params=[2]).v.tolist() == ["b"]
        parts = list(pd.read_sql("SELECT id FROM t ORDER BY id", con, chunksize=1))
        assert [part.id.tolist() for part in parts] == [[1], [2]]


def test_cursor_speaks_the_db_api(con):
    with con.cursor() as cursor:
        cursor.execute("CREATE TABLE t (id BIGINT) USING hudi TBLPROPERTIES (primaryKey = 'id')")
        cursor.execute("INSERT INTO t VALUES (1), (2), (3)")
        assert cursor.fetchone()[3] == 3
        cursor.execute("SELECT id FROM t WHERE id > ? ORDER BY id", [1])
        assert [d[0] for d in cursor.description] == ["id"]
        assert (cursor.fetchone(), cursor.fetchmany(5), cursor.fetchone()) == ((2,), [(3,)], None)
        cursor.commit()
        cursor.rollback()


def test_threads_write_and_read_with_cursors(con):
    con.sql("CREATE TABLE t (id BIGINT, thread BIGINT) USING hudi TBLPROPERTIES (type = 'mor', primaryKey = 'id')")
    wrong: list[BaseException] = []

    def work(number: int) -> None:
        try:
            with con.cursor() as cursor:
                for step in range(3):
                    mine = pa.table({"id": [10 * number + step], "thread": [number]})
                    cursor.sql("INSERT INTO t SELECT * FROM mine")
                    rows = cursor.execute("SELECT count(*) FROM t WHERE thread = ?", [number]).fetchall()
                    assert rows == [(step + 1,)], rows
                    assert mine.num_rows == 1
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert con.execute("SELECT count(*), count(DISTINCT id) FROM t").fetchall() == [(9, 9)]


def test_other_catalogs_and_extensions_live_on_the_same_connection(con, tmp_path):
    con.sql("CREATE TABLE t (id BIGINT, v BIGINT) USING hudi TBLPROPERTIES (type = 'mor', primaryKey = 'id')")
    con.sql(f"ATTACH '{tmp_path}/other.duckdb' AS other; CREATE TABLE other.names (id BIGINT, v BIGINT)")
    con.sql("INSERT INTO other.names VALUES (1, 10), (2, 20); INSERT INTO t SELECT * FROM other.names")
    con.sql("LOAD json; LOAD parquet")
    con.sql(
        "MERGE INTO t USING (SELECT id, v + 1 AS v FROM other.names) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v"
    )
    joined = con.sql("SELECT t.id, t.v - n.v FROM t JOIN other.names n USING (id) ORDER BY id").fetchall()
    assert joined == [(1, 1), (2, 1)]
    con.sql("CREATE TABLE other.t (id BIGINT, v BIGINT)")
    assert con.sql("INSERT INTO other.t SELECT id, v FROM t") is not None
    assert con.execute("SELECT count(*) FROM other.t").fetchall() == [(2,)]
    con.sql("UPDATE other.t SET v = 0")
    assert con.execute("SELECT min(v) FROM t").fetchall() == [(11,)]
    con.sql("USE other")
    assert con.execute("SELECT sum(v) FROM t").fetchall() == [(0,)]
    con.sql("USE memory")
    assert con.execute("SELECT sum(v) FROM t").fetchall() == [(32,)]
    assert con.execute("SELECT count(*) FROM read_json($1)", [_json(tmp_path)]).fetchall() == [(1,)]


def _json(folder):
    file = folder / "rows.json"
    file.write_text('{"id": 1}\n')
    return str(file)
