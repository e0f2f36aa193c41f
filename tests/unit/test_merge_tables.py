"""MERGE through a connection on both table types: every clause, every kind of source and ON, against a model in Python."""

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lakesql
from lakesql.errors import SQLError, TableError
from tests.sql_tables import AB, all_rows

TYPES = ("cow", "mor")


def table(
    con,
    kind,
    name="t",
    *,
    keys="id",
    ordering=True,
    partitions="city",
    columns="id STRING, v BIGINT, ts BIGINT, city STRING",
):
    properties = [f"type = '{kind}'"]
    properties += [f"primaryKey = '{keys}'"] if keys else []
    properties += ["orderingFields = 'ts'"] if ordering else []
    by = f"PARTITIONED BY ({partitions})" if partitions else ""
    con.sql(f"CREATE TABLE {name} ({columns}) USING hudi {by} TBLPROPERTIES ({', '.join(properties)})")


# ---------------------------------------------------------------- every clause, against a model

CONDITIONS = {
    "": lambda t, s: True,  # noqa: ARG005
    "s.v > 2": lambda t, s: s is not None and s["v"] is not None and s["v"] > 2,  # noqa: ARG005
    "t.v < 2": lambda t, s: t is not None and t["v"] is not None and t["v"] < 2,  # noqa: ARG005
    "s.v > t.v": lambda t, s: None not in (t, s) and None not in (t["v"], s["v"]) and s["v"] > t["v"],
}
KINDS = {
    "MATCHED": (
        ("UPDATE SET *", "UPDATE SET v = coalesce(s.v, 0) + coalesce(t.v, 0)", "DELETE", "DO NOTHING"),
        tuple(CONDITIONS),
    ),
    "NOT MATCHED": (("INSERT *", "INSERT (id, ts, city) VALUES (s.id, s.ts, s.city)", "DO NOTHING"), ("", "s.v > 2")),
    "NOT MATCHED BY SOURCE": (("UPDATE SET v = -1", "DELETE", "DO NOTHING"), ("", "t.v < 2")),
}


@st.composite
def clause_lists(draw):
    found = []
    for kind in draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=6)):
        if any(k == kind and not c for k, c, _ in found):
            continue  # nothing is reached behind a clause without condition
        actions, conditions = KINDS[kind]
        found.append((kind, draw(st.sampled_from(conditions)), draw(st.sampled_from(actions))))
    return found


def merged(stored, source, clauses):
    """The table afterwards, by key: the first clause that fits decides; a row of a smaller ts loses (event time)."""
    after = dict(stored)
    for key in {*stored, *source}:
        t, s = stored.get(key), source.get(key)
        kind = "NOT MATCHED" if t is None else "NOT MATCHED BY SOURCE" if s is None else "MATCHED"
        action = next((a for k, c, a in clauses if k == kind and CONDITIONS[c](t, s)), "DO NOTHING")
        if action == "DELETE":
            del after[key]
        elif action == "INSERT *":
            after[key] = s
        elif action.startswith("INSERT"):
            after[key] = s | {"v": None}
        elif action == "UPDATE SET *":
            after[key] = s if s["ts"] >= t["ts"] else t
        elif action == "UPDATE SET v = -1":
            after[key] = t | {"v": -1}
        elif action.startswith("UPDATE"):
            after[key] = t | {"v": (s["v"] or 0) + (t["v"] or 0)}
    return after


values = st.fixed_dictionaries(
    {"v": st.sampled_from([None, 0, 1, 2, 3]), "ts": st.sampled_from([1, 2, 3]), "city": st.sampled_from(["sf", "ny"])}
)
keyed = st.dictionaries(st.sampled_from("abcd"), values, max_size=4)


def as_arrow(rows):
    fields = [("id", pa.string()), ("v", pa.int64()), ("ts", pa.int64()), ("city", pa.string())]
    return pa.Table.from_pylist([{"id": k, **row} for k, row in rows.items()], pa.schema(fields))


def versions(stored, expected):
    """What RETURNING merge_action, id, old.v, new.v, new.city gives: the rows that differ."""
    found = []
    for key in {*stored, *expected}:
        old, new = stored.get(key), expected.get(key)
        if old != new:
            action = "INSERT" if old is None else "DELETE" if new is None else "UPDATE"
            found.append((action, key, old and old["v"], new and new["v"], new and new["city"]))
    return sorted(found, key=repr)


@pytest.mark.parametrize("kind", TYPES)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stored=keyed, source=keyed, clauses=clause_lists())
def test_merge_leaves_and_returns_the_rows_of_a_merge_row_by_row(kind, tmp_path_factory, stored, source, clauses):
    with lakesql.connect(warehouse=str(tmp_path_factory.mktemp("lake"))) as con:
        table(con, kind)
        before, incoming = as_arrow(stored), as_arrow(source)  # noqa: F841  sources of the statements
        con.sql("INSERT INTO t SELECT * FROM before")
        whens = " ".join(f"WHEN {k}{f' AND {c}' if c else ''} THEN {a}" for k, c, a in clauses)
        sql = f"MERGE INTO t USING incoming s ON t.id = s.id {whens}"
        fates = [row[3] for row in con.sql(f"EXPLAIN (FATES) {sql}").fetchall()]
        returned = con.sql(f"{sql} RETURNING merge_action, id, old.v, new.v, new.city").fetchall()
        expected = merged(stored, source, clauses)
        assert all_rows(con, "t", "id, v, ts, city") == sorted(
            ((k, row["v"], row["ts"], row["city"]) for k, row in expected.items()), key=lambda r: r[0]
        )
        changes = versions(stored, expected)
        assert sorted(returned, key=repr) == changes
        words = {"inserted": "INSERT", "deleted": "DELETE", "updated": "UPDATE", "moved": "UPDATE"}
        assert sorted(words[f] for f in fates if f in words) == sorted(change[0] for change in changes)


def test_error_clause_stops_the_statement_and_names_the_rows(trips):
    with pytest.raises(TableError) as caught:
        trips.sql(
            "MERGE INTO trips t USING (VALUES ('a', 5), ('z', 6)) s(id, v) ON t.id = s.id WHEN MATCHED AND s.v > 7 THEN "
            "DELETE WHEN MATCHED THEN ERROR 'not below ' || t.v WHEN NOT MATCHED THEN ERROR"
        )
    assert str(caught.value) == (
        "trips: WHEN ... THEN ERROR: a row that must not be there (id=z, city=NULL, clause 3); not below 1 (id=a, "
        "city=sf, clause 2). Nothing was written."
    )
    trips.sql(
        "MERGE INTO trips t USING (SELECT 'a' AS id) s ON t.id = s.id WHEN NOT MATCHED THEN ERROR WHEN MATCHED THEN DELETE"
    )
    assert all_rows(trips) == AB[1:]


# ---------------------------------------------------------------- sources

UPSERT = "ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT (id, v, ts, city) VALUES (s.id, s.v, 1, 'la')"


@pytest.mark.parametrize(
    "sql",
    [
        "MERGE INTO trips t USING (SELECT * FROM given) s",
        "WITH w AS (SELECT * FROM given) MERGE INTO trips t USING w s",
        "MERGE INTO trips t USING (WITH w AS (SELECT * FROM given) SELECT * FROM w) s",
        "MERGE INTO trips t USING (VALUES ('a', 7), ('c', 8)) AS s(id, v)",
        "MERGE INTO trips t USING (SELECT chr(97 + 2 * i::INT) AS id, 7 + i AS v FROM range(2) r(i)) s",
        "MERGE INTO trips t USING arrow_rows s",
        "MERGE INTO trips t USING frame s",
        "MERGE INTO trips t USING other s",
        "MERGE INTO trips t USING hudi_scan('other') AS s",
    ],
)
def test_any_source_will_do(trips, sql):
    trips.sql("CREATE TABLE other (id STRING, v BIGINT) USING hudi TBLPROPERTIES (primaryKey = 'id')")
    trips.sql("INSERT INTO other VALUES ('a', 7), ('c', 8)")
    trips.sql("CREATE TEMP TABLE given AS SELECT id, v FROM other")
    arrow_rows = pa.table({"id": ["a", "c"], "v": [7, 8]})
    frame = arrow_rows.to_pandas()  # noqa: F841
    trips.sql(f"{sql} {UPSERT}")
    assert all_rows(trips) == [("a", 7, 10, "sf"), ("b", 2, 10, "ny"), ("c", 8, 1, "la")]


def test_the_target_itself_is_a_source(trips):
    trips.sql(
        "MERGE INTO trips t USING trips s ON t.id = s.id AND t.city = s.city WHEN MATCHED AND t.v = 1 THEN UPDATE SET v = s.v * 10 "
        "WHEN MATCHED THEN DELETE"
    )
    assert all_rows(trips) == [("a", 10, 10, "sf")]


# ---------------------------------------------------------------- ON


@pytest.mark.parametrize(
    ("on", "changed"),
    [
        ("t.id = s.id AND t.city = s.city", ["a"]),
        ("t.id = s.id AND t.v < s.v", ["a", "b"]),
        ("s.id = t.id AND t.city IN ('ny', 'la')", ["b"]),
        ("(t.id = s.id) AND (t.city = s.city OR s.v > 8)", ["a", "b"]),
        ("t.id IS NOT DISTINCT FROM s.id", ["a", "b"]),
        ("CAST(t.id AS VARCHAR) = lower(s.id)", ["a", "b"]),
        ("t.id = s.id AND EXISTS (SELECT 1 FROM trips x WHERE x.v = t.v + 1)", ["a"]),
    ],
)
def test_on_compares_keys_and_the_rest_filters(trips, on, changed):
    trips.sql(
        f"MERGE INTO trips t USING (VALUES ('a', 8, 'sf'), ('b', 9, 'sf')) s(id, v, city) ON {on} WHEN MATCHED THEN UPDATE SET v = 0"
    )
    assert [r[0] for r in all_rows(trips) if r[1] == 0] == changed


@pytest.mark.parametrize("kind", TYPES)
def test_composite_keys_of_other_types_match_under_casts(con, kind):
    table(con, kind, keys="a,b", ordering=False, partitions="", columns="a BIGINT, b DATE, v STRING")
    con.sql("INSERT INTO t VALUES (1, '2024-01-01', 'x'), (1, '2024-01-02', 'y')")
    con.sql(
        "MERGE INTO t USING (VALUES ('1', '2024-01-02', 'new'), ('2', '2024-01-02', 'two')) s(a, b, v) "
        "ON t.a = CAST(s.a AS INT) AND CAST(t.b AS VARCHAR) = s.b WHEN MATCHED THEN UPDATE SET t.v = s.v "
        "WHEN NOT MATCHED THEN INSERT (a, b, v) VALUES (s.a, s.b, s.v)"
    )
    assert con.sql("SELECT a, b::VARCHAR, v FROM t ORDER BY ALL").fetchall() == [
        (1, "2024-01-01", "x"),
        (1, "2024-01-02", "new"),
        (2, "2024-01-02", "two"),
    ]
    with pytest.raises(SQLError, match="does not compare the record key column b"):
        con.sql("MERGE INTO t USING (SELECT 1 AS a) s ON t.a = s.a WHEN MATCHED THEN DELETE")


@pytest.mark.parametrize("kind", TYPES)
def test_table_without_keys_takes_any_condition(con, kind):
    table(con, kind, keys="", ordering=False, partitions="", columns="name STRING, v BIGINT")
    con.sql("INSERT INTO t VALUES ('x', 1), ('x', 2), ('y', 30)")
    con.sql(
        "MERGE INTO t USING (VALUES (10, 'low'), (100, 'none')) s(top, word) ON t.v < s.top AND s.top < 50 "
        "WHEN MATCHED AND t.v = 2 THEN DELETE WHEN MATCHED THEN UPDATE SET name = s.word "
        "WHEN NOT MATCHED THEN INSERT (name, v) VALUES (s.word, s.top) WHEN NOT MATCHED BY SOURCE THEN UPDATE SET v = t.v + 1"
    )
    assert con.sql("SELECT name, v FROM t ORDER BY ALL").fetchall() == [("low", 1), ("none", 100), ("y", 31)]
    con.sql("UPDATE t SET v = 0 WHERE name = 'y'")
    con.sql("DELETE FROM t WHERE v > 0")
    assert con.sql("SELECT name, v FROM t").fetchall() == [("y", 0)]


# ---------------------------------------------------------------- duplicates


def test_duplicates_are_no_false_alarm_where_one_clause_acts(trips):
    trips.sql(
        "MERGE INTO trips t USING (VALUES ('a', 7), ('a', 8), ('a', 9), ('z', 1), ('z', 2)) s(id, v) ON t.id = s.id "
        "WHEN MATCHED AND s.v = 8 THEN DO NOTHING WHEN MATCHED AND s.v < 9 THEN UPDATE SET v = s.v"
    )
    assert all_rows(trips)[0] == ("a", 7, 10, "sf")


def test_duplicates_name_up_to_ten_keys_and_the_setting(trips):
    with pytest.raises(TableError) as caught:
        trips.sql(
            "MERGE INTO trips t USING (SELECT format('k{:02d}', i % 12) AS id, i AS v, 1 AS ts, 'la' AS city FROM range(24) r(i)) s "
            "ON t.id = s.id WHEN NOT MATCHED THEN INSERT *"
        )
    named = "; ".join(f"id=k{i:02d}, city=la" for i in range(10))
    assert str(caught.value) == (
        f"trips: several source rows would insert the same key: {named} and more. Make the source unique, or SET "
        "lakesql.merge.duplicates = 'first', 'last' or 'ordering'. Nothing was written."
    )


@pytest.mark.parametrize(("policy", "kept"), [("first", 5), ("last", 7), ("ordering", 6)])
def test_duplicate_policy_chooses_for_updates_and_inserts_alike(trips, policy, kept):
    trips.sql(f"SET lakesql.merge.duplicates = {policy}")
    trips.sql(
        "MERGE INTO trips t USING (SELECT id, v, ts, 'sf' AS city FROM (VALUES (5, 20), (6, 30), (7, 25)) x(v, ts), (VALUES ('a'), ('c')) y(id)) s "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    assert all_rows(trips, columns="id, v") == [("a", kept), ("b", 2), ("c", kept)]


# ---------------------------------------------------------------- struct fields


@pytest.mark.parametrize("kind", TYPES)
def test_fields_of_a_struct_are_set_and_the_others_stay(con, kind):
    table(
        con,
        kind,
        partitions="",
        columns="id STRING, ts BIGINT, addr STRUCT<city: STRING, geo: STRUCT<lat: DOUBLE, lon: DOUBLE>>",
    )
    con.sql("INSERT INTO t VALUES ('a', 1, {'city': 'x', 'geo': {'lat': 1, 'lon': 2}}), ('b', 1, NULL)")
    con.sql(
        "MERGE INTO t USING (VALUES ('a', 'sf'), ('b', 'ny')) s(id, city) ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET t.addr.city = s.city, addr.geo.lat = t.addr.geo.lat + 1"
    )
    assert con.sql("SELECT addr FROM t ORDER BY id").fetchall() == [
        ({"city": "sf", "geo": {"lat": 2.0, "lon": 2.0}},),
        ({"city": "ny", "geo": {"lat": None, "lon": None}},),
    ]
    con.sql("UPDATE t SET addr.city = NULL WHERE addr.geo.lon = 2")
    assert con.sql("SELECT addr.city FROM t ORDER BY id").fetchall() == [(None,), ("ny",)]
    with pytest.raises(SQLError, match=r"column addr.geo has no field alt; its fields are lat, lon\."):
        con.sql("UPDATE t SET addr.geo.alt = 1")


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("BIGINT", ("9", "10", "8")),
        ("DOUBLE", ("1.25", "1.5", "1.125")),
        ("TIMESTAMP", ("'2024-01-09'", "'2024-01-10'", "'2024-01-08'")),
        ("STRING", ("'1.9'", "'1.10'", "'1.8'")),
    ],
)
def test_mysql_change_events_are_ordered_by_a_sequence_of_any_type(con, kind, values):
    con.sql("SET hoodie.write.table.version = 6")
    payload = "org.apache.hudi.common.model.debezium.MySqlDebeziumAvroPayload"
    con.sql(
        f"CREATE TABLE t (id STRING, v BIGINT, ts {kind}) USING hudi TBLPROPERTIES (type = 'mor', primaryKey = 'id', "
        f"orderingFields = 'ts', payloadClass = '{payload}')"
    )
    middle, large, small = values
    con.sql(f"INSERT INTO t VALUES ('a', 1, {middle}), ('b', 1, {middle}), ('c', 1, NULL)")
    source = f"('a', 2, {large}), ('b', 2, {small}), ('c', 2, {small})"
    con.sql(
        f"MERGE INTO t USING (SELECT id, v, ts::{kind} AS ts FROM (VALUES {source}) s(id, v, ts)) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET *"
    )
    expected = [("a", 2), ("b", 1), ("c", 2)]
    assert con.sql("SELECT id, v FROM t ORDER BY id").fetchall() == expected
    con.sql("RUN COMPACTION ON t")
    assert con.sql("SELECT id, v FROM t ORDER BY id").fetchall() == expected
