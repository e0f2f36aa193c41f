"""The stored procedures that `CALL name(...)` runs: Hudi's names, parameters and output columns, and a few of our own.

To add one: a Procedure in the PROCEDURES of the module of its topic. A procedure of Hudi that lakesql does not offer is in
ABSENT with the reason, so that a CALL of it says what to do instead.
"""

from lakesql.procedures import (
    advice,
    cleaning,
    clustering,
    commits,
    compaction,
    doctor,
    exports,
    files,
    ingestions,
    logs,
    metadata,
    repair,
    statistics,
    tables,
    undoing,
    views,
)
from lakesql.procedures import help as help_
from lakesql.procedures.declare import Procedure

_MODULES = (
    help_,
    advice,
    cleaning,
    clustering,
    commits,
    compaction,
    doctor,
    exports,
    files,
    ingestions,
    logs,
    metadata,
    repair,
    statistics,
    tables,
    undoing,
    views,
)

PROCEDURES: dict[str, Procedure] = {p.name: p for module in _MODULES for p in module.PROCEDURES}
"""Every procedure by its name."""

help_.offer(PROCEDURES)
