"""Avro messages to columns: frames, the writer's schema by id, the reader's schema of the topic, resolution, all by columns.

The reader's schema of a topic is, in this order: `gobblin.source.kafka.fixedSchema.<topic>` (or `lakesql.avro.schema`
for all topics), text or path of a file; the registry's latest when the run first meets the topic; else, without such a
subject, the newest schema that wrote one of the first records of the run's ranges. It stays for the run (1.3), so rows
of a run are alike.

Bad records: an id that the registry does not know or a writer's schema that cannot be resolved (stage 'schema'), bytes
that do not decode ('decode'), a value that the reader's schema cannot hold ('type'). One of them never costs another
record: when a group does not decode together, its lengths are checked for all, then the rest is halved until the
damaged ones are alone.
"""

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lakesql.errors import FormatError, JobError, LastingError, Unsupported
from lakesql.format.avro_decode import decode_spans, spans_end
from lakesql.format.avro_skip import DamagedAvro
from lakesql.format.words import Bytes, Mask, Positions
from lakesql.ingest.avro_resolve import Mismatch, Resolution, as_record, resolution
from lakesql.ingest.decoded import Bad, Part, finer, joined
from lakesql.ingest.model import AVRO_SCHEMA, Format, Sample
from lakesql.ingest.registry import Registry, Schema
from lakesql.ingest.wire import frames

FIXED = "gobblin.source.kafka.fixedSchema."
_PLACE = "Kafka record"


@dataclass(slots=True)
class Shared:
    """What the decoders of one run share: the registry, the readers of the topics, and resolved pairs of schemas."""

    registry: Registry | None
    sample: Sample | None = None  # the first records of a topic; None: those of the first batch that comes
    lock: threading.RLock = field(default_factory=threading.RLock)
    readers: dict[tuple[str, str], Any] = field(default_factory=dict)
    resolved: dict[tuple[str, str], Resolution | str] = field(default_factory=dict)


def fixed_schema(options: Mapping[str, str], topic: str, part: str = "value") -> Any:
    """The schema that the job gives for a topic, parsed, or None."""
    names = (FIXED + topic, "lakesql.avro.schema") if part == "value" else ("lakesql.key.avro.schema",)
    name = next((n for n in names if options.get(n)), None)
    if name is None:
        return None
    text = options[name].strip()
    try:
        if text[:1] not in ("{", "[", '"'):
            text = Path(text).read_text() if "/" in text or "." in text else json.dumps(text)
        return json.loads(text)
    except (OSError, ValueError) as error:
        raise JobError(f"{name}: neither an Avro schema nor a file with one: {error}.") from None


class AvroValues:
    """The values (or keys) of Avro messages; one per decoder, with what all of them share."""

    def __init__(self, form: Format, shared: Shared, part: str = "value", wire: str | None = None) -> None:
        self._wire = wire or form.wire or "confluent"
        self._options, self._shared, self._part = form.options, shared, part
        if self._wire != "none" and shared.registry is None:
            raise JobError(
                f"Avro with wire format {self._wire} needs kafka.schema.registry.url. Set it, or use wire 'none' with "
                f"{FIXED}<topic>."
            )

    def decode(self, values: pa.Array, headers: pa.Array | None, topic: str) -> Part:
        """The records of one topic; `values` has no NULLs."""
        found = frames(values, headers, self._wire, self._part)
        bad = Bad()
        for row, reason in zip(found.bad.tolist(), found.reasons, strict=True):
            bad.add(row, "frame", reason)
        parts = [(np.arange(len(values)), Part(len(values), pa.table({}), np.empty(0, np.int64), bad))]
        groups = list(found.groups())
        writers = self._writers([one for one, _ in groups], topic)
        reader = self._reader(topic, found.ids, found.schema, writers)
        for one, rows in groups:
            part = Part(len(rows), pa.table({}), np.empty(0, np.int64), Bad())
            writer = writers[one]
            resolved = (
                f"schema {one} is not in the registry"
                if writer is None or reader is None
                else self._pair(writer, reader)
            )
            if isinstance(resolved, str):
                part.bad.add_all(range(len(rows)), "schema", resolved, one or None)
            else:
                part = decode_group(resolved, found.data, found.start[rows], found.stop[rows], one or None)
            parts.append((rows, part))
        if reader is not None and not any(len(p.rows) for _, p in parts):
            parts[0][1].columns = self._empty(reader)
        part = joined(len(values), parts, f"topic {topic}")
        if reader is not None:
            told = {AVRO_SCHEMA: json.dumps(reader, separators=(",", ":"))}
            part = replace(part, columns=part.columns.replace_schema_metadata(told))
        return part

    # ------------------------------------------------------------ schemas
    def _writers(self, ids: list[str], topic: str) -> dict[str, Any]:
        if self._wire == "none":
            schema = fixed_schema(self._options, topic, self._part)
            if schema is None:
                raise JobError(
                    f"topic {topic}: wire format none needs the schema of its records. Set {FIXED}{topic}, or "
                    "lakesql.avro.schema for all topics."
                )
            return dict.fromkeys(ids, schema)
        assert self._shared.registry is not None
        out: dict[str, Any] = {}
        for one, schema in self._shared.registry.schemas(ids).items():
            out[one] = None if schema is None else self._avro(schema)
        return out

    def _avro(self, schema: Schema) -> Any:
        return schema.json if schema.kind == "AVRO" else {"type": f"a {schema.kind} schema"}

    def _reader(self, topic: str, ids: tuple[str, ...], schema: Any, writers: Mapping[str, Any]) -> Any:
        """The reader's schema of the topic; None while no schema of the topic is known."""
        key = (topic, self._part)
        with self._shared.lock:
            if key not in self._shared.readers:
                reader = fixed_schema(self._options, topic, self._part)
                if reader is None and self._shared.registry is not None:
                    latest = self._shared.registry.latest(topic, self._part)
                    reader = None if latest is None or latest.kind != "AVRO" else latest.json
                if reader is not None:
                    self._known(reader, topic)
                    self._shared.readers[key] = reader
            if key in self._shared.readers:
                return self._shared.readers[key]
            found = self._newest(*self._first(topic)) or self._newest(ids, schema, writers)
            if found is not None:
                self._shared.readers[key] = found
            return found

    def _first(self, topic: str) -> tuple[tuple[str, ...], Any, Mapping[str, Any]]:
        """The ids, the schema of each record, and the schemas of the first records of the topic in this run."""
        if self._shared.sample is None:
            return (), np.empty(0, np.int64), {}
        batch = self._shared.sample(topic)
        batch = batch.filter(batch.column(f"_{self._part}").is_valid())
        found = frames(batch.column(f"_{self._part}"), batch.column("_headers"), self._wire, self._part)
        return found.ids, found.schema, self._writers([one for one, _ in found.groups()], topic)

    def _newest(self, ids: tuple[str, ...], schema: Any, writers: Mapping[str, Any]) -> Any:
        """The newest known schema among those of some records; None: there is none."""
        known = [one for one in ids if writers.get(one) is not None]
        if not known:
            return None
        if self._wire == "confluent" and all(one.isdigit() for one in known):
            return writers[max(known, key=int)]
        return next(writers[ids[n]] for n in schema[::-1].tolist() if n >= 0 and writers.get(ids[n]) is not None)

    def _known(self, reader: Any, topic: str) -> None:
        try:
            resolution(reader, reader)
        except (FormatError, Unsupported, KeyError, TypeError) as error:
            raise LastingError(
                f"topic {topic}: its schema cannot be read into columns: {error} Give another one with {FIXED}{topic}."
            ) from None

    def _pair(self, writer: Any, reader: Any) -> Resolution | str:
        key = (json.dumps(writer), json.dumps(reader))
        with self._shared.lock:
            if key not in self._shared.resolved:
                try:
                    self._shared.resolved[key] = resolution(writer, reader)
                except Mismatch as error:
                    self._shared.resolved[key] = f"the writer's schema does not fit the reader's: {error}"
                except (FormatError, Unsupported, KeyError, TypeError) as error:
                    self._shared.resolved[key] = f"the writer's schema cannot be read: {error}"
            return self._shared.resolved[key]

    def _empty(self, reader: Any) -> pa.Table:
        found = self._pair(as_record(reader), reader)
        return pa.table({}) if isinstance(found, str) else found.schema.empty_table()


# ---------------------------------------------------------------- one writer's records
def decode_group(
    found: Resolution, data: Bytes, start: Positions, stop: Positions, schema_id: str | None = None
) -> Part:
    """Records of one writer's schema, which lie at [start, stop) in ascending order."""
    bad = Bad()
    rows = np.arange(len(start))
    try:
        columns = decode_spans(found.node, data, start, stop, found.keep, _PLACE)
    except DamagedAvro:
        rows, columns = _undamaged(found, data, start, stop, schema_id, bad)
    out, wrong = found.finish(columns, len(rows))
    if wrong is not None and wrong.any():
        lost = rows[wrong].tolist()
        bad.add_all(lost, "type", "a value that the reader's schema cannot hold", schema_id)
        out, rows = [a.filter(pa.array(~wrong)) for a in out], rows[~wrong]
    return Part(len(start), pa.Table.from_arrays(out, schema=found.schema), rows, bad)


def _undamaged(
    found: Resolution, data: Bytes, start: Positions, stop: Positions, schema_id: str | None, bad: Bad
) -> tuple[Positions, list[pa.Array]]:
    """The records that decode: (their rows, their columns); the others are added to `bad`."""
    rows = np.arange(len(start))
    ends = _ends(found, data, start, stop)
    if ends is not None and not ends.all():
        short = np.flatnonzero(~ends).tolist()
        bad.add_all(
            short, "decode", "the record does not end where its value ends: torn, or of another schema", schema_id
        )
        rows = rows[ends]
        start, stop = start[ends], stop[ends]
    pieces: dict[int, list[pa.Array]] = {}

    def fits(low: int, high: int) -> str | None:
        try:
            pieces[low] = decode_spans(found.node, data, start[low:high], stop[low:high], found.keep, _PLACE)
        except DamagedAvro as error:
            return error.what
        return None

    good, wrong = finer(len(rows), fits)
    for row, reason in wrong:
        bad.add(int(rows[row]), "decode", reason, schema_id)
    kept = np.concatenate([rows[low:high] for low, high in good]) if good else np.empty(0, np.int64)
    parts = [pieces[low] for low, _ in good]
    if not parts:
        return kept, decode_spans(found.node, data, start[:0], stop[:0], found.keep, _PLACE)
    return kept, [pa.concat_arrays(columns) for columns in zip(*parts, strict=True)]


def _ends(found: Resolution, data: Bytes, start: Positions, stop: Positions) -> Mask | None:
    try:
        return spans_end(found.node, data, start, stop, _PLACE)
    except DamagedAvro:
        return None
