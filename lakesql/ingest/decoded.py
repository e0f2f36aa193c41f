"""What decoders share: the outcome for the records of a batch, and how outcomes of parts become one.

A `Part` says for `total` records which became rows and which are bad; every record is in exactly one of the two. Small
and pure: no bytes are looked at here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakesql.errors import LastingError
from lakesql.ingest.model import KAFKA

Rows = npt.NDArray[np.int64]


@dataclass(slots=True)
class Bad:
    """Records that could not be decoded: their row numbers, and what the columns of BAD say about them."""

    rows: list[int] = field(default_factory=list)
    stages: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    schema_ids: list[str | None] = field(default_factory=list)

    def add(self, row: int, stage: str, error: str, schema_id: str | None = None) -> None:
        self.rows.append(row)
        self.stages.append(stage)
        self.errors.append(error)
        self.schema_ids.append(schema_id)

    def add_all(self, rows: Sequence[int], stage: str, error: str, schema_id: str | None = None) -> None:
        """The same of many records."""
        self.rows += rows
        self.stages += [stage] * len(rows)
        self.errors += [error] * len(rows)
        self.schema_ids += [schema_id] * len(rows)

    def placed(self, rows: Rows) -> "Bad":
        """The same where record i is record rows[i] of a larger batch."""
        return Bad(rows[self.rows].tolist() if self.rows else [], self.stages, self.errors, self.schema_ids)

    def __iadd__(self, other: "Bad") -> "Bad":
        self.rows += other.rows
        self.stages += other.stages
        self.errors += other.errors
        self.schema_ids += other.schema_ids
        return self


@dataclass(slots=True)
class Part:
    """The decoded columns of the records `rows` (ascending), and the bad ones among `total` records."""

    total: int
    columns: pa.Table
    rows: Rows
    bad: Bad

    def checked(self) -> "Part":
        """Itself; AssertionError when a record is in both or in none, which would be lost or doubled."""
        assert self.columns.num_rows == len(self.rows) or not self.columns.num_columns
        assert len(self.rows) + len(self.bad.rows) == self.total
        seen = np.zeros(self.total, np.bool_)
        seen[self.rows] = True
        seen[self.bad.rows] = True
        assert seen.all()
        assert bool((np.diff(self.rows) > 0).all())
        return self


def whole(total: int, columns: pa.Table) -> Part:
    """A part without bad records."""
    return Part(total, columns, np.arange(total), Bad())


def joined(total: int, parts: Sequence[tuple[Rows, Part]], what: str) -> Part:
    """One part of several: record i of a part is record rows[i] of the whole. Columns are matched by name."""
    bad = Bad()
    for rows, part in parts:
        bad += part.bad.placed(rows)
    filled = [(rows[part.rows], part.columns) for rows, part in parts if len(part.rows)]
    if not filled:
        return Part(total, parts[0][1].columns if parts else pa.table({}), np.empty(0, np.int64), bad)
    if len(filled) == 1:
        return Part(total, filled[0][1], filled[0][0], bad)
    table = one_table([columns for _, columns in filled], what)
    place = np.concatenate([rows for rows, _ in filled])
    if bool((np.diff(place) > 0).all()):
        return Part(total, table, place, bad)
    order = np.argsort(place, kind="stable")
    return Part(total, table.take(pa.array(order)), place[order], bad)


def one_table(tables: Sequence[pa.Table], what: str) -> pa.Table:
    """Tables behind each other; columns that some lack are NULL there, numbers take the wider type."""
    if not all(t.schema.metadata == tables[0].schema.metadata for t in tables[1:]):
        tables = [t.replace_schema_metadata(None) for t in tables]
    if all(t.schema.equals(tables[0].schema) for t in tables[1:]):
        return pa.concat_tables(tables)
    loose = [t.cast(pa.schema([f.with_nullable(True) for f in t.schema])) for t in tables]
    try:
        return pa.concat_tables(loose, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise LastingError(
            f"{what}: the rows do not fit into one table: {error}. Ingest these topics into tables of their own."
        ) from None


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """A column without chunks."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)


def finer(total: int, fits: Callable[[int, int], str | None]) -> tuple[list[tuple[int, int]], list[tuple[int, str]]]:
    """Find the few records that do not fit: `fits(low, high)` looks at records [low, high) together and says None, or
    what is wrong with one of them. ([low, high) that fit, ascending; single records that do not and why)."""
    good: list[tuple[int, int]] = []
    bad: list[tuple[int, str]] = []
    todo = [(0, total)] if total else []
    while todo:
        low, high = todo.pop()
        wrong = fits(low, high)
        if wrong is None:
            good.append((low, high))
        elif high - low == 1:
            bad.append((low, wrong))
        else:
            middle = (low + high) // 2
            todo += [(middle, high), (low, middle)]
    return good, bad


def refuse_reserved(names: Sequence[str], what: str) -> None:
    """Decoded columns may not be called like those that Kafka gives."""
    twice = sorted(set(names) & set(KAFKA.names)) or sorted({n for n in names if list(names).count(n) > 1})
    if twice:
        raise LastingError(
            f"{what}: the records have a column {twice[0]!r}, which Kafka's own columns have too or which comes twice. "
            "Name the wanted columns (lakesql.json.columns), or give the reader's schema without it."
        )
