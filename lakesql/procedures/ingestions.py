"""Procedures about ingestions: which there are, what they have read, and their offsets moved, given out and taken in.

Named ingestions lie in the warehouse (`ingest.definitions`), offsets in the targets; only moving them asks the brokers.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakesql.errors import LakeError, SQLError, TableError
from lakesql.ingest import definitions, front, moving, statefile, stored, tables
from lakesql.ingest.definitions import Definition
from lakesql.ingest.model import State
from lakesql.ingest.secrets import hidden, masked
from lakesql.procedures.declare import FILTER, PATH, REQUIRED, TABLE, Call, Parameter, Procedure, Rows, columns
from lakesql.procedures.shape import showing
from lakesql.storage import open_storage

_INGESTION = Parameter("ingestion", "VARCHAR", REQUIRED, "name of the ingestion")
_ANY = Parameter("ingestion", "VARCHAR", None, "name of the ingestion")
_DRY = Parameter("dry_run", "BOOLEAN", False, "show what would be done and change nothing")
_LISTED = columns(
    name="text", target="text", brokers="text", topics="text", format="text", partitions="long", lag="long",
    lost="long", stored_at="text", problem="text",
)  # fmt: skip


def _show(call: Call) -> Rows:
    for name in definitions.names(call.warehouse):
        row: dict[str, Any] = {"name": name}
        try:
            found = definitions.require(call.warehouse, name)
            row |= _about(found)
            states = list(stored.of_definition(found, lambda into: _path_of(call, into)).values())
            ones = [one for state in states for one in state.partitions.values()]
            row |= {
                "partitions": len(ones),
                "lag": sum(one.lag or 0 for one in ones) if ones else None,
                "lost": sum(one.lost for one in ones) if ones else None,
                "stored_at": tables.time_text(max((s.at_ms for s in states), default=0) or None),
            }
        except LakeError as error:
            row["problem"] = str(error)
        yield row


def _about(found: Definition) -> dict[str, Any]:
    options = masked(found.options)
    return {
        "target": f"files {found.into}" if found.files else found.into,
        "brokers": options.get("kafka.brokers", options.get("bootstrap.servers")),
        "topics": options.get("topic.whitelist", options.get("hoodie.streamer.source.kafka.topic", ".*")),
        "format": found.format or "json",
    }


def _offsets(call: Call) -> pa.Table:
    return tables.offsets(_states(call))


def _states(call: Call) -> list[State]:
    """The states of the ingestion, or of the table, that the call names."""
    name = call["ingestion"]
    if (call["table"] is None) + (call["path"] is None) == 2:
        if name is None:
            raise SQLError("give ingestion => 'name', table => 'name' or path => 'folder'.")
        found = definitions.require(call.warehouse, name)
        return list(stored.of_definition(found, lambda into: _path_of(call, into)).values())
    if call["path"] is not None:
        return stored.of_path(open_storage(call["path"]), name)
    waits = stored.waiting_for(open_storage(_path_of(call, call["table"])), name)
    try:
        return stored.of_path(call.resolve(call["table"]), name)
    except TableError:
        if not waits:
            raise
        return waits


def _reset(call: Call) -> pa.Table:
    kind, value = _place(str(call["offset"]))
    with hidden(_options(call)):
        work = _work(call)
        wanted = {call["topic"] or "": {call["partition"]: (kind, value)}}
        return moving.move(call.con, work.job, wanted, dry_run=call["dry_run"], now_ms=call.clock())


def _place(text: str) -> tuple[str, str | None]:
    """earliest, latest, an offset, or a time."""
    plain = text.strip()
    if plain.lower() in ("earliest", "latest"):
        return plain.lower(), None
    return ("offset" if plain.isascii() and plain.isdigit() else "timestamp"), plain


def _export(call: Call) -> Iterator[dict[str, Any]]:
    states = _states(call)
    if call["file"] is not None and not states:
        raise TableError("nothing is stored yet, so no file was written: the ingestion has not run.")
    if call["file"] is not None and len(states) > 1:
        raise SQLError(f"there are {len(states)} states, one file holds one; name the ingestion and the table.")
    for state in states:
        text = statefile.export_state(state)
        if call["file"] is not None:
            file = Path(call["file"]).absolute()
            open_storage(file.parent).put(file.name, text.encode())
            text = f"Written to {file}."
        yield {"ingestion": state.ingestion, "partitions": len(state.partitions), "state": text}


def _import(call: Call) -> pa.Table:
    state = statefile.read_state_file(call["file"], call["ingestion"])
    note = f"Offsets taken from {Path(call['file']).name}"
    with hidden(_options(call)):
        work = _work(call)
        return moving.bring(call.con, work.job, state, dry_run=call["dry_run"], now_ms=call.clock(), note=note)


def _work(call: Call) -> front.Work:
    found = definitions.require(call.warehouse, call["ingestion"])
    return front.work_of(found, lambda into: _path_of(call, into), call.settings)


def _options(call: Call) -> dict[str, str]:
    return dict(definitions.require(call.warehouse, call["ingestion"]).options)


def _path_of(call: Call, into: str) -> str:
    """The folder of a target: of a table that is known, else where one of that name would be made."""
    if "/" in into:
        return open_storage(into).uri
    with suppress(TableError):
        if front.TOPIC not in into:
            return call.resolve(into).uri
    return open_storage(call.warehouse).uri + "/" + into


def _changes(arguments: Any) -> bool:
    return not arguments["dry_run"]


PROCEDURES = (
    showing(
        "show_ingestions",
        "The named ingestions: from where, where to, and how far each has come.",
        _LISTED,
        _show,
        (FILTER,),
        of_table=False,
    ),
    Procedure(
        "show_ingestion_offsets",
        "The offsets that an ingestion, or the ingestions of a table, have stored.",
        tables.OFFSETS,
        _offsets,
        (_ANY, TABLE, PATH),
        of_table=False,
    ),
    Procedure(
        "reset_ingestion_offsets",
        "Lets an ingestion go on at another offset, 'earliest', 'latest' or a time; says what that skips or reads again.",
        moving.MOVES,
        _reset,
        (
            _INGESTION,
            Parameter("offset", "VARCHAR", REQUIRED, "a number, 'earliest', 'latest', or a time"),
            Parameter("topic", "VARCHAR", None, "the topic; needed when there are several"),
            Parameter("partition", "INTEGER", None, "the partition; default: all of the topic"),
            _DRY,
        ),
        of_table=False,
        writes=_changes,
    ),
    Procedure(
        "export_ingestion_state",
        "What an ingestion has stored, as JSON; with a file, written there.",
        columns(ingestion="text", partitions="long", state="text"),
        _export,
        (_ANY, TABLE, PATH, Parameter("file", "VARCHAR", None, "file to write")),
        of_table=False,
    ),
    Procedure(
        "import_ingestion_state",
        "Takes offsets from a file: an exported state, or CSV with topic, partition, offset.",
        moving.MOVES,
        _import,
        (_INGESTION, Parameter("file", "VARCHAR", REQUIRED, "file to read"), _DRY),
        of_table=False,
        writes=_changes,
    ),
)
