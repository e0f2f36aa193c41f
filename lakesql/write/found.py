"""Where the keys of a batch are, known from the statement that made the rows. A value.

A MERGE joins its source with the snapshot and so has met every stored row whose key its rows have. What it met stands in
for the look-up of keys as long as the table still has the same file slices; tombstones are looked up all the same.
"""

from dataclasses import dataclass

from lakesql.table.state import TableState


@dataclass(frozen=True, slots=True)
class Found:
    """`sql`: every live row with a key of the batch, as `table.read.keys_sql` gives them, on the writer's connection.
    Its slice numbers are those of a snapshot plan of `state`."""

    sql: str
    state: TableState
