"""The operations of Hudi as rows of a table, and the rules by which their rows become a batch.

Adding a verb is adding a row; the road (`write`) does not ask which verb it walks for.
"""

from dataclasses import dataclass

import duckdb

from lakesql.errors import TableError
from lakesql.table import keys, read
from lakesql.table.merge import rule_of
from lakesql.table.state import TableState
from lakesql.write.batch import Rules
from lakesql.write.index import SIMPLE, Index
from lakesql.write.plan import DELETE, INSERT, UPSERT
from lakesql.write.settings import WriteConfig


@dataclass(frozen=True, slots=True)
class Verb:
    """How an operation differs from the others."""

    operation: str  # operationType of the commit
    default_op: int  # what a row asks for that does not say
    look_up: bool = False  # find where the key is
    combine: bool = False  # reduce the batch to one row per key
    new_groups_only: bool = False
    replaces: str = ""  # the file groups that go: those of the rows' 'partitions', or of the 'table'
    rows_written: bool = True  # False: rows only name partitions


VERBS = {
    "upsert": Verb("UPSERT", UPSERT, look_up=True, combine=True),
    "insert": Verb("INSERT", INSERT),
    "bulk_insert": Verb("BULK_INSERT", INSERT, new_groups_only=True),
    "delete": Verb("DELETE", DELETE, look_up=True, combine=True),
    "insert_overwrite": Verb("INSERT_OVERWRITE", INSERT, new_groups_only=True, replaces="partitions"),
    "insert_overwrite_table": Verb("INSERT_OVERWRITE_TABLE", INSERT, new_groups_only=True, replaces="table"),
    "delete_partition": Verb("DELETE_PARTITION", DELETE, replaces="partitions", rows_written=False),
}


def verb_of(operation: str) -> Verb:
    """The verb of that name; TableError for a name that is none."""
    if operation not in VERBS:
        raise TableError(f"operation {operation!r} is unknown. Use one of {', '.join(VERBS)}.")
    return VERBS[operation]


def action_of(verb: Verb, is_mor: bool) -> str:
    """The timeline action. A plain write to a merge-on-read table is a deltacommit, base files or not (10.7)."""
    if verb.replaces:
        return "replacecommit"
    return "deltacommit" if is_mor else "commit"


def rules_of(
    con: duckdb.DuckDBPyConnection, state: TableState, verb: Verb, settings: WriteConfig, index: Index = SIMPLE
) -> Rules:
    """The rules of `batch` for a verb on a table."""
    ordering = tuple(f for f in state.config.ordering_fields if f in state.schema.names)
    return Rules(
        default_op=verb.default_op,
        merge=rule_of(state.config, state.path, settings.payload_class or None),
        ordering=ordering,
        combine=verb.combine or (settings.combine_before_insert and verb.rows_written) or looks_up(verb, index),
        keys_generated=not state.config.record_key_fields,
        partitions_only=not verb.rows_written,
        key_style=_key_style(con, state, settings) if keys.styled(state.config) else None,
        keys_everywhere=index.everywhere,
    )


def looks_up(verb: Verb, index: Index) -> bool:
    """Whether existing keys are found. A bucket holds a key once, so what goes there is looked up always."""
    return verb.look_up or (index.buckets > 0 and verb.rows_written and not verb.replaces)


def _key_style(con: duckdb.DuckDBPyConnection, state: TableState, settings: WriteConfig) -> str:
    """Single-field complex keys are spelt in two ways; the table's own rows decide (hudi-format 6.2)."""
    prefixed = keys.record_key_sql(state.config, state.schema, keys.PREFIXED)
    (field,) = state.config.record_key_fields
    columns = ["_hoodie_record_key", field if field in state.schema.names else field.split(".")[0]]
    # Base files tell without decoding logs; only a table that has none yet needs them.
    for mode in ("read_optimized", "snapshot"):
        rows = read.to_sql(con, read.plan(state, mode=mode), columns)
        found = con.execute(f"SELECT _hoodie_record_key = {prefixed} FROM ({rows}) LIMIT 1").fetchall()
        if found:
            return keys.PREFIXED if found[0][0] else keys.BARE
    return keys.BARE if settings.bare_complex_keys and state.config.version < 9 else keys.default_style(state.config)
