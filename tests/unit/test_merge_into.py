"""MERGE, UPDATE and DELETE as SELECTs: golden pairs, what the SELECT yields, and what is refused."""

from pathlib import Path

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakesql.errors import SQLError
from lakesql.sql.lexer import split
from lakesql.sql.merge_into import STAGE, Compiled, compile_delete, compile_merge, compile_update
from lakesql.sql.merge_names import Target
from lakesql.sql.nodes import Delete, Merge, Update
from lakesql.sql.stage import MOVES
from lakesql.sql.statements import parse

COLUMNS = {"id": "BIGINT", "name": "VARCHAR", "fare": "DOUBLE", "ts": "BIGINT", "city": "VARCHAR"}
SOURCE = ["id", "name", "fare", "ts", "city", "op"]
TRIPS = Target(
    "trips", COLUMNS, ("id",), ("city",), ("ts",), True, "SELECT * FROM stored", "id::VARCHAR", "'city=' || city"
)
FLAT = Target("trips", COLUMNS, ("id",), (), (), False, "SELECT * FROM stored")
GOLDEN = Path(__file__).parents[1] / "golden" / "sql"


def compiled(sql: str, target: Target = TRIPS, source=SOURCE, duplicates: str = "error") -> Compiled:
    statement = parse(sql, split(sql)[0], lambda name: name[-1].lower() == "trips")
    if isinstance(statement, Merge):
        return compile_merge(statement, target, source, duplicates)
    if isinstance(statement, Update):
        return compile_update(statement, target)
    assert isinstance(statement, Delete)
    return compile_delete(statement, target)


class Database:
    """Plain DuckDB tables in place of a Hudi table and a source; rows are (id, name, fare, ts, city[, op])."""

    def __init__(self, stored, source) -> None:
        self.con = duckdb.connect()
        self.con.execute(
            "CREATE TABLE stored (_hoodie_record_key VARCHAR, _hoodie_partition_path VARCHAR, "
            + ", ".join(f"{c} {k}" for c, k in COLUMNS.items())
            + ")"
        )
        self.con.execute("CREATE TABLE s (id BIGINT, name VARCHAR, fare DOUBLE, ts BIGINT, city VARCHAR, op VARCHAR)")
        for row in stored:
            self.con.execute("INSERT INTO stored VALUES (?, ?, ?, ?, ?, ?, ?)", [str(row[0]), f"city={row[4]}", *row])
        for row in source:
            self.con.execute("INSERT INTO s VALUES (?, ?, ?, ?, ?, ?)", list(row))

    def stage(self, plan: Compiled) -> None:
        self.con.execute(f"CREATE OR REPLACE TEMP TABLE {STAGE} AS {plan.stage_sql}")

    def complaints(self, plan: Compiled) -> list[str]:
        """What the checks find, with the keys filled in."""
        self.stage(plan)
        found = []
        for check in (*plan.checks, *plan.move_checks):
            keys = [k for (k,) in self.con.execute(check.sql).fetchall()]
            if keys:
                found.append(check.message.replace("{keys}", "; ".join(keys)))
        return found

    def rows(self, plan: Compiled) -> list[tuple]:
        """(op, id, name, fare, ts, city, record key), sorted."""
        self.stage(plan)
        relation = self.con.execute(
            f"SELECT __op, id, name, fare, ts, city, _hoodie_record_key FROM ({plan.rows_sql}) ORDER BY ALL"
        )
        return relation.fetchall()


STORED = [(1, "one", 1.0, 10, "sf"), (2, "two", 2.0, 10, "ny"), (3, "three", 3.0, 10, "sf")]
INCOMING = [
    (1, "uno", 1.5, 20, "sf", "u"),
    (2, "dos", 2.5, 20, "ny", "d"),
    (4, "cuatro", 4.5, 20, "la", "i"),
]


# ---------------------------------------------------------------- golden pairs


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.txt")), ids=lambda p: p.stem)
def test_statement_compiles_to_the_golden_select(path, regold):
    statement, _, rest = path.read_text(encoding="utf-8").partition("\n=====\n")
    plan = compiled(statement)
    checks = (*plan.checks, *plan.move_checks)
    parts = [plan.stage_sql, plan.rows_sql, plan.moving_rows_sql, *(f"{c.sql}\n-- {c.message}" for c in checks)]
    parts = [part for part in parts if part]
    now = "\n-----\n".join(parts) + "\n"
    if regold:
        path.write_text(f"{statement}\n=====\n{now}", encoding="utf-8")
    else:
        assert rest == now


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.txt")), ids=lambda p: p.stem)
def test_golden_selects_run_on_duckdb(path):
    statement = path.read_text(encoding="utf-8").partition("\n=====\n")[0]
    database = Database(STORED, INCOMING)
    plan = compiled(statement)
    assert database.complaints(plan) == []
    assert len(database.con.execute(f"SELECT count(*) FROM ({plan.rows_sql})").fetchall()) == 1


# ---------------------------------------------------------------- what the SELECT yields


def test_merge_updates_deletes_and_inserts_by_the_first_clause_that_applies():
    database = Database(STORED, INCOMING)
    plan = compiled(
        "MERGE INTO trips t USING s ON t.id = s.id AND t.city = s.city WHEN MATCHED AND s.op = 'd' THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    assert database.rows(plan) == [
        ("delete", 2, None, None, None, "ny", "2"),
        ("insert", 4, "cuatro", 4.5, 20, "la", None),
        ("upsert", 1, "uno", 1.5, 20, "sf", "1"),
    ]


def test_columns_not_set_keep_the_stored_value():
    database = Database(STORED, INCOMING)
    plan = compiled("MERGE INTO trips t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET t.fare = t.fare + s.fare")
    assert database.rows(plan) == [
        ("upsert", 1, "one", 2.5, 10, "sf", "1"),
        ("upsert", 2, "two", 4.5, 10, "ny", "2"),
    ]


def test_null_in_a_clause_condition_means_the_clause_does_not_apply():
    database = Database(STORED, [(1, "uno", None, 20, "sf", None), (5, "cinco", 5.0, 20, "sf", None)])
    plan = compiled(
        "MERGE INTO trips t USING s ON t.id = s.id WHEN MATCHED AND s.fare > 0 THEN DELETE "
        "WHEN MATCHED AND NOT s.fare > 0 THEN DELETE WHEN MATCHED THEN UPDATE SET name = 'neither' "
        "WHEN NOT MATCHED AND s.op = 'i' THEN INSERT *"
    )
    assert database.rows(plan) == [("upsert", 1, "neither", 1.0, 10, "sf", "1")]


def test_null_key_never_matches():
    database = Database(STORED, [(None, "none", 0.0, 20, "sf", "u")])
    plan = compiled("MERGE INTO trips t USING s ON t.id = s.id WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *")
    assert database.rows(plan) == [("insert", None, "none", 0.0, 20, "sf", None)]


def test_rows_without_source_are_updated_or_deleted():
    database = Database(STORED, INCOMING[:1])
    plan = compiled(
        "MERGE INTO trips t USING s ON t.id = s.id WHEN NOT MATCHED BY SOURCE AND t.city = 'sf' THEN UPDATE SET fare = 0 "
        "WHEN NOT MATCHED BY SOURCE THEN DELETE"
    )
    assert database.rows(plan) == [
        ("delete", 2, None, None, None, "ny", "2"),
        ("upsert", 3, "three", 0.0, 10, "sf", "3"),
    ]


def test_do_nothing_shields_rows_from_later_clauses():
    database = Database(STORED, INCOMING)
    plan = compiled(
        "MERGE INTO trips t USING s ON t.id = s.id WHEN MATCHED AND s.op = 'd' THEN DO NOTHING "
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN DO NOTHING"
    )
    assert database.rows(plan) == [("delete", 1, None, None, None, "sf", "1")]


def test_unqualified_names_and_using_columns_work():
    database = Database(STORED, INCOMING)
    plan = compiled("MERGE INTO trips USING s USING (id) WHEN MATCHED AND op = 'd' THEN DELETE")
    assert database.rows(plan) == [("delete", 2, None, None, None, "ny", "2")]


def test_subqueries_in_conditions_and_values_work():
    database = Database(STORED, INCOMING)
    plan = compiled(
        "MERGE INTO trips t USING (SELECT * FROM s WHERE op <> 'i') q ON t.id = q.id "
        "WHEN MATCHED AND q.id IN (SELECT min(id) FROM s) THEN UPDATE SET fare = (SELECT max(fare) FROM s WHERE s.op = 'i')"
    )
    assert database.rows(plan) == [("upsert", 1, "one", 4.5, 10, "sf", "1")]


def test_values_are_cast_to_the_columns_of_the_table_branch_by_branch():
    database = Database(STORED, INCOMING)
    plan = compiled(
        "MERGE INTO trips t USING s ON t.id = s.id WHEN MATCHED AND s.op = 'u' THEN UPDATE SET fare = '7', ts = 9007199254740993 "
        "WHEN MATCHED THEN UPDATE SET ts = 1.0"
    )
    assert [(r[1], r[3], r[4]) for r in database.rows(plan)] == [(1, 7.0, 9007199254740993), (2, 2.0, 1)]


def test_common_table_expressions_reach_the_source():
    database = Database(STORED, INCOMING)
    plan = compiled(
        "WITH d AS (SELECT id FROM s WHERE op = 'd') MERGE INTO trips t USING d ON t.id = d.id WHEN MATCHED THEN DELETE",
        source=["id"],
    )
    assert database.rows(plan) == [("delete", 2, None, None, None, "ny", "2")]


def test_backticks_and_spark_functions_are_translated():
    database = Database(STORED, INCOMING)
    plan = compiled(
        "MERGE INTO `trips` `t` USING `s` ON `t`.`id` = `s`.`id` WHEN MATCHED AND `s`.`op` <=> 'u' "
        "THEN UPDATE SET `name` = concat(nvl(`s`.`name`, \"none\"), '!')"
    )
    assert database.rows(plan) == [("upsert", 1, "uno!", 1.0, 10, "sf", "1")]


def test_update_gives_the_new_rows_with_their_keys():
    database = Database(STORED, [])
    plan = compiled("UPDATE trips SET fare = fare * 2, name = upper(name) WHERE city = 'sf' AND id < 3")
    assert database.rows(plan) == [("upsert", 1, "ONE", 2.0, 10, "sf", "1")]


def test_delete_gives_keys_and_partitions_only():
    database = Database(STORED, [])
    plan = compiled("DELETE FROM trips AS x WHERE x.id IN (SELECT max(id) FROM stored)")
    database.stage(plan)
    assert database.con.execute(f"SELECT * FROM {STAGE}").fetchall() == [(3, "sf", "delete", "3", "city=sf")]


# ---------------------------------------------------------------- duplicates and keys


TWICE = [(1, "first", 1.0, 30, "sf", "u"), (1, "second", 2.0, 20, "sf", "u"), (2, "dos", 2.5, 20, "ny", "u")]
UPSERT = "MERGE INTO trips t USING s ON t.id = s.id AND t.city = s.city WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"


def test_two_source_rows_for_one_row_are_named():
    assert Database(STORED, TWICE).complaints(compiled(UPSERT)) == [
        "trips: several source rows match the same row of the table: id=1, city=sf. Make the source unique, or SET "
        "lakesql.merge.duplicates = 'first', 'last' or 'ordering'."
    ]


def test_two_inserts_of_one_key_are_named():
    source = [(7, "a", 1.0, 1, "la", "i"), (7, "b", 1.0, 1, "la", "i"), (7, "c", 1.0, 1, "sf", "i")]
    found = Database(STORED, source).complaints(compiled(UPSERT))
    assert len(found) == 1
    assert "would insert the same key: id=7, city=la." in found[0]


def test_a_second_match_that_no_action_applies_to_is_no_duplicate():
    plan = compiled(
        "MERGE INTO trips t USING s ON t.id = s.id WHEN MATCHED AND s.name = 'first' THEN UPDATE SET fare = s.fare"
    )
    database = Database([(1, "one", 0.5, 10, "sf"), *STORED[1:]], TWICE)
    assert database.complaints(plan) == []
    assert [r[3] for r in database.rows(plan)] == [1.0]


def test_one_source_row_may_match_two_rows_of_the_table():
    stored = [(1, "one", 1.0, 10, "sf"), (1, "copy", 1.0, 10, "ny")]
    plan = compiled("MERGE INTO trips t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET fare = s.fare")
    database = Database(stored, [(1, "uno", 9.0, 20, "sf", "u")])
    assert database.complaints(plan) == []
    assert [(r[5], r[3]) for r in database.rows(plan)] == [("ny", 9.0), ("sf", 9.0)]


@pytest.mark.parametrize(("policy", "kept"), [("first", "first"), ("last", "second"), ("ordering", "first")])
def test_duplicate_policy_decides_which_source_row_counts(policy, kept):
    database = Database(STORED, TWICE)
    rows = database.rows(compiled(UPSERT, duplicates=policy))
    assert [(r[1], r[2]) for r in rows] == [(1, kept), (2, "dos")]


def test_ordering_policy_weighs_deletes_too():
    source = [(1, "old", 1.0, 20, "sf", "u"), (1, "gone", 1.0, 30, "sf", "d")]
    plan = compiled(
        "MERGE INTO trips t USING s ON t.id = s.id WHEN MATCHED AND s.op = 'd' THEN DELETE WHEN MATCHED THEN UPDATE SET *",
        duplicates="ordering",
    )
    assert [r[0] for r in Database(STORED, source).rows(plan)] == ["delete"]


def test_insert_of_a_key_that_exists_is_named_when_on_compares_more_than_the_key():
    plan = compiled("MERGE INTO trips t USING s ON t.id = s.id AND t.name = s.name WHEN NOT MATCHED THEN INSERT *")
    found = Database(STORED, [(1, "uno", 1.0, 20, "sf", "u")]).complaints(plan)
    assert len(found) == 1
    assert "because ON compares more than the key: id=1, city=sf." in found[0]


def test_insert_under_another_key_than_compared_is_checked():
    plan = compiled(
        "MERGE INTO trips t USING s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id, ts, city) VALUES (s.id - 3, s.ts, 'sf')"
    )
    found = Database(STORED, INCOMING).complaints(plan)
    assert len(found) == 1
    assert "id=1, city=sf" in found[0]


def test_no_look_up_of_inserted_keys_when_on_is_the_key():
    assert len(compiled(UPSERT).checks) == 3
    assert all("FROM stored" not in c.sql for c in compiled(UPSERT).checks)


def test_update_of_a_partition_column_deletes_the_row_there_and_inserts_it_here():
    plan = compiled("MERGE INTO trips t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *")
    database = Database(STORED, [(1, "uno", 1.0, 20, "la", "u"), (2, "dos", 2.0, 20, "ny", "u")])
    assert database.complaints(plan) == []
    database.stage(plan)
    written = database.con.execute(
        f"SELECT __op, id, _hoodie_partition_path, __lakesql_number FROM ({plan.moving_rows_sql})"
    ).fetchall()
    assert written[0][:3] == ("delete", 1, "city=sf")
    assert sorted(written[1:], key=lambda row: row[1])[0] == ("upsert", 1, "city=la", written[0][3])
    assert sorted(written[1:], key=lambda row: row[1])[1][:3] == ("upsert", 2, "city=ny")


def test_late_update_of_a_partition_column_stays_where_it_is():
    plan = compiled("MERGE INTO trips t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *")
    database = Database(STORED, [(1, "uno", 1.0, 5, "la", "u")])
    database.stage(plan)
    assert database.con.execute(MOVES).fetchall() == []
    assert database.con.execute(f"SELECT __op, _hoodie_partition_path FROM ({plan.moving_rows_sql})").fetchall() == [
        ("upsert", "city=sf")
    ]


def test_move_onto_a_row_of_the_same_key_is_named():
    stored = [(1, "one", 1.0, 10, "sf"), (1, "copy", 1.0, 10, "la")]
    plan = compiled("UPDATE trips SET city = 'la' WHERE city = 'sf'")
    found = Database(stored, []).complaints(plan)
    assert found == [
        "trips: UPDATE would move rows to a partition that has their key already: id=1, city=la. DELETE one of them "
        "first."
    ]
    both = Database(stored, []).complaints(compiled("UPDATE trips SET city = 'ny'"))
    assert len(both) == 1
    assert "would move several rows of one key to the same partition: id=1, city=ny." in both[0]


def test_rows_of_one_key_may_change_places():
    stored = [(1, "one", 1.0, 10, "sf"), (1, "copy", 1.0, 10, "la")]
    plan = compiled("UPDATE trips SET city = CASE city WHEN 'sf' THEN 'la' ELSE 'sf' END")
    assert Database(stored, []).complaints(plan) == []


def test_update_that_changes_a_record_key_is_named():
    plan = compiled("MERGE INTO trips t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET id = s.id + 10")
    found = Database(STORED, INCOMING[:1]).complaints(plan)
    assert found == [
        "trips: UPDATE would give a row another record key (id): id=11, city=sf. A row is found by its key, so it "
        "cannot change. Compare these columns in ON with values of their own types, or DELETE the row and INSERT it "
        "anew."
    ]


def test_setting_the_key_to_what_on_compares_it_with_is_no_move():
    plan = compiled(
        "MERGE INTO trips t USING s ON s.id = t.id WHEN MATCHED THEN UPDATE SET t.id = s.ID, fare = 0", FLAT
    )
    database = Database(STORED, INCOMING)
    assert database.complaints(plan) == []


# ---------------------------------------------------------------- refusals

REFUSED = [
    (
        "MERGE INTO trips t USING s ON t.name = s.name WHEN MATCHED THEN DELETE",
        "the ON condition does not compare the record key column id of trips with the source. Rows are written by key: "
        "ON must contain t.id = s.id (more conditions may follow with AND).",
    ),
    (
        "MERGE INTO trips t USING s ON t.id = s.id OR t.name = s.name WHEN MATCHED THEN DELETE",
        "the ON condition does not compare the record key column id",
    ),
    ("MERGE INTO trips t USING s ON t.id = t.ts WHEN MATCHED THEN DELETE", "does not compare the record key column id"),
    (
        "MERGE INTO trips t USING s ON t.id + 1 = s.id WHEN MATCHED THEN DELETE",
        "does not compare the record key column",
    ),
    (
        "MERGE INTO trips t USING (SELECT id FROM s) q ON t.id = q.id WHEN MATCHED THEN UPDATE SET *",
        "UPDATE SET * needs every column of trips in the source; missing: name, fare, ts, city.",
    ),
    (
        "MERGE INTO trips t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET nmae = 'x'",
        "trips has no column nmae; did you mean name?",
    ),
    (
        "MERGE INTO trips t USING s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (name, ts) VALUES (s.name, s.ts)",
        "INSERT does not give the record key column id of trips a value",
    ),
    (
        "MERGE INTO trips t USING s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)",
        "INSERT does not give the ordering column ts of trips a value",
    ),
    (
        "MERGE INTO trips t USING s ON t.id = s.id WHEN NOT MATCHED THEN INSERT VALUES (s.id)",
        "INSERT VALUES has 1 value, trips has 5 columns: id, name, fare, ts, city.",
    ),
    (
        "MERGE INTO trips t USING s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id, ts) VALUES (t.id, s.ts)",
        "WHEN NOT MATCHED cannot refer to t.id: there is no row of t there.",
    ),
    (
        "MERGE INTO trips t USING s ON t.id = s.id WHEN NOT MATCHED BY SOURCE THEN UPDATE SET fare = s.fare",
        "WHEN NOT MATCHED BY SOURCE cannot refer to s.fare: there is no row of s there.",
    ),
    ("MERGE INTO trips s USING s ON s.id = s.id WHEN MATCHED THEN DELETE", "target and source are both called s"),
    (
        "MERGE INTO trips t USING s ON t.id = s.id WHEN MATCHED THEN DELETE WHEN MATCHED THEN UPDATE SET *",
        "this clause never applies: an earlier one of its kind has no condition\nline 1, column 68:",
    ),
    ("MERGE INTO trips t USING s USING (nope) WHEN MATCHED THEN DELETE", "trips has no column nope"),
    (
        "UPDATE trips SET id = 5",
        "UPDATE cannot set id: it is a record key column of trips, and a row is found by its key.",
    ),
    ("UPDATE trips SET name.first = 'x'", "column name has no field first; it is VARCHAR, not a STRUCT."),
    ("UPDATE trips SET nme = 'x'", "trips has no column nme; did you mean name?"),
    ("UPDATE trips SET _hoodie_commit_time = 'x'", "_hoodie_commit_time is a meta column"),
]


@pytest.mark.parametrize(("sql", "message"), REFUSED)
def test_statement_is_refused_with_its_reason(sql, message):
    source = ["id"] if "(SELECT id" in sql else SOURCE
    with pytest.raises(SQLError) as caught:
        compiled(sql, source=source)
    assert message in str(caught.value)


def test_duplicate_policy_by_ordering_needs_an_ordering_field():
    with pytest.raises(SQLError, match="trips has no ordering field"):
        compiled(UPSERT, FLAT, duplicates="ordering")


# ---------------------------------------------------------------- against a model in Python

CONDITIONS = {
    "": lambda t, s: True,  # noqa: ARG005
    "s.fare > 2": lambda t, s: None if s is None or s[2] is None else s[2] > 2,  # noqa: ARG005
    "t.fare < 2": lambda t, s: None if t is None or t[2] is None else t[2] < 2,  # noqa: ARG005
    "s.fare > t.fare": lambda t, s: None if None in (t, s) or None in (t[2], s[2]) else s[2] > t[2],
}
CLAUSES = {
    "matched": ("update", "delete", "nothing"),
    "not_matched": ("insert", "nothing"),
    "by_source": ("update", "delete", "nothing"),
}
WORDS = {"matched": "MATCHED", "not_matched": "NOT MATCHED", "by_source": "NOT MATCHED BY SOURCE"}
ACTIONS = {"delete": "DELETE", "nothing": "DO NOTHING", "insert": "INSERT *"}


@st.composite
def clause_lists(draw):
    found = []
    for kind in draw(st.lists(st.sampled_from(sorted(CLAUSES)), min_size=1, max_size=5)):
        usable = {"matched": list(CONDITIONS), "not_matched": ["", "s.fare > 2"], "by_source": ["", "t.fare < 2"]}[kind]
        if any(k == kind and c == "" for k, _, c in found):
            continue  # nothing is reached behind a clause without condition
        found.append((kind, draw(st.sampled_from(CLAUSES[kind])), draw(st.sampled_from(usable))))
    return found


def model(stored, source, clauses):
    """Rows as `Database.rows` gives them, one pair after the other."""
    expected = []

    def decide(kind, t, s):
        for k, action, condition in clauses:
            if k == kind and CONDITIONS[condition](t, s) is True:
                if action == "delete":
                    expected.append(("delete", t[0], None, None, None, t[4], str(t[0])))
                elif action == "insert":
                    expected.append(("insert", *s[:5], None))
                elif action == "update":
                    fare = s[2] if kind == "matched" else -1.0
                    if fare != t[2]:  # a row that is stored like this already is not written
                        expected.append(("upsert", t[0], t[1], fare, t[3], t[4], str(t[0])))
                return

    for s in source:
        matches = [t for t in stored if t[0] == s[0]]
        for t in matches:
            decide("matched", t, s)
        if not matches:
            decide("not_matched", None, s)
    for t in stored:
        if all(s[0] != t[0] for s in source):
            decide("by_source", t, None)
    return sorted(expected, key=repr)


fares = st.one_of(st.none(), st.sampled_from([0.0, 1.0, 2.0, 3.0]))
keyed = st.dictionaries(st.integers(0, 4), fares, max_size=5)


@settings(max_examples=60, deadline=None)
@given(stored=keyed, source=keyed, clauses=clause_lists())
def test_compiled_merge_equals_a_merge_row_by_row(stored, source, clauses):
    before = [(k, "t", fare, 1, "c") for k, fare in stored.items()]
    incoming = [(k, "s", fare, 2, "c", "u") for k, fare in source.items()]
    whens = []
    for kind, action, condition in clauses:
        update = "UPDATE SET fare = s.fare" if kind == "matched" else "UPDATE SET fare = -1"
        also = f" AND {condition}" if condition else ""
        whens.append(f"WHEN {WORDS[kind]}{also} THEN {ACTIONS.get(action, update)}")
    plan = compiled(f"MERGE INTO trips t USING s ON t.id = s.id {' '.join(whens)}")
    database = Database(before, incoming)
    assert sorted(database.rows(plan), key=repr) == model(before, incoming, clauses)
    database.con.close()
