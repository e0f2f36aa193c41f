"""Raw bytes, text, a person's own function, and what holds for all decoders."""

import threading
from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakesql
from lakesql.errors import JobError, LakeError, LastingError
from lakesql.ingest.decode import decoder_factory
from lakesql.ingest.model import KAFKA, Decoded, Format
from tests.unit.ingest.messages import bad, batch, checked, offsets, rows


def decoded(kind: str, *values: Any, metrics: Any = None, **options: str) -> Decoded:
    given = batch(values)
    form = Format(kind, options={"lakesql." + k: v for k, v in options.items()})
    return checked(decoder_factory(form, metrics=metrics)().decode(given), given)


def test_raw_values_are_bytes_unchanged() -> None:
    found = decoded("raw", b"\x00\xff", None, b"")
    assert rows(found.rows) == [{"value": b"\x00\xff"}, {"value": b""}]
    assert offsets(found.deletes) == [1]


def test_text_values_that_are_not_utf8_are_bad() -> None:
    found = decoded("string", "ä", b"\xff", "", b"\xc3", "z")
    assert rows(found.rows) == [{"value": "ä"}, {"value": ""}, {"value": "z"}]
    assert {o: stage for o, (stage, _) in bad(found).items()} == {1: "decode", 3: "decode"}


def lengths(records: pa.RecordBatch) -> pa.Table:
    size = pc.binary_length(records.column("_value"))
    return pa.table({"size": size, "_error": pc.if_else(pc.greater(size, 2), "too long", None)})


def test_a_function_decodes_batches_and_marks_what_it_cannot() -> None:
    lakesql.register_decoder("lengths", lengths)
    for name in ("lengths", f"{__name__}:lengths"):
        found = decoded("python", b"a", b"abc", None, b"ab", decoder=name)
        assert rows(found.rows) == [{"size": 1}, {"size": 2}]
        assert bad(found) == {1: ("decode", "too long")}
        assert offsets(found.deletes) == [2]


def test_a_function_may_mark_with_a_boolean_and_return_a_batch() -> None:
    lakesql.register_decoder(
        "marks", lambda b: pa.record_batch({"n": b.column("_offset"), "_bad": pa.array([True, None, False])})
    )
    found = decoded("python", "a", "b", "c", decoder="marks")
    assert rows(found.rows) == [{"n": 1}, {"n": 2}]
    assert bad(found) == {0: ("decode", "marked as bad by decoder marks")}


class Scope:
    def __init__(self) -> None:
        self.found: Counter[str] = Counter()

    def count(self, name: str, by: float = 1) -> None:
        self.found[f"count {name}"] += int(by)

    def mark(self, name: str, by: float = 1) -> None:
        self.found[f"mark {name}"] += int(by)

    def observe(self, name: str, values: Any) -> None:
        self.found[f"observe {name}"] += len(values)


def test_a_function_that_asks_for_metrics_gets_them() -> None:
    def counting(records: pa.RecordBatch, metrics: Any) -> pa.Table:
        metrics.counter("seen").add(records.num_rows)
        metrics.meter("seen").mark(2)
        metrics.histogram("sizes").update([1, 2, 3])
        return pa.table({"n": records.column("_offset")})

    lakesql.register_decoder("counting", counting)
    scope = Scope()
    decoded("python", "a", "b", metrics=lambda: scope, decoder="counting")
    assert scope.found == {"count seen": 2, "mark seen": 2, "observe sizes": 3}
    assert len(rows(decoded("python", "a", decoder="counting").rows)) == 1


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda _: pa.table({"a": [1]}), "returned 1 row for 2 records"),
        (lambda _: [1, 2], "returned list, not a pyarrow.Table"),
        (lambda _: pa.table({"a": [1, 2], "_bad": [0, 1]}), "column _bad of type int64"),
        (lambda _: pa.table({"a": [1, 2], "_error": [0, 1]}), "column _error of type int64"),
        (lambda _: pa.table({"_offset": [1, 2]}), "'_offset'"),
        (lambda _: 1 / 0, "ZeroDivisionError: division by zero"),
    ],
)
def test_a_function_that_does_wrong_is_named_and_ends_the_task(function: Any, text: str) -> None:
    lakesql.register_decoder("wrong", function)
    with pytest.raises(LastingError, match=text):  # which no task tries again
        decoded("python", "a", "b", decoder="wrong")


def test_our_own_errors_of_a_function_pass_as_they_are() -> None:
    def refuse(_: Any) -> Any:
        raise LakeError("stop here")

    lakesql.register_decoder("refuse", refuse)
    with pytest.raises(LakeError, match=r"^stop here$"):
        decoded("python", "a", decoder="refuse")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("", "is missing"),
        ("nobody", "no decoder of this name is registered"),
        ("no.such.module:f", "No module named"),
        ("json:nothing", "no attribute 'nothing'"),
        ("json:__name__", "expected a function"),
    ],
)
def test_functions_that_cannot_be_found_are_refused_before_anything_is_read(name: str, text: str) -> None:
    with pytest.raises(JobError, match=text):
        decoder_factory(Format("python", options={"lakesql.decoder": name}))


def test_names_and_functions_are_checked_when_registered() -> None:
    with pytest.raises(JobError, match="expected a function"):
        lakesql.register_decoder("x", 5)  # type: ignore[arg-type]
    with pytest.raises(JobError, match="without a colon"):
        lakesql.register_decoder("a:b", lengths)


def test_kafkas_columns_come_behind_the_decoded_ones_with_their_types() -> None:
    found = decoded("json", {"a": 1}, "x", {"a": 2})
    assert pa.schema(list(found.rows.schema)[-len(KAFKA) :]) == KAFKA
    assert found.rows.column("_timestamp").cast(pa.int64()).to_pylist() == [0, 2]


def test_decoders_of_a_run_work_in_threads_and_agree_on_the_columns() -> None:
    make = decoder_factory(Format("json"))
    out: list[Any] = []

    def work(number: int) -> None:
        decoder = make()
        for _ in range(3):
            out.append(decoder.decode(batch([{"a": number, f"only{number}": 1}])).rows.schema.names)  # noqa: PERF401
        decoder.close()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(out) == 12
    assert len({tuple(names) for names in out}) == 1
