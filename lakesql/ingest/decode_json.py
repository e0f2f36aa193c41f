"""JSON messages to typed columns: one DuckDB query per batch parses, types and checks all documents (kafka-ingestion 5.2).

`from_json` alone loses values without a word, so each place of the schema is compared with the type that the document
has there. A record is bad when it is not one JSON object (stage 'decode'), or when a place has another JSON type than
its column takes, or a value that the column cannot hold exactly (stage 'type'): 1.5 or 2^63 in a BIGINT, more decimals
than a DECIMAL has, 1e400, NaN. A missing key and null are NULL; keys are case-sensitive; of a key that comes twice the
first counts. `lakesql.json.lenient`: texts are read as numbers and booleans, 1.0 as an integer, anything as VARCHAR.

Columns come from `lakesql.json.columns`, else from the registry (with a wire format), else from the target table, else
from the first records of the run's ranges (`sampling`), so that they do not depend on which task is first. A table that
takes new columns has both: its own, with what the sample has more inside them, and those of the sample that it lacks.
They stay for the run; keys that have no column are ignored, or kept as JSON in `lakesql.json.rest.column` with
`lakesql.json.unknown.keys = keep`.
"""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakesql.errors import JobError, LastingError
from lakesql.format.words import Mask
from lakesql.ingest import json_layout
from lakesql.ingest.decoded import Bad, Part, Rows, finer, one_array, refuse_reserved
from lakesql.ingest.json_layout import Alike
from lakesql.ingest.json_types import (
    Column,
    Place,
    Type,
    columns_of_arrow,
    columns_of_json_schema,
    columns_of_sql,
    columns_of_structure,
    fuller,
    places,
    quoted,
    text_literal,
)
from lakesql.ingest.model import KAFKA, Format, Sample
from lakesql.ingest.registry import Registry
from lakesql.ingest.wire import frames

COLUMNS = "lakesql.json.columns"
SAMPLE_ROWS = 10_000
_SHOWN = 80
_opening = threading.Lock()
_DUCKDB_1 = duckdb.__version__.startswith("1.")
"""It reads decimals as binary fractions, and takes maps with a key that comes twice."""

_TAKEN = {
    "integer": ("BIGINT", "UBIGINT"),
    "float": ("BIGINT", "UBIGINT", "DOUBLE"),
    "decimal": ("BIGINT", "UBIGINT", "DOUBLE"),
    "boolean": ("BOOLEAN",),
    "text": ("VARCHAR",),
    "time": ("VARCHAR",),
    "bytes": ("VARCHAR",),
    "struct": ("OBJECT",),
    "list": ("ARRAY",),
    "map": ("OBJECT",),
}
_SCALARS = ("VARCHAR", "BIGINT", "UBIGINT", "DOUBLE", "BOOLEAN")
_LENIENT = {
    "integer": ("BIGINT", "UBIGINT", "DOUBLE", "VARCHAR"),
    "float": ("BIGINT", "UBIGINT", "DOUBLE", "VARCHAR"),
    "decimal": ("BIGINT", "UBIGINT", "DOUBLE", "VARCHAR"),
    "boolean": ("BOOLEAN", "VARCHAR"),
    "text": (*_SCALARS, "OBJECT", "ARRAY"),
}


@dataclass(slots=True)
class Shared:
    """What the decoders of one run share: the columns, once they are known, by topic ('': of all topics).

    sample   the first records of a topic; None: those of the first batch that comes
    evolve   the target takes columns that it does not have yet
    """

    registry: Registry | None = None
    sample: Sample | None = None
    evolve: bool = False
    lock: threading.RLock = field(default_factory=threading.RLock)
    columns: dict[str, list[Column]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Envelope:
    """A document around the rows: how it looks for rows of these columns, and where it holds images of the row.

    wrap   (columns of the row, SQL that gives one document of the batch or NULL) to columns of the document
    images JSON paths of the objects that have the row's keys
    bare   the row may also be the document itself
    """

    wrap: Callable[[Sequence[Column], Callable[[str], str | None]], list[Column]]
    images: tuple[str, ...]
    bare: bool = False


@dataclass(frozen=True, slots=True)
class _Query:
    """The texts for one list of columns.

    names   of the result's first columns, which are the rows
    main    also gives `ty`, the JSON types at `plain` and of the document, and `w`: something is wrong at `deep`
    why     number of the first of `deep` that is wrong in a document, and all that is there
    """

    names: tuple[str, ...]
    main: str
    why: str
    plain: tuple[Place, ...]
    deep: tuple[Place, ...]
    alike: Alike | None = None  # documents that look alike need no query


class JsonValues:
    """The values (or keys) of JSON messages; one per decoder, for one thread.

    columns   types that are known beforehand (of the target table); `lakesql.json.columns` wins
    envelope  what is around the row
    unwrap    a document {"schema": ..., "payload": ...} counts as its payload (Kafka Connect)
    prepared  what is done with values before they come to `decode`, for those of the sample
    """

    def __init__(
        self,
        form: Format,
        shared: Shared,
        hint: pa.Schema | None = None,
        *,
        envelope: Envelope | None = None,
        unwrap: bool = False,
        part: str = "value",
        columns_text: str | None = None,
        prepared: Callable[[pa.Array], pa.Array] = lambda values: values,
    ) -> None:
        options = form.options
        self._prepared = prepared
        self._wire = form.wire or "none"
        self._shared, self._hint, self._envelope, self._part = shared, hint, envelope, part
        self._text = columns_text or (options.get(COLUMNS) if part == "value" else None)
        self._lenient = _yes(options.get("lakesql.json.lenient"))
        keep = options.get("lakesql.json.unknown.keys", "ignore").lower()
        if keep not in ("ignore", "keep"):
            raise JobError(f"lakesql.json.unknown.keys={keep!r}: expected 'ignore' or 'keep'.")
        self._rest = options.get("lakesql.json.rest.column", "_rest") if keep == "keep" and part == "value" else None
        self._unwrap = unwrap or envelope is not None
        self._con = connection()
        self._queries: dict[str, _Query] = {}

    @staticmethod
    def types_of(text: str) -> pa.Schema:
        """The Arrow types of a list of SQL columns."""
        with connection() as con:
            columns = columns_of_sql(con, text, "lakesql.key.columns")
            nulls = ", ".join(f"CAST(NULL AS {c.type.sql}) AS {quoted(c.name)}" for c in columns)
            schema: pa.Schema = con.sql(f"SELECT {nulls}").to_arrow_table().schema
            return schema

    def close(self) -> None:
        self._con.close()

    def decode(self, values: pa.Array, headers: pa.Array | None, topic: str) -> Part:
        """The records of one topic; `values` has no NULLs."""
        bad, total = Bad(), len(values)
        texts, rows = self._unframed(values, headers, bad)
        query = self._query(topic, texts)
        if query is None:  # not one object so far, so there are no columns yet
            for row, text in zip(rows.tolist(), texts.to_pylist(), strict=True):
                bad.add(row, "decode", _no_object(text))
            return Part(total, pa.table({}), np.empty(0, np.int64), bad)
        alike = query.alike.decode(texts) if query.alike is not None and query.alike.tried else None
        if alike is None:
            columns, good = self._asked(query, texts, rows, bad)
            return Part(total, columns, rows[good], bad)
        columns, taken = alike
        if len(taken) == len(rows):
            return Part(total, columns, rows, bad)
        left = np.ones(len(rows), np.bool_)
        left[taken] = False
        others = np.flatnonzero(left)
        more, good = self._asked(query, texts.take(pa.array(others)), rows[others], bad)
        place = np.concatenate([taken, others[good]])
        order = np.argsort(place, kind="stable")
        columns = pa.concat_tables([columns, more.cast(columns.schema)]).take(pa.array(order))
        return Part(total, columns, rows[place[order]], bad)

    def _asked(self, query: _Query, texts: pa.Array, rows: Rows, bad: Bad) -> tuple[pa.Table, Rows]:
        """The columns of the good documents among these, and which these are. `rows`: what records they are, for `bad`."""
        table = self._run(query.main, texts)
        assert table.num_rows == len(rows)
        columns = table.select(list(range(len(query.names)))).rename_columns(list(query.names))
        first = _first_wrong(query, columns, table.column("ty"), self._lenient)
        deep = np.asarray(table.column("w").to_numpy())
        good = (first < 0) & ~deep
        if not good.all():
            self._explain(query, texts, rows, first, deep, bad)
            columns = columns.filter(pa.array(good))
        return columns, np.flatnonzero(good)

    def _unframed(self, values: pa.Array, headers: pa.Array | None, bad: Bad) -> tuple[pa.Array, np.ndarray]:
        """The documents as text and which records they are; what is no text behind its frame is bad."""
        rows = np.arange(len(values))
        if self._wire != "none":
            found = frames(values, headers, self._wire, self._part)
            for row, reason in zip(found.bad.tolist(), found.reasons, strict=True):
                bad.add(row, "frame", reason)
            rows = np.flatnonzero(found.schema >= 0)
            values = found.payloads(rows)
        return self._texts(values, rows, bad)

    def _texts(self, values: pa.Array, rows: np.ndarray, bad: Bad) -> tuple[pa.Array, np.ndarray]:
        """The values as text without a copy; those that are not UTF-8 are bad."""
        texts = as_text(values)
        good, wrong = finer(len(texts), lambda low, high: not_utf8(texts.slice(low, high - low)))
        if not wrong:
            return texts, rows
        for row, reason in wrong:
            bad.add(int(rows[row]), "decode", reason)
        keep = np.concatenate([np.arange(low, high) for low, high in good]) if good else np.empty(0, np.int64)
        return texts.take(pa.array(keep, pa.int64())), rows[keep]

    def _run(self, query: str, texts: pa.Array, places: pa.Array | None = None) -> pa.Table:
        self._con.register("lakesql_batch", pa.table({"v": texts, "p": places} if places is not None else {"v": texts}))
        try:
            return self._con.sql(query).to_arrow_table()
        except duckdb.Error as error:
            raise LastingError(
                f"JSON records cannot be decoded: {str(error).splitlines()[0]}. Check {COLUMNS}, or ingest the topic as "
                "raw and convert it in AS SELECT."
            ) from error

    # ------------------------------------------------------------ columns
    def _query(self, topic: str, texts: pa.Array) -> _Query | None:
        if topic in self._queries:
            return self._queries[topic]
        columns = self._columns(topic, texts)
        if not columns:
            return None
        query = self._built(columns)
        self._queries[topic] = query
        return query

    def _columns(self, topic: str, texts: pa.Array) -> list[Column]:
        """The columns of the topic's documents, by the first source that has some."""
        with self._shared.lock:
            key = f"{self._part} {topic}"
            if key in self._shared.columns:
                return self._shared.columns[key]
            first = cache(partial(self._first, topic, texts))
            columns = self._row_columns(topic, first) or self._found(texts)
            if columns and self._envelope is not None:
                columns = self._envelope.wrap(
                    columns, lambda path: self._peek(first(), path) or self._peek(texts, path)
                )
            if columns:
                refuse_reserved([c.name for c in columns] + ([self._rest] if self._rest else []), f"topic {topic}")
                self._shared.columns[key] = columns
            return columns

    def _first(self, topic: str, texts: pa.Array) -> pa.Array:
        """The documents that say the columns: the first of the topic in this run, else those that are there."""
        if self._shared.sample is None:
            return texts
        batch = self._shared.sample(topic)
        batch = batch.filter(batch.column(f"_{self._part}").is_valid())
        values = self._prepared(batch.column(f"_{self._part}"))
        return self._unframed(values, batch.column("_headers"), Bad())[0]

    def _row_columns(self, topic: str, first: Callable[[], pa.Array]) -> list[Column]:
        if self._text:
            return columns_of_sql(self._con, self._text, COLUMNS)
        if self._shared.registry is not None and self._wire != "none":
            latest = self._shared.registry.latest(topic, self._part)
            if latest is not None and latest.kind == "JSON":
                return columns_of_json_schema(latest.json, f"topic {topic}")
        if self._hint is not None and len(self._hint):
            own = [f for f in self._hint if f.name != self._rest]
            known = columns_of_arrow(pa.schema(own))
            return self._evolved(known, first()) if self._shared.evolve and self._part == "value" else known
        return self._found(first())

    def _found(self, texts: pa.Array) -> list[Column]:
        """The columns of the rows in these documents."""
        images = self._envelope.images if self._envelope else ("$",)
        columns = self._sampled(texts, images)
        return columns or (self._sampled(texts, ("$",)) if self._envelope and self._envelope.bare else [])

    def _evolved(self, known: Sequence[Column], texts: pa.Array) -> list[Column]:
        """The target's columns with what it lacks of these documents and may get: fields inside them, and columns."""
        found = self._found(texts)
        there = {c.name: c.type for c in found}
        own = [Column(c.name, fuller(c.type, there.get(c.name, c.type))) for c in known]
        taken = {c.name.lower() for c in known} | {n.lower() for n in (*KAFKA.names, self._rest or "")}
        new = (c for c in found if not c.name.lower().startswith("_hoodie_"))
        return [*own, *(c for c in new if c.name.lower() not in taken)]

    def _sampled(self, texts: pa.Array, images: Sequence[str]) -> list[Column]:
        """The columns of the objects at these paths in the first documents of a batch."""
        one = " UNION ALL ".join(
            f"SELECT {'j' if path == '$' else f'json_extract(j, {text_literal(path)})'} AS j FROM docs"
            for path in images
        )
        query = (
            f"WITH docs AS ({self._documents()} LIMIT {SAMPLE_ROWS}), images AS ({one}) "
            "SELECT CAST(json_group_structure(j) AS VARCHAR) AS s FROM images WHERE json_type(j) = 'OBJECT'"
        )
        return columns_of_structure(self._run(query, texts).column("s")[0].as_py())

    def _peek(self, texts: pa.Array, path: str) -> str | None:
        """The text at a path of some document of the batch."""
        found = f"json_extract_string(j, {text_literal(path)})"
        table = self._run(f"SELECT any_value({found}) AS s FROM ({self._documents()})", texts)
        text: str | None = table.column("s")[0].as_py()
        return text

    def _documents(self, more: str = "") -> str:
        more = f", {more}" if more else ""
        query = f"SELECT TRY_CAST(v AS JSON) AS j{more} FROM lakesql_batch"
        if self._unwrap:
            wrapped = "json_type(j, '$.payload') IN ('OBJECT', 'NULL') AND json_exists(j, '$.schema')"
            query = f"SELECT CASE WHEN {wrapped} THEN json_extract(j, '$.payload') ELSE j END AS j{more} FROM ({query})"
        return query

    # ------------------------------------------------------------ the query
    def _built(self, columns: Sequence[Column]) -> _Query:
        lenient = self._lenient
        structure = json.dumps({c.name: c.type.structure(lenient) for c in columns})
        found = tuple(places(columns, "x"))
        if _DUCKDB_1:
            _refuse_decimals(found)
        plain = tuple(p for p in found if not p.many)
        paths = ", ".join(text_literal(p) for p in (*(p.path for p in plain), "$"))
        inner = (
            f"SELECT j, from_json(j, {text_literal(structure)}) AS x, json_type(j, [{paths}]) AS ty "
            f"FROM ({self._documents()})"
        )
        conditions = [(p, w) for p in found if p.many and (w := self._wrong_below(p))]
        conditions += [(p, _twice(p)) for p in found if p.type.kind == "map" and _DUCKDB_1]
        conditions += [(p, w) for p, c in self._top(plain, columns) if (w := self._changed(c))]
        values = [f"{self._final(c)} AS c{i}" for i, c in enumerate(columns)]
        names = [c.name for c in columns]
        if self._rest:
            known = text_literal(json.dumps(dict.fromkeys(names)))
            values.append(f"nullif(CAST(json_merge_patch(j, {known}) AS VARCHAR), '{{}}') AS rest")
            names.append(self._rest)
        wrong = " OR ".join(w for _, w in conditions) or "false"
        main = f"SELECT {', '.join(values)}, ty, coalesce({wrong}, false) AS w FROM ({inner})"
        listed = ", ".join(w for _, w in conditions)
        shown = ", ".join(f"CAST(json_extract(j, {text_literal(p.path)}) AS VARCHAR)" for p, _ in conditions)
        why = f"SELECT list_position([{listed}], true) AS first, [{shown}] AS shown FROM ({inner})"
        alike = Alike(columns) if json_layout.plain(columns) and not (self._rest or self._unwrap) else None
        return _Query(tuple(names), main, why, plain, tuple(p for p, _ in conditions), alike)

    @staticmethod
    def _top(plain: Sequence[Place], columns: Sequence[Column]) -> list[tuple[Place, Column]]:
        """The places of the columns themselves."""
        tops = {p.name: p for p in reversed(plain)}
        return [(tops[c.name], c) for c in columns]

    def _final(self, column: Column) -> str:
        value, t = f"x.{quoted(column.name)}", column.type
        if t.kind == "bytes":
            return f"try(from_base64({value}))"
        return value if t.parsed(self._lenient) == t.sql else f"TRY_CAST({value} AS {t.sql})"

    def _changed(self, column: Column) -> str | None:
        """Condition: the value is not the same in the column's own type."""
        value = f"x.{quoted(column.name)}"
        if column.type.kind == "bytes":
            return f"({value} IS NOT NULL AND {self._final(column)} IS NULL)"
        if not column.type.compared(self._lenient):
            return None
        return f"({value} IS DISTINCT FROM TRY_CAST({self._final(column)} AS {column.type.parsed(self._lenient)}))"

    def _wrong_below(self, place: Place) -> str | None:
        """Condition: the document has something at this place below a list or map that the type does not take."""
        taken = _taken(place.type.kind, self._lenient)
        if taken is None:
            return None
        names = ", ".join(f"'{t}'" for t in taken)
        found = f"json_type(j, {text_literal(place.path)})"
        strange = f"len(list_filter({found}, lambda t: t NOT IN ({names}))) > 0"
        there = f"len(list_filter({found}, lambda t: t <> 'NULL'))"
        less = f"{there} <> coalesce(list_aggregate({place.value}, 'count'), 0)"
        odd = f" OR len(list_filter({place.value}, lambda e: NOT isfinite(e))) > 0"
        return f"coalesce({strange} OR {less}{odd if place.type.kind == 'float' and not self._lenient else ''}, false)"

    def _explain(self, query: _Query, texts: pa.Array, rows: Rows, first: Rows, deep: Mask, bad: Bad) -> None:
        """Say of each bad record what was found where."""
        wrong = np.flatnonzero(first >= 0)
        if len(wrong):
            numbers = first[wrong].tolist()
            paths = [query.plain[n].path if n < len(query.plain) else "$" for n in numbers]
            some = texts.take(pa.array(wrong))
            asked = "SELECT json_type(j) AS root, CAST(json_extract(j, p) AS VARCHAR) AS shown FROM "
            found = self._run(f"{asked}({self._documents('p')})", some, pa.array(paths, pa.string())).to_pylist()
            for row, number, text, there in zip(rows[wrong].tolist(), numbers, some.to_pylist(), found, strict=True):
                if number < len(query.plain):
                    bad.add(row, "type", _cannot(query.plain[number], there["shown"]))
                else:
                    bad.add(row, "decode", _no_object(text, there["root"]))
        below = np.flatnonzero(deep & (first < 0))
        if len(below):
            found = self._run(query.why, texts.take(pa.array(below))).to_pylist()
            for row, there in zip(rows[below].tolist(), found, strict=True):
                number = (there["first"] or 1) - 1
                bad.add(row, "type", _cannot(query.deep[number], there["shown"][number]))


def _refuse_decimals(found: Sequence[Place]) -> None:
    for place in found:
        if place.type.kind == "decimal":
            raise JobError(
                f"JSON column {place.name}: DuckDB {duckdb.__version__} reads decimals out of JSON as binary fractions and "
                f"loses digits. Use DuckDB 2 for {place.type.sql}, or give this column the type DOUBLE in {COLUMNS}."
            )


def _twice(place: Place) -> str:
    """Condition: a map at this place has a key twice."""
    maps = place.value if place.many else f"[{place.value}]"
    return (
        f"coalesce(len(list_filter({maps}, lambda m: len(list_distinct(map_keys(m))) <> len(map_keys(m)))) > 0, false)"
    )


def _taken(kind: str, lenient: bool) -> tuple[str, ...] | None:
    """The JSON types that a column takes; None: all."""
    if kind == "json":
        return None
    return (*(_LENIENT.get(kind, _TAKEN[kind]) if lenient else _TAKEN[kind]), "NULL")


def _first_wrong(query: _Query, columns: pa.Table, types: pa.ChunkedArray, lenient: bool) -> Rows:
    """For each document the number of the first of `plain` that its column cannot hold; their count: it is no object;
    -1: all is well."""
    count, rows = len(query.plain), columns.num_rows
    lists = one_array(types)
    parsed = np.asarray(lists.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    coded = lists.flatten().dictionary_encode()
    names = [*coded.dictionary.to_pylist(), "NULL"]  # a missing key is as good as null
    codes = np.full((rows, count + 1), len(names) - 1, np.int64)
    codes[parsed] = coded.indices.fill_null(len(names) - 1).to_numpy().reshape(-1, count + 1)
    takes = np.ones((count + 1, len(names)), np.bool_)
    for number, place in enumerate(query.plain):
        taken = _taken(place.type.kind, lenient)
        takes[number] = [taken is None or n in taken for n in names]
    takes[count] = [n == "OBJECT" for n in names]
    wrong = ~takes[np.arange(count + 1), codes]
    wrong[~parsed, count] = True
    there = np.array([n != "NULL" for n in names])
    for number, array in enumerate(_arrays(columns, query)):
        if array.null_count:
            wrong[:, number] |= np.asarray(array.is_null().to_numpy(zero_copy_only=False)) & there[codes[:, number]]
        if query.plain[number].type.kind == "float" and not lenient:
            wrong[:, number] |= ~np.asarray(pc.fill_null(pc.is_finite(array), True).to_numpy(zero_copy_only=False))
    wrong[wrong[:, count], :count] = False
    return np.where(wrong.any(axis=1), wrong.argmax(axis=1), -1)


def _arrays(columns: pa.Table, query: _Query) -> Iterator[pa.Array]:
    """The values at the plain places, in their order."""

    def below(array: pa.Array, t: Type) -> Iterator[pa.Array]:
        yield array
        if t.kind == "struct":
            for child, inner in zip(array.flatten(), t.children, strict=True):
                yield from below(child, inner)

    place = iter(query.plain)
    for column in columns.columns:
        top = next(place, None)
        if top is None:
            return  # the column of what has none
        for number, one in enumerate(below(one_array(column), top.type)):
            if number:
                next(place)
            yield one


@cache
def _instance() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(":memory:", config={"threads": 1})


def connection() -> duckdb.DuckDBPyConnection:
    """A connection for one decoder. All share one empty DuckDB in memory (opening one costs more than a batch), and
    each runs in the thread that calls it."""
    with _opening:
        con = _instance().cursor()
    con.execute("SET TimeZone = 'UTC'").fetchall()
    return con


def _short(shown: object) -> str:
    text = shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _cannot(place: Place, shown: object) -> str:
    return f"{place.name}: {place.type.sql} cannot hold {_short(shown)}"


def _no_object(text: str, root: str | None = None) -> str:
    if root is not None:
        return f"expected a JSON object, found {root}: {_short(text)}"
    if not text:
        return "an empty value; expected a JSON object"
    try:
        found = json.loads(text)
    except ValueError as error:
        return f"not JSON: {error}"
    except RecursionError:
        return "not JSON: nested too deeply"
    return f"expected a JSON object, found {type(found).__name__}: {_short(text)}"


def _yes(text: str | None) -> bool:
    return (text or "").strip().lower() in ("true", "yes", "1", "on")


def as_text(values: pa.Array) -> pa.Array:
    """A binary column as a text column without a copy and without a look at the bytes."""
    return pa.Array.from_buffers(pa.string(), len(values), values.buffers(), offset=values.offset)


def not_utf8(texts: pa.Array) -> str | None:
    """None when all texts are UTF-8, else what is wrong."""
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid as error:
        return f"not UTF-8 ({error})"
    return None
