"""From a RAW batch to rows, deletes and bad records: the one door to all decoders.

    decoders = decoder_factory(job.format, schema_hint)      # once per run: registry, schemas and columns are shared
    decoder = decoders()                                     # once per task and thread
    decoded = decoder.decode(batch)

Steps for a batch: records without a value go to the deletes, with the columns of their key; values become columns, topic
by topic; an envelope is taken off; columns of the key are added to rows whose value lacks them; what fails at any step
is bad. Every record ends in exactly one of the three, and each keeps the order of the batch.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from lakesql.errors import JobError
from lakesql.ingest import decode_avro, decode_json
from lakesql.ingest.decode_avro import AvroValues
from lakesql.ingest.decode_json import JsonValues
from lakesql.ingest.decode_plain import RawValues, TextValues
from lakesql.ingest.decode_python import FUNCTION, PythonValues, Scope, register_decoder
from lakesql.ingest.decoded import Bad, Part, Rows, joined, refuse_reserved
from lakesql.ingest.envelope import CONNECTOR, ENVELOPE, Unwrapping, row_columns, unwrapping
from lakesql.ingest.keys import KEY_WIRE, Keys
from lakesql.ingest.model import BAD, KAFKA, RAW, Decoded, Decoder, Format, Sample
from lakesql.ingest.registry import Registry

KINDS = ("json", "avro", "raw", "string", "python")


def decoder_factory(
    form: Format,
    schema_hint: pa.Schema | None = None,
    key_columns: Sequence[str] = (),
    *,
    metrics: Callable[[], Scope | None] | None = None,
    registry: Registry | None = None,
    sample: Sample | None = None,
    evolve: bool = False,
) -> Callable[[], Decoder]:
    """Makes decoders of one run. Call once per run and target, so that all tasks read with the same schemas.

    schema_hint  columns of the target table, if it exists and takes the decoded columns as they are
    key_columns  names of the key's columns where `lakesql.key.columns` does not say them: the table's record key
    metrics      gives the scope of the running task, for a person's own decoder
    registry     in place of the one that form.registry names
    sample       the first records of a topic, which say what nothing else does; None: the first batch that comes
    evolve       the target takes columns beyond those of schema_hint
    JobError when the format cannot be done.
    """
    if form.kind not in KINDS:
        raise JobError(f"format {form.kind!r}: use one of {', '.join(KINDS)}.")
    if registry is None and form.registry and (form.wire or "none") != "none":
        registry = Registry(form.registry, form.wire or "", form.options)
    elif registry is None and form.registry and form.options.get("lakesql.key.format") == "avro":
        registry = Registry(form.registry, form.options.get(KEY_WIRE, "confluent").lower(), form.options)
    avro, json = decode_avro.Shared(registry, sample), decode_json.Shared(registry, sample, evolve)
    hint = _own_columns(schema_hint)
    scope = metrics or (lambda: None)
    ready = [_Decoder(form, hint, key_columns, avro, json, scope)]  # faults of the job show before anything is read

    def decoder() -> Decoder:
        try:
            return ready.pop()
        except IndexError:
            return _Decoder(form, hint, key_columns, avro, json, scope)

    return decoder


def _own_columns(hint: pa.Schema | None) -> pa.Schema | None:
    """The target's columns without those that Hudi or Kafka give."""
    if hint is None:
        return None
    return pa.schema([f for f in hint if not f.name.startswith("_hoodie_") and f.name not in KAFKA.names])


class _Decoder:
    """One decoder of a run, for one task and one thread."""

    def __init__(
        self,
        form: Format,
        hint: pa.Schema | None,
        key_columns: Sequence[str],
        avro: decode_avro.Shared,
        json: decode_json.Shared,
        scope: Callable[[], Scope | None],
    ) -> None:
        options = form.options
        kind = options.get(ENVELOPE) or "none"
        self._envelope: Unwrapping | None = unwrapping(kind, options.get(CONNECTOR), hint)
        if self._envelope is not None and form.kind not in ("json", "avro"):
            raise JobError(f"{ENVELOPE}={kind}: messages of the format {form.kind} have no envelope. Use json or avro.")
        self._keys = Keys(form, key_columns, hint, avro, json)
        self._python: PythonValues | None = None
        self._values: JsonValues | AvroValues | RawValues | TextValues | None = None
        if form.kind == "python":
            self._python = PythonValues(options.get(FUNCTION) or options.get("function"), scope)
        elif form.kind == "json":
            columns = row_columns(hint) if self._envelope else hint
            self._values = JsonValues(form, json, columns, envelope=self._envelope.json if self._envelope else None)
        elif form.kind == "avro":
            self._values = AvroValues(form, avro)
        else:
            self._values = RawValues() if form.kind == "raw" else TextValues()

    def close(self) -> None:
        """Give back the DuckDB connections."""
        self._keys.close()
        if isinstance(self._values, JsonValues):
            self._values.close()

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """All records of a RAW batch."""
        assert batch.schema.names == RAW.names
        dead = np.asarray(batch.column("_value").is_null().to_numpy(zero_copy_only=False))
        live = np.flatnonzero(~dead)
        bad = Bad()
        part = self._rows(_taken(batch, live))
        bad += part.bad.placed(live)
        rows = _with_kafka(batch, part.columns, live[part.rows])
        tombstones = np.flatnonzero(dead)
        gone = Part(len(tombstones), pa.table({}), np.arange(len(tombstones)), Bad())
        if len(tombstones) and self._keys.format != "none":
            gone = self._key_columns(_taken(batch, tombstones))
            bad += gone.bad.placed(tombstones)
        deletes = _with_kafka(batch, gone.columns, tombstones[gone.rows])
        assert rows.num_rows + deletes.num_rows + len(bad.rows) == batch.num_rows
        return Decoded(rows, deletes, _bad_table(batch, bad))

    def _rows(self, batch: pa.RecordBatch) -> Part:
        """The decoded columns of records with a value."""
        if self._python is not None:
            part = self._python.decode(batch)
        else:
            values = self._values
            assert values is not None
            part = _by_topic(batch, lambda b, t: values.decode(b.column("_value"), b.column("_headers"), t).checked())
        if self._envelope is not None:
            part = self._envelope.flatten(part)
        if self._keys.format != "none" and self._envelope is None and len(part.rows):
            lacking = [n for n in self._keys.names if n not in part.columns.column_names]
            if lacking:
                part = self._with_key(batch, part, lacking)
        refuse_reserved(part.columns.column_names, "decoded records")
        return part.checked()

    def _with_key(self, batch: pa.RecordBatch, part: Part, names: list[str]) -> Part:
        """The rows with the columns that only their key has."""
        keys = self._key_columns(_taken(batch, part.rows))
        part.bad += keys.bad.placed(part.rows)
        columns = part.columns.take(pa.array(keys.rows)) if len(keys.rows) < len(part.rows) else part.columns
        for name in names:
            if name in keys.columns.column_names:
                columns = columns.append_column(name, keys.columns.column(name))
        return Part(part.total, columns, part.rows[keys.rows], part.bad)

    def _key_columns(self, batch: pa.RecordBatch) -> Part:
        decode = self._keys.decode
        return _by_topic(batch, lambda b, t: decode(b.column("_key"), b.column("_headers"), t).checked())


def _by_topic(batch: pa.RecordBatch, decode: Callable[[pa.RecordBatch, str], Part]) -> Part:
    if not batch.num_rows:
        return Part(0, pa.table({}), np.empty(0, np.int64), Bad())
    topics = batch.column("_topic")
    names, codes = topics.dictionary.to_pylist(), topics.indices.to_numpy()
    if (codes == codes[0]).all():
        return decode(batch, names[codes[0]])
    parts = []
    for code in np.unique(codes).tolist():
        rows = np.flatnonzero(codes == code)
        parts.append((rows, decode(_taken(batch, rows), names[code])))
    return joined(batch.num_rows, parts, f"topics {', '.join(names)}")


def _taken(batch: pa.RecordBatch, rows: Rows) -> pa.RecordBatch:
    return batch if len(rows) == batch.num_rows else batch.take(pa.array(rows, pa.int64()))


def _with_kafka(batch: pa.RecordBatch, columns: pa.Table, rows: Rows) -> pa.Table:
    """Decoded columns of these rows of the batch, and Kafka's own behind them."""
    kafka = pa.Table.from_batches([_taken(batch.select(KAFKA.names), rows)], KAFKA)
    arrays = [*columns.columns, *kafka.columns]
    return pa.Table.from_arrays(arrays, schema=pa.schema([*columns.schema, *KAFKA], columns.schema.metadata))


def _bad_table(batch: pa.RecordBatch, bad: Bad) -> pa.Table:
    if not bad.rows:
        return BAD.empty_table()
    order = np.argsort(bad.rows, kind="stable")
    raw = batch.take(pa.array(np.asarray(bad.rows, np.int64)[order]))
    more = [
        pa.array([given[i] for i in order.tolist()], pa.string()) for given in (bad.schema_ids, bad.stages, bad.errors)
    ]
    return pa.Table.from_arrays([*raw.columns, *more], schema=BAD)


__all__ = ["decoder_factory", "register_decoder"]
