"""The SQL form of each merge mode equals a pairwise fold over the records in processing order (hudi-format 5.3)."""

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakesql.table.merge import COMMIT_TIME_DELETE, DELETE, MODES, UPSERT, winners_sql

# (kind, ordering value): a commit-time delete has none
RECORDS = st.lists(
    st.one_of(
        st.tuples(st.just(UPSERT), st.one_of(st.none(), st.integers(0, 4))),
        st.tuples(st.just(DELETE), st.integers(0, 4)),
        st.tuples(st.just(COMMIT_TIME_DELETE), st.none()),
    ),
    min_size=1,
    max_size=7,
)


def order(value: int | None) -> tuple[bool, int]:
    return value is not None, value or 0


def fold(mode: str, records: list[tuple[int, int | None]]) -> int:
    """Position of the survivor when records are merged one after the other."""
    kept = 0
    for i, (kind, value) in enumerate(records[1:], 1):
        kept_kind, kept_value = records[kept]
        if mode == "COMMIT_TIME_ORDERING":
            kept = i
        elif kept_kind == COMMIT_TIME_DELETE and kind == DELETE:
            continue  # a commit-time delete stays until an upsert comes
        elif COMMIT_TIME_DELETE in (kind, kept_kind) or order(value) >= order(kept_value):
            kept = i
    return kept


@pytest.mark.parametrize("mode", sorted(MODES))
@settings(max_examples=150, deadline=None, derandomize=True)
@given(keys=st.lists(RECORDS, min_size=1, max_size=4))
def test_sql_of_a_merge_mode_equals_the_pairwise_fold(mode: str, keys: list[list[tuple[int, int | None]]]) -> None:
    rows = [(k, i, kind, value) for k, records in enumerate(keys) for i, (kind, value) in enumerate(records)]
    con = duckdb.connect()
    con.execute("CREATE TABLE log (slot INTEGER, key VARCHAR, seq BIGINT, kind TINYINT, part INTEGER, ord_0 BIGINT)")
    con.executemany(
        "INSERT INTO log VALUES (0, ?, ?, ?, 0, ?)", [(str(k), i, kind, value) for k, i, kind, value in rows]
    )
    sql = winners_sql(MODES[mode], 1, "log", any(kind == COMMIT_TIME_DELETE for _, _, kind, _ in rows))
    got = {key: (seq, kind) for _, key, seq, kind, *_ in con.execute(sql).fetchall()}
    want = {}
    for k, records in enumerate(keys):
        at = fold(mode, records)
        want[str(k)] = at, records[at][0]
    if mode == "EVENT_TIME_ORDERING":
        assert got == want
    else:
        assert {k: v[0] for k, v in got.items()} == {k: v[0] for k, v in want.items()}
