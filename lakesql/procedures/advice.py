"""`CALL advise(table => t)`: Copy-on-Write or Merge-on-Read, in numbers; the rows of `hudi_advice`."""

from lakesql.advice import ADVICE_SCHEMA, advise
from lakesql.procedures.declare import Call, Parameter, Procedure, Rows


def _advise(call: Call) -> Rows:
    rows: Rows = advise(call.con, call.state(), call["reads_per_write"], measure=call["measure"]).to_arrow().to_pylist()
    return rows


PROCEDURES = (
    Procedure(
        "advise",
        "Says whether the table should be Copy-on-Write or Merge-on-Read, with the numbers that decide it.",
        ADVICE_SCHEMA,
        _advise,
        (
            Parameter("reads_per_write", "DOUBLE", None, "snapshot reads of the whole table per commit"),
            Parameter("measure", "BOOLEAN", False, "correct the prices by running copies of the table as both types"),
        ),
    ),
)
