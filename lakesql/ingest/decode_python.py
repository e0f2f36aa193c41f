"""A person's own decoder: a Python function over Arrow batches (R4, R11).

    def decode(batch):                       # a RecordBatch of lakesql.ingest.model.RAW, without tombstones
        ...
        return table                         # one row per record, in order; `_bad` or `_error` marks those it could not

    lakesql.register_decoder("orders", decode)

The format `python` names it: by the name it is registered under, or as `module:function`. A function with a second
parameter `metrics` gets counters, meters and histograms of the running task. What the function returns is checked, and
an exception of it ends the task: it is a fault of the program, not of a record.
"""

import importlib
import inspect
import threading
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakesql.counted import counted
from lakesql.errors import JobError, LakeError, LastingError
from lakesql.ingest.decoded import Bad, Part
from lakesql.ingest.model import DecoderFunction

FUNCTION = "lakesql.decoder"
_registered: dict[str, Callable[..., pa.Table]] = {}
_lock = threading.Lock()
_importing = True


class Scope(Protocol):
    """Where metrics of the running task go."""

    def count(self, name: str, by: float = 1) -> None: ...

    def mark(self, name: str, by: float = 1) -> None: ...

    def observe(self, name: str, values: Any) -> None: ...


class Metrics:
    """What a decoder with a parameter `metrics` gets: counter(name).add(n), meter(name).mark(n),
    histogram(name).update(number or array)."""

    def __init__(self, scope: Callable[[], Scope | None]) -> None:
        self._scope = scope

    def counter(self, name: str) -> "Counter":
        return Counter(self._scope(), name)

    def meter(self, name: str) -> "Meter":
        return Meter(self._scope(), name)

    def histogram(self, name: str) -> "Histogram":
        return Histogram(self._scope(), name)


class _Named:
    def __init__(self, scope: Scope | None, name: str) -> None:
        self._scope, self._name = scope, name


class Counter(_Named):
    """A number that grows."""

    def add(self, by: float = 1) -> None:
        if self._scope is not None:
            self._scope.count(self._name, by)


class Meter(_Named):
    """A number that grows, and how fast."""

    def mark(self, by: float = 1) -> None:
        if self._scope is not None:
            self._scope.mark(self._name, by)


class Histogram(_Named):
    """How values are spread."""

    def update(self, values: Any) -> None:
        if self._scope is not None:
            self._scope.observe(self._name, values)


def register_decoder(name: str, function: DecoderFunction | Callable[..., pa.Table]) -> None:
    """Make a function known as a decoder. A later one of the same name takes its place."""
    if not callable(function):
        raise JobError(f"decoder {name!r}: expected a function, found {type(function).__name__}.")
    if not name or ":" in name:
        raise JobError(f"decoder {name!r}: a name without a colon is needed; module:function needs no registration.")
    with _lock:
        _registered[name] = function


def registered_only() -> None:
    """From now on this process runs no decoder but registered ones: its statements are other people's."""
    global _importing
    _importing = False


def decoder_function(name: str | None) -> Callable[..., pa.Table]:
    """The function of this name; JobError when there is none."""
    if not name:
        raise JobError(f"format python: {FUNCTION} is missing. Set it to a registered name or to module:function.")
    with _lock:
        found = _registered.get(name)
        known = sorted(_registered)
    if found is not None:
        return found
    module, colon, attribute = name.partition(":")
    if not colon or not _importing:
        other = ", or name it as module:function" if _importing else "; statements of others get no other here"
        raise JobError(
            f"{FUNCTION}={name}: no decoder of this name is registered ({', '.join(known) or 'none is'}). Call "
            f"lakesql.register_decoder first{other}."
        )
    try:
        value: Any = importlib.import_module(module)
        for part in attribute.split("."):
            value = getattr(value, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise JobError(f"{FUNCTION}={name}: {error}. Check the name, and that the module can be imported.") from None
    if not callable(value):
        raise JobError(f"{FUNCTION}={name}: expected a function, found {type(value).__name__}.")
    return value  # type: ignore[no-any-return]


class PythonValues:
    """Records through a function. Gets whole RAW batches, not only values."""

    def __init__(self, name: str | None, scope: Callable[[], Scope | None]) -> None:
        self._name, self._function = name, decoder_function(name)
        self._more = {"metrics": Metrics(scope)} if _takes_metrics(self._function) else {}

    def decode(self, batch: pa.RecordBatch) -> Part:
        try:
            table = self._function(batch, **self._more)
        except LakeError:
            raise
        except Exception as error:
            raise JobError(
                f"decoder {self._name}: {type(error).__name__}: {error}. It was given {counted(batch.num_rows, 'record')}. Let it "
                "mark records that it cannot decode in a column _bad or _error."
            ) from error
        return self._checked(table, batch.num_rows)

    def _checked(self, table: Any, rows: int) -> Part:
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        if not isinstance(table, pa.Table):
            raise self._wrong(f"returned {type(table).__name__}, not a pyarrow.Table")
        if table.num_rows != rows:
            raise self._wrong(
                f"returned {counted(table.num_rows, 'row')} for {counted(rows, 'record')}; one row per record is needed"
            )
        try:
            table.validate(full=True)
        except pa.ArrowInvalid as error:
            raise self._wrong(f"returned a table that is not valid: {error}") from None
        marked, errors = np.zeros(rows, np.bool_), [""] * rows
        if "_bad" in table.column_names:
            column = table.column("_bad")
            if not pa.types.is_boolean(column.type) and not pa.types.is_null(column.type):
                raise self._wrong(f"returned a column _bad of type {column.type}; boolean is needed")
            marked |= np.asarray(pc.fill_null(column.cast(pa.bool_()), False).to_numpy())
        if "_error" in table.column_names:
            column = table.column("_error")
            if not (
                pa.types.is_string(column.type) or pa.types.is_large_string(column.type) or column.null_count == rows
            ):
                raise self._wrong(f"returned a column _error of type {column.type}; text is needed")
            marked |= column.is_valid().to_numpy()
            errors = [text or "" for text in column.to_pylist()] if column.null_count < rows else errors
        bad = Bad()
        for row in np.flatnonzero(marked).tolist():
            bad.add(row, "decode", errors[row] or f"marked as bad by decoder {self._name}")
        table = table.drop_columns([n for n in ("_bad", "_error") if n in table.column_names])
        good = np.flatnonzero(~marked)
        return Part(rows, table.filter(pa.array(~marked)) if len(good) < rows else table, good, bad)

    def _wrong(self, what: str) -> LastingError:
        return LastingError(f"decoder {self._name}: it {what}. Correct the function.")


def _takes_metrics(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
    return "metrics" in parameters
