"""The nouns that pass between the steps of a write: what changes in a file slice, and which files are written.

Values without behaviour, so that tag, route, slices and commit need not know each other.
"""

from dataclasses import dataclass

CREATE, REWRITE, APPEND = "create", "rewrite", "append"

GIVEN, BATCH, FATE, MATCH = "__lakesql_given", "__lakesql_batch", "__lakesql_fate", "__lakesql_match"
"""TEMP tables of the caller's connection: the rows as given, where the user's settings matter (`given`), the rows to write
(`batch`), what becomes of them and where their keys are (`tag`)."""

COPIES = "__lakesql_copies"
"""TEMP table: how many rows of the table a row of the batch was made from, where these are several (`duplicates`)."""

RESOLVED = "__lakesql_resolved"
"""TEMP table: rows of the batch as they are after merging with the stored rows (`resolve`), by `place`."""

NUMBER = "__lakesql_number"
"""The column of BATCH that says which row of the input it was; two rows of one number stand or fall together."""

UPSERT, INSERT, DELETE, MARKED = range(4)
"""What is asked for, `__lakesql_op` of BATCH. DELETE is unconditional, MARKED compared by ordering value."""

INSERTED, UPDATED, DELETED, IGNORED = range(4)
"""What happens, `fate` of FATE."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What happens to one file slice: numbers of its keys."""

    updates: int = 0
    deletes: int = 0
    revived: int = 0  # inserts that belong here: a tombstone in this slice knows the key, or it is the key's bucket


NO_CHANGES = Changes()


@dataclass(frozen=True, slots=True)
class Target:
    """One file to write. Its inserts are those numbered [first_insert, first_insert + inserts) in its partition."""

    kind: str  # CREATE a base file of a new group, REWRITE a base file, APPEND a log file
    partition: str
    file_id: str
    slice_no: int | None  # index in the slices; None for a new group
    first_insert: int = 0
    inserts: int = 0
    changes: Changes = NO_CHANGES
