"""Every sequence of operations on one record key, each on a key of its own whose text is the sequence.

    base | op1 | X | op2 | op3        B|U5|X|_|D15 = in the first batch, updated with ordering value 5, deleted by a
                                      statement, left alone, deleted as data with ordering value 15

    base    B: in batch 0 with ordering value 10, -: not             X     X: removed by a DELETE statement after batch 1
    op      _: nothing; else a kind and the ordering value: U a row, N a row without (or with an unavailable) name,
            D a delete that comes as data

`batch` gives the rows of one batch in the shape that a payload class reads. `state` says what rows hold in the terms
of the sequence, whatever that shape is. `golden/sequences` holds what Apache Hudi made of them.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import lakesql

OPERATIONS = ("_", "U5", "U10", "U20", "N5", "N20", "D5", "D15", "D25")
STEPS = ("0", "1", "X", "2", "3")
"""Four batches, and the DELETE statement after the second one."""

DELETE_STATEMENT = "DELETE FROM {} WHERE id LIKE '%|X|%'"
FOLDER = Path(__file__).parent / "golden" / "sequences"
SETTINGS = {"hoodie.parquet.small.file.limit": "0"}
"""New keys go to new file groups, as in the tables that Spark wrote."""

UNAVAILABLE = "__debezium_unavailable_value"
PACKAGE = "org.apache.hudi.common.model."

State = tuple[str | None, int, int | None]  # name, n, ordering value


def _plain(kind: str, value: int) -> dict[str, Any]:
    return {"ts": value, "_hoodie_is_deleted": kind == "D"}


def _dms(kind: str, value: int) -> dict[str, Any]:
    return {"ts": value, "Op": {"D": "D", "U": "U", "N": "I"}[kind]}


def _mysql(kind: str, value: int) -> dict[str, Any]:
    change = {"D": "d", "U": "u", "N": "c"}[kind]
    place = {"_event_bin_file": "mysql-bin.00001", "_event_pos": value}
    return {"_event_seq": f"00001.{value}", "_change_operation_type": change, **place}


def _postgres(kind: str, value: int) -> dict[str, Any]:
    return {"_event_lsn": value, "_change_operation_type": {"D": "d", "U": "u", "N": "c"}[kind]}


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns of a table beside id, name and n, and how an operation is told in them."""

    columns: Mapping[str, pa.DataType]
    tell: Callable[[str, int], dict[str, Any]]
    ordering: str
    absent: str | None = None  # the name of a row of kind N

    @property
    def schema(self) -> pa.Schema:
        first = {"id": pa.string(), "name": pa.string(), "n": pa.int32()}
        return pa.schema([*first.items(), *self.columns.items()])

    def row(self, key: str, kind: str, value: int, batch_no: int) -> dict[str, Any]:
        """A row says in `name` and `n` which batch it came with; a delete has another n."""
        name = self.absent if kind == "N" else f"s{batch_no}"
        return {"id": key, "name": name, "n": batch_no + 10 * (kind == "D"), **self.tell(kind, value)}


PLAIN = Shape({"ts": pa.int64(), "_hoodie_is_deleted": pa.bool_()}, _plain, "ts")
DMS = Shape({"ts": pa.int64(), "Op": pa.string()}, _dms, "ts")
MYSQL = Shape(
    {
        "_event_seq": pa.string(),
        "_change_operation_type": pa.string(),
        "_event_bin_file": pa.string(),
        "_event_pos": pa.int64(),
    },
    _mysql,
    "_event_seq",
)
POSTGRES = Shape(
    {"_event_lsn": pa.int64(), "_change_operation_type": pa.string()}, _postgres, "_event_lsn", UNAVAILABLE
)

PAYLOADS: Mapping[str, Shape] = {
    "OverwriteWithLatestAvroPayload": PLAIN,
    "DefaultHoodieRecordPayload": PLAIN,
    "EventTimeAvroPayload": PLAIN,
    "FirstValueAvroPayload": PLAIN,
    "OverwriteNonDefaultsWithLatestAvroPayload": PLAIN,
    "PartialUpdateAvroPayload": PLAIN,
    "AWSDmsAvroPayload": DMS,
    "MySqlDebeziumAvroPayload": MYSQL,
    "PostgresDebeziumAvroPayload": POSTGRES,
}


def class_name(payload: str) -> str:
    """With its package."""
    return PACKAGE + ("debezium." if "Debezium" in payload else "") + payload


def keys() -> list[str]:
    """Every sequence; a statement only where it can find the key."""
    every = itertools.product("B-", OPERATIONS, "_X", OPERATIONS, OPERATIONS)
    return ["|".join(s) for s in every if s[2] == "_" or s[0] == "B" or s[1][0] in "UN"]


def batch(number: int, shape: Shape, chosen: Iterable[str] | None = None) -> pa.Table:
    """The rows of batch 0 to 3, of every sequence unless some are `chosen`."""
    rows = []
    for key in keys() if chosen is None else chosen:
        base, first, _, second, third = key.split("|")
        operation = ("U10" if base == "B" else "_", first, second, third)[number]
        if operation != "_":
            rows.append(shape.row(key, operation[0], int(operation[1:]), number))
    return pa.Table.from_pylist(rows, schema=shape.schema)


def state(rows: pa.Table) -> dict[str, list[State]]:
    """What the rows of a table hold, by key. A key that is there twice has two entries."""
    found: dict[str, list[State]] = {}
    names = rows.column_names
    ordering = next(n for n in ("ordering", "ts", "_event_seq", "_event_lsn") if n in names)
    values = rows[ordering].to_pylist()
    if ordering == "_event_seq":
        values = [v and int(v.split(".")[1]) for v in values]
    columns = (rows[n].to_pylist() for n in ("id", "name", "n"))
    for key, name, n, value in zip(*columns, values, strict=True):
        found.setdefault(key, []).append((name, n, value))
    return {key: sorted(states, key=repr) for key, states in found.items()}


def keep_dead(rows: dict[str, list[State]], shape: Shape, step: str) -> None:
    """Turn the copy-on-write rows of a rule that compares deletes into those of merge-on-read.

    A row that comes after a newer delete which came as data finds that delete still in the log and stays out. In batch 3
    there is none left: in batch 2 rows came after DELETE statements, for which every file slice was rewritten.
    """
    if step not in ("2", "3"):
        return
    for key in keys():
        base, first, _, second, third = key.split("|")
        late = second[0] in "UN" and first[0] == "D" and int(second[1:]) < int(first[1:])
        if base != "B" or not late or int(first[1:]) <= 10:
            continue
        rows.pop(key, None)
        if step == "3" and third[0] in "UN":
            rows[key] = [(shape.absent if third[0] == "N" else "s3", 3, int(third[1:]))]


def create(path: Path | str, payload: str, type_: str, version: int) -> lakesql.Table:
    """An empty table for the sequences."""
    shape = PAYLOADS[payload]
    split = version == 9 and payload == "MySqlDebeziumAvroPayload"
    return lakesql.create_table(
        str(path),
        shape.schema,
        type=type_,
        primary_key=["id"],
        ordering_fields=["_event_bin_file", "_event_pos"] if split else [shape.ordering],
        version=version,
        properties={"hoodie.compaction.payload.class": class_name(payload)},
    )


def play(table: lakesql.Table, shape: Shape, step: str, chosen: list[str] | None = None) -> lakesql.WriteResult:
    """Take one step: write a batch, or run the DELETE statement."""
    if step != "X":
        return table.upsert(batch(int(step), shape, chosen), **SETTINGS)
    gone = [key for key in (keys() if chosen is None else chosen) if key.split("|")[2] == "X"]
    return table.delete(pa.table({"id": pa.array(gone, pa.string())}))


def golden(name: str, table: str) -> pa.Table:
    """The rows that Apache Hudi has: `name` logs (read from its own tables) or writes (its copy-on-write tables)."""
    return pq.read_table(FOLDER / f"{name}.parquet", filters=[("table", "=", table)])
