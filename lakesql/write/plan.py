"""The nouns that pass between the steps of a write: what changes in a file slice, and which files are written.

Values without behaviour, so that tag, route, slices and commit need not know each other.
"""

from dataclasses import dataclass

CREATE, REWRITE, APPEND = "create", "rewrite", "append"

GIVEN, BATCH, FATE = "__lakesql_given", "__lakesql_batch", "__lakesql_fate"
COPIES = "__lakesql_copies"
"""TEMP tables of the caller's connection: the rows as given, where the user's settings matter (`write`), the rows to
write (`batch`), what becomes of them (`tag`), and how many rows of the table one of them stands for (`duplicates`)."""

UPSERT, INSERT, DELETE, MARKED = range(4)
"""What is asked for, `__lakesql_op` of BATCH. DELETE is unconditional, MARKED compared by ordering value."""

INSERTED, UPDATED, DELETED, IGNORED = range(4)
"""What happens, `fate` of FATE."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What happens to one file slice: numbers of its keys."""

    updates: int = 0
    deletes: int = 0
    revived: int = 0  # inserts of keys that a tombstone in this slice knows


NO_CHANGES = Changes()


@dataclass(frozen=True, slots=True)
class Target:
    """One file to write. Its inserts are those numbered [first_insert, first_insert + inserts) in its partition."""

    kind: str  # CREATE a base file of a new group, REWRITE a base file, APPEND a log file
    partition: str
    file_id: str
    slice_no: int | None  # index in the slices of the snapshot; None for a new group
    first_insert: int = 0
    inserts: int = 0
    changes: Changes = NO_CHANGES
