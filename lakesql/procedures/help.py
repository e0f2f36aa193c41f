"""`CALL help()`: every procedure with what it does, and those of Hudi that lakesql does not offer, with the reason."""

from collections.abc import Iterator, Mapping

from lakesql.errors import SQLError
from lakesql.procedures.declare import Call, Parameter, Procedure, Rows, columns

_METASTORE = "lakesql knows no metastore; a table is its folder."
_BUILT = "lakesql builds no metadata table; Spark builds one at its next write. CALL delete_metadata_table removes it."
_AUDIT = (
    "The lock of lakesql is one of the operating system, held by a process and gone with it; there is no log to audit."
)
ABSENT: dict[str, str] = {
    "hive_sync": _METASTORE,
    "sync_validate": f"{_METASTORE} CALL commits_compare compares two copies of a table.",
    "validate_hoodie_sync": f"{_METASTORE} CALL commits_compare compares two copies of a table.",
    "create_metadata_table": _BUILT,
    "init_metadata_table": _BUILT,
    "set_audit_lock": _AUDIT,
    "show_audit_lock_status": _AUDIT,
    "validate_audit_lock": _AUDIT,
    "cleanup_audit_lock": _AUDIT,
    "partition_bucket_index_manager": "A bucket index has one number of buckets for the whole table here.",
    "hdfs_parquet_import": "INSERT INTO t SELECT * FROM 'file.parquet' does it.",
    "run_bootstrap": "CREATE TABLE ... USING hudi AS SELECT * FROM 'folder/*.parquet' takes a Parquet table over.",
    "show_bootstrap_mapping": "Bootstrapped tables are not read.",
    "show_bootstrap_partitions": "Bootstrapped tables are not read.",
    "downgrade_table": "A table keeps the version it was made with; copy it into a new table of the other version.",
    "upgrade_table": "A table keeps the version it was made with; copy it into a new table of the other version.",
}
"""Procedures of Hudi that are not here, and why or what to do instead."""

_offered: dict[str, Procedure] = {}


def offer(procedures: Mapping[str, Procedure]) -> None:
    """Tell `help` what there is; called once, when all modules are known."""
    _offered.clear()
    _offered.update(procedures)


def _help(call: Call) -> Rows:
    name = call["cmd"]
    if name is None:
        return _all()
    found = _offered.get(name.lower())
    if found is None:
        if name.lower() in ABSENT:
            return [{"procedure": name, "parameters": "", "description": f"not here: {ABSENT[name.lower()]}"}]
        raise SQLError(f"CALL help: there is no procedure {name}; CALL help() lists them.")
    return [_row(found)]


def _all() -> Iterator[dict[str, str]]:
    for name in sorted(_offered):
        yield _row(_offered[name])
    for name, reason in sorted(ABSENT.items()):
        yield {"procedure": name, "parameters": "", "description": f"not here: {reason}"}


def _row(procedure: Procedure) -> dict[str, str]:
    return {"procedure": procedure.name, "parameters": procedure.signature(), "description": procedure.doc}


PROCEDURES = (
    Procedure(
        "help",
        "Lists the procedures; with a name, that one.",
        columns(procedure="text", parameters="text", description="text"),
        _help,
        (Parameter("cmd", "VARCHAR", None, "name of a procedure"),),
        of_table=False,
    ),
)
