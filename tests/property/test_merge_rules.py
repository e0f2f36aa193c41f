"""Every merge rule on columns equals a pairwise fold, and a person's own merger gives one result on both table types."""

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakesql
from lakesql.table import mergers
from lakesql.table.fold import States, fold, meet, states_of
from lakesql.table.merge import (
    _VERSION_8,
    ALWAYS,
    COMMIT_TIME_DELETE,
    DEFAULTS,
    DELETE,
    FROM_EITHER,
    NEVER,
    NEWER,
    NOT_OLDER,
    PAYLOADS,
    RULES,
    UPSERT,
    Rule,
    Step,
    _filling,
    keeping_values,
)
from lakesql.table.state import TableState
from lakesql.write.batch import materialise
from lakesql.write.plan import BATCH
from lakesql.write.settings import WriteConfig
from lakesql.write.verbs import VERBS, rules_of
from tests.writing import table as new_state

COLUMNS = 2
PARTIAL = {f"{name} filled": _filling(rule, DEFAULTS, FROM_EITHER) for name, rule in RULES.items()}
LACKING = {f"{name} with partial blocks": keeping_values(rule) for name, rule in RULES.items()}
EVERY: Mapping[str, Rule] = {
    **RULES,
    **PARTIAL,
    **LACKING,
    **PAYLOADS,
    **{f"{name} of version 8": rule for name, rule in _VERSION_8.items()},
}


@dataclass(frozen=True)
class Version:
    """A version of a record. `values` are texts that tell which version they are from, None where absent."""

    kind: int
    order: int
    values: tuple[str | None, ...] = ()


def wins(how: str, older: Version, newer: Version) -> bool:
    return {ALWAYS: True, NEVER: False, NEWER: newer.order > older.order, NOT_OLDER: newer.order >= older.order}[how]


def pairwise(step: Step, older: Version, newer: Version) -> Version:
    """The meaning of a step, for one pair."""
    if older.kind == newer.kind == UPSERT:
        first, second = (newer, older) if wins(step.row, older, newer) else (older, newer)
        fills = step.fill == FROM_EITHER or (step.fill and first is newer)
        filled = tuple(b if a is None else a for a, b in zip(first.values, second.values, strict=True))
        return replace(first, values=filled) if fills else first
    if newer.kind == UPSERT:
        return newer if older.kind == COMMIT_TIME_DELETE or wins(step.revive, older, newer) else older
    if older.kind == UPSERT:
        return newer if newer.kind == COMMIT_TIME_DELETE or wins(step.delete, older, newer) else older
    if step.delete_twice == NOT_OLDER and COMMIT_TIME_DELETE in (older.kind, newer.kind):
        return newer if newer.kind == COMMIT_TIME_DELETE else older
    return newer if wins(step.delete_twice, older, newer) else older


def folded(step: Step, versions: list[Version]) -> Version:
    merged = versions[0]
    for version in versions[1:]:
        merged = pairwise(step, merged, version)
    return merged


Keys = list[list[tuple[tuple[int, int], list[bool]]]]
KINDS = st.tuples(st.sampled_from([UPSERT, UPSERT, DELETE, COMMIT_TIME_DELETE]), st.integers(0, 3))
RECORD = st.tuples(KINDS, st.lists(st.booleans(), min_size=COLUMNS, max_size=COLUMNS))
KEY = st.lists(RECORD, min_size=1, max_size=6)


def versions_of(keys: Keys) -> list[list[Version]]:
    made = []
    for k, records in enumerate(keys):
        texts = [
            [None if gone else f"{k}.{i}.{c}" for c, gone in enumerate(absent)] for i, (_, absent) in enumerate(records)
        ]
        made.append(
            [
                Version(kind, order if kind != COMMIT_TIME_DELETE else 0, tuple(text) if kind == UPSERT else ())
                for ((kind, order), _), text in zip(records, texts, strict=True)
            ]
        )
    return made


class Columns:
    """The same versions as the vectorised form wants them: numbered, one array each."""

    def __init__(self, keys: list[list[Version]]) -> None:
        self.flat = [version for versions in keys for version in versions]
        self.starts = np.cumsum([0, *(len(versions) for versions in keys)])
        self.kind = np.array([v.kind for v in self.flat], np.int8)
        self.rank = np.array([v.order for v in self.flat], np.int64)
        self.absent = np.array([[v is None for v in (x.values or (None,) * COLUMNS)] for x in self.flat], bool)

    def fold(self, step: Step, first: np.ndarray, last: np.ndarray) -> States:
        """The states of version `first[i]` to `last[i]` of each key merged."""
        order = np.concatenate([np.arange(a, b) for a, b in zip(first, last, strict=True)])
        starts = np.concatenate([[0], np.cumsum(last - first)])
        return fold(step, order, starts, self.kind, self.rank, self.absent)

    def told(self, states: States) -> list[Version]:
        """States as versions."""
        found = []
        for kind, rank, source in zip(states.kind, states.rank, states.source, strict=True):
            values = tuple(self.flat[n].values[c] for c, n in enumerate(source)) if kind == UPSERT else ()
            found.append(Version(int(kind), int(rank), values))
        return found


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("place", ["batch", "log", "write"])
@settings(max_examples=40, deadline=None, derandomize=True)
@given(keys=st.lists(KEY, min_size=1, max_size=4))
def test_fold_on_columns_equals_the_pairwise_fold(name: str, place: str, keys: Keys) -> None:
    step = getattr(EVERY[name], place)
    versions = versions_of(keys)
    columns = Columns(versions)
    states = columns.fold(step, columns.starts[:-1], columns.starts[1:])
    assert columns.told(states) == [folded(step, v) for v in versions]


@pytest.mark.parametrize("name", EVERY)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(keys=st.lists(KEY.filter(lambda k: len(k) > 1 and k[0][0][0] == UPSERT), min_size=1, max_size=4), data=st.data())
def test_base_row_meets_the_folded_log_as_pairs_would(name: str, keys: Keys, data: st.DataObject) -> None:
    """The versions of a key are cut into a base row and logs of any length, each of which is folded by itself."""
    rule = EVERY[name]
    versions = versions_of(keys)
    columns = Columns(versions)
    first, end = columns.starts[:-1], columns.starts[1:]
    cut = np.array([data.draw(st.integers(a + 2, b)) for a, b in zip(first, end, strict=True)])
    base = states_of(first, columns.kind, columns.rank, COLUMNS)
    met = meet(rule.base, base, columns.fold(rule.log, first + 1, cut), columns.absent)
    want = [
        pairwise(rule.base, v[0], folded(rule.log, v[1 : c - a])) for v, a, c in zip(versions, first, cut, strict=True)
    ]
    assert columns.told(met) == want


# ---------------------------------------------------------------- rows of one batch

ROWS = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from(["upsert", "delete"]), st.one_of(st.none(), st.integers(0, 3)), st.booleans()),
    min_size=2,
    max_size=7,
)  # fmt: skip
BATCH_RULES = [name for name, rule in EVERY.items() if not rule.sequence and "partial blocks" not in name]


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> TableState:
    return new_state(tmp_path_factory.mktemp("batches") / "t", partitioned_by=[])


@pytest.mark.parametrize("name", BATCH_RULES)
@settings(max_examples=15, deadline=None, derandomize=True)
@given(given_rows=ROWS)
def test_batch_is_reduced_as_pairs_would(
    name: str, given_rows: list[tuple[str, str, int | None, bool]], state: TableState
) -> None:
    """An ordering value of None is the smallest; an unconditional delete voids what comes before it.

    The rows hold no unavailable markers, so only what is filled by defaults is filled.
    """
    rule = EVERY[name]
    con = duckdb.connect()
    rules = replace(rules_of(con, state, VERBS["upsert"], WriteConfig()), merge=rule)
    texts = [
        f"({i}, '{key}', {'NULL' if gone else i}, {'NULL' if ts is None else ts}, '{op}')"
        for i, (key, op, ts, gone) in enumerate(given_rows)
    ]
    sql = f"SELECT id, 'x' AS city, v, ts, __op FROM (VALUES {', '.join(texts)}) t(i, id, v, ts, __op) ORDER BY i"
    materialise(con, state, sql, rules, {})
    got = con.execute(f"SELECT id, __lakesql_op = 2, v, ts FROM {BATCH} ORDER BY 1").fetchall()
    step = replace(rule.batch, delete=rule.batch.row, revive=rule.batch.row)
    want = []
    for key in sorted({row[0] for row in given_rows}):
        versions = []
        for i, (k, op, ts, gone) in enumerate(given_rows):
            if k != key:
                continue
            kind = COMMIT_TIME_DELETE if op == "delete" else UPSERT
            values = (None if gone else str(i), None if ts is None else str(ts))
            versions.append(Version(kind, -1 if ts is None else ts, values if kind == UPSERT else ()))
        merged = folded(step if rule.absent == DEFAULTS else replace(step, fill=""), versions)
        row = [v if v is None else int(v) for v in merged.values] or [None, None]
        want.append((key, merged.kind != UPSERT, *row))
    assert [(k, d, *((None, None) if d else (v, t))) for k, d, v, t in got] == want


# ---------------------------------------------------------------- a person's own merger

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64()), ("note", pa.string())])
Own = Callable[[pa.Table, pa.Table, pa.Schema, Mapping[str, str]], pa.Table]


def larger(older: pa.Table, newer: pa.Table, schema: pa.Schema, properties: Mapping[str, str]) -> pa.Table:  # noqa: ARG001
    keep = pc.greater(older["n"], newer["n"])
    return pa.table([pc.if_else(keep, older[c], newer[c]) for c in schema.names], schema=schema)


def summed(older: pa.Table, newer: pa.Table, schema: pa.Schema, properties: Mapping[str, str]) -> pa.Table:  # noqa: ARG001
    return newer.set_column(schema.get_field_index("n"), schema.field("n"), pc.add(older["n"], newer["n"]))


def account(older: pa.Table, newer: pa.Table, schema: pa.Schema, properties: Mapping[str, str]) -> pa.Table:
    made = summed(older, newer, schema, properties)
    return made.append_column("_hoodie_is_deleted", pc.less(made["n"], 0))


MERGERS: Mapping[str, tuple[Own, Callable[[int, int], int | None]]] = {
    "larger": (larger, max),
    "summed": (summed, lambda a, b: a + b),
    "account": (account, lambda a, b: a + b if a + b >= 0 else None),
}


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    before = dict(mergers._registered)
    yield
    mergers._registered.clear()
    mergers._registered.update(before)


def table(path: Path, type_: str, name: str, version: int = 9) -> lakesql.Table:
    properties = {"lakesql.record.merger": name}
    return lakesql.create_table(
        str(path), SCHEMA, type=type_, primary_key=["id"], version=version, properties=properties
    )


def numbers(t: lakesql.Table) -> dict[str, int]:
    rows = t.read(columns=["id", "n"]).read_all().to_pylist()
    assert len({r["id"] for r in rows}) == len(rows)
    return {r["id"]: r["n"] for r in rows}


@pytest.mark.parametrize("version", [9, 8])
@pytest.mark.parametrize("by", ["function", "address"])
@pytest.mark.parametrize("name", MERGERS)
def test_own_merger_gives_the_same_on_both_table_types(
    name: str, by: str, version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    function, pair = MERGERS[name]
    if by == "address":
        module = ModuleType("acme_mergers")
        monkeypatch.setitem(sys.modules, "acme_mergers", module)
        monkeypatch.setattr(module, name, function, raising=False)
        lakesql.register_merger(name, f"acme_mergers:{name}")
    else:
        lakesql.register_merger(name, function)
    batches = [{"a": 5, "b": 1, "c": 2}, {"a": 3, "b": -4, "d": 1}, {"a": -9, "b": 2, "c": 7}, {"a": 4, "d": -3}]
    want: dict[str, int | None] = {}
    tables = [table(tmp_path / type_, type_, name, version) for type_ in ("cow", "mor")]
    for batch in batches:
        for key, n in batch.items():
            old = want.get(key)
            want[key] = n if old is None else pair(old, n)
        for t in tables:
            t.upsert([{"id": key, "n": n, "note": f"{n}"} for key, n in batch.items()])
            assert numbers(t) == {k: n for k, n in want.items() if n is not None}, t.path


def broken_shapes() -> dict[str, Own]:
    return {
        "must return a table of": lambda older, newer, schema, properties: newer.slice(0, 0),  # noqa: ARG005
        "must return a table": lambda older, newer, schema, properties: None,  # noqa: ARG005
        "lacks the columns note": lambda older, newer, schema, properties: newer.drop_columns("note"),  # noqa: ARG005
    }


@pytest.mark.parametrize("type_", ["cow", "mor"])
@pytest.mark.parametrize("message", broken_shapes())
def test_merger_that_returns_another_shape_is_an_error_and_nothing_is_written(
    message: str, type_: str, tmp_path: Path
) -> None:
    lakesql.register_merger("mine", broken_shapes()[message])
    t = table(tmp_path / "t", type_, "mine")
    t.upsert([{"id": "a", "n": 1, "note": "x"}])
    instants = [i.requested for i in t.state.timeline.completed_writes()]
    with pytest.raises(lakesql.TableError, match=message):
        t.upsert([{"id": "a", "n": 2, "note": "y"}])
    assert [i.requested for i in t.state.timeline.completed_writes()] == instants
    assert numbers(t) == {"a": 1}


def test_table_whose_merger_is_not_registered_is_refused_by_name(tmp_path: Path) -> None:
    lakesql.register_merger("mine", larger)
    t = table(tmp_path / "t", "mor", "mine")
    t.upsert([{"id": "a", "n": 1, "note": "x"}])
    t.upsert([{"id": "a", "n": 2, "note": "y"}])
    mergers._registered.clear()
    fresh = lakesql.open_table(t.path)
    with pytest.raises(lakesql.Unsupported, match="rows merge by CUSTOM"):
        fresh.upsert([{"id": "a", "n": 3, "note": "z"}])


def test_log_that_was_read_is_merged_anew_by_another_merger(tmp_path: Path) -> None:
    lakesql.register_merger("mine", summed)
    t = table(tmp_path / "t", "mor", "mine")
    t.upsert([{"id": "a", "n": 1, "note": "x"}])
    t.upsert([{"id": "a", "n": 2, "note": "y"}])
    assert numbers(t) == {"a": 3}
    lakesql.register_merger("mine", larger)
    assert numbers(t) == {"a": 2}
    mergers._registered.clear()
    with pytest.raises(lakesql.Unsupported, match="rows merge by CUSTOM"):
        numbers(t)


@pytest.mark.parametrize("address", ["no_such_module:f", "math:no_such_function", "math"])
def test_address_that_leads_to_no_function_is_refused(address: str) -> None:
    with pytest.raises(lakesql.TableError, match=address.split(":")[0]):
        lakesql.register_merger("mine", address)
