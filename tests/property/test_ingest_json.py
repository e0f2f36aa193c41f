"""JSON messages against a plain model in Python: random types, documents that fit them or nearly do, and random text.

The model says for each document whether the columns can hold it, and what they hold then.
"""

import json
import math
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakesql.ingest.decode_json import JsonValues, Shared
from lakesql.ingest.model import Format
from tests.property.test_codecs import comparable

few = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))  # a query plan for each

LEAVES = ["BIGINT", "INTEGER", "DOUBLE", "VARCHAR", "BOOLEAN"]
BITS = {"BIGINT": 63, "INTEGER": 31}
NAMES = ["a", "b", "c d", "e.f", "g/h"]


def sql(t: Any) -> str:
    if isinstance(t, str):
        return t
    if t[0] == "struct":
        return "STRUCT(" + ", ".join(f'"{n}" {sql(c)}' for n, c in t[1].items()) + ")"
    return sql(t[1]) + "[]" if t[0] == "list" else f"MAP(VARCHAR, {sql(t[1])})"


TYPES = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(
        st.tuples(st.just("struct"), st.dictionaries(st.sampled_from(NAMES), inner, min_size=1, max_size=3)),
        st.tuples(st.just("list"), inner),
        st.tuples(st.just("map"), inner),
    ),
    max_leaves=4,
)
COLUMNS = st.dictionaries(st.sampled_from(NAMES), TYPES, min_size=1, max_size=3)
NUMBER = st.one_of(
    st.integers(-5, 5), st.sampled_from([2**31, -(2**31) - 1, 2**63, 2**62, 10**30]), st.floats(-1e6, 1e6)
)
ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBER, st.text(max_size=4)),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(NAMES), inner, max_size=2)),
    max_leaves=4,
)


def fitting(t: Any) -> st.SearchStrategy[Any]:
    """Values that fit, sometimes one that may not."""
    if isinstance(t, str):
        good: dict[str, st.SearchStrategy[Any]] = {
            "BIGINT": st.integers(-(2**63), 2**63 - 1),
            "INTEGER": st.integers(-(2**31), 2**31 - 1),
            "DOUBLE": st.floats(allow_nan=False, allow_infinity=False),
            "VARCHAR": st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
            "BOOLEAN": st.booleans(),
        }
        return st.one_of(good[t], good[t], st.none())
    if t[0] == "struct":
        return st.fixed_dictionaries({}, optional={n: fitting(c) for n, c in t[1].items()})
    if t[0] == "list":
        return st.one_of(st.lists(fitting(t[1]), max_size=3), st.none())
    return st.one_of(st.dictionaries(st.text("xyz", min_size=1, max_size=2), fitting(t[1]), max_size=2), st.none())


class Unfit(Exception):
    """The column cannot hold it."""


def held(t: Any, value: Any) -> Any:
    """What a column of this type holds of a JSON value."""
    if value is None:
        return None
    if isinstance(t, str):
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if t in BITS and isinstance(value, int) and number and -(1 << BITS[t]) <= value < 1 << BITS[t]:
            return value
        if t == "DOUBLE" and number and math.isfinite(value):
            return float(value)
        if (t == "VARCHAR" and isinstance(value, str)) or (t == "BOOLEAN" and isinstance(value, bool)):
            return value
        raise Unfit
    if t[0] == "list":
        if not isinstance(value, list):
            raise Unfit
        return [held(t[1], v) for v in value]
    if not isinstance(value, dict):
        raise Unfit
    if t[0] == "map":
        return [(k, held(t[1], v)) for k, v in value.items()]
    return {n: held(c, value.get(n)) for n, c in t[1].items()}


def decoded(columns: Any, texts: list[bytes]) -> Any:
    text = ", ".join(f'"{n}" {sql(t)}' for n, t in columns.items())
    values = JsonValues(Format("json", options={"lakesql.json.columns": text}), Shared())
    part = values.decode(pa.array(texts, pa.binary()), None, "t").checked()
    values.close()
    return part


@few
@given(st.data())
def test_documents_give_what_the_model_says_or_are_bad_where_it_says(draw: Any) -> None:
    columns = draw.draw(COLUMNS)
    document = st.fixed_dictionaries({}, optional={n: fitting(t) for n, t in columns.items()})
    loose = st.dictionaries(st.sampled_from(NAMES), ANYTHING, max_size=3)
    documents = draw.draw(st.lists(st.one_of(document, document, loose, ANYTHING), max_size=8))
    part = decoded(columns, [json.dumps(d, ensure_ascii=draw.draw(st.booleans())).encode() for d in documents])
    wanted = {}
    for i, value in enumerate(documents):
        try:
            if value is not None:
                wanted[i] = held(("struct", columns), value)
        except Unfit:
            continue
    found = dict(zip(part.rows.tolist(), part.columns.to_pylist(), strict=True))
    assert comparable(found) == comparable(wanted)


@few
@given(
    COLUMNS,
    st.lists(st.one_of(st.binary(max_size=20), st.text('{}[]",:019.-eEabntrufls\\ ', max_size=25)), max_size=12),
)
def test_random_text_gives_rows_or_bad_records_and_no_exception(columns: Any, texts: list[Any]) -> None:
    decoded(columns, [t if isinstance(t, bytes) else t.encode() for t in texts])
