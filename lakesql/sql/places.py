"""Where the rows of a MERGE's stage are stored, so that `write` need not look for their keys again, and the late look at
the values that are stored. Pure.

Reading the target sets the pace of a MERGE: of 5M rows of 8 columns the key costs 0.15 s of CPU, every number 0.07 s,
every text of many values 0.15 s, and whether rows match makes no difference, since every page has some. So a column is
read once and only where the result depends on it. The stage takes the place of each matched row with it, which saves
`write` a scan of keys and ordering values. An update is compared with the stored row in one column first, and in
the others only where that one is equal.

    __lakesql_slice_no, __lakesql_row_no   the place of the target row, as `table.read` numbers it; NULL without one
    __lakesql_ord_0 ...                    the ordering values that are stored

The places of a MERGE are those of all rows that `write` would find (`tells`) when ON compares nothing but the key, or
the key and the partition columns, with columns of the same types: a row of the source without a match then has a key
that the table does not have. Those of an UPDATE or DELETE are when its condition is a plain one on the key alone
(`chosen_by_key`). DOUBTS finds what types do not tell: a stored record key that is not made of the key column, and an
row of the partition of NULL, whose rows ON never matches. Then, and where the table has changed by the
time it is written, keys are looked up as for any other batch.
"""

from collections.abc import Iterable, Mapping, Sequence

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lakesql.sql.lexer import IDENTIFIERS, tokens
from lakesql.sql.merge_names import On, Target
from lakesql.sql.stage import KEY, OP, PATH, SAME, STAGE
from lakesql.table.keys import NULL_PARTITION
from lakesql.table.names import literal, quote
from lakesql.table.read import SLICE_NO
from lakesql.table.scan import ROW_NO

_KEY_KINDS = ("VARCHAR", "INTEGER", "BIGINT")
PATH_KINDS = (*_KEY_KINDS, "DATE")
_QUICK = ("TIMESTAMP", "DOUBLE", "FLOAT", "DECIMAL", "BIGINT", "INTEGER", "DATE")
"""Types that are likely to differ after an update and cheap to read, best first."""


def tells(target: Target, on: On, source_types: Mapping[str, str]) -> bool:
    """Whether the rows that ON matches are all rows of the table with the keys of the stage. See DOUBTS.

    `source_types`: type by lower-case name.
    """
    if on.extra or len(target.key_fields) != 1 or target.columns[target.key_fields[0]] not in _KEY_KINDS:
        return False
    others = set(on.pairs) - set(target.key_fields)
    if others and not (target.plain_paths and others == set(target.partition_fields)):
        return False
    if any(target.columns[f] not in PATH_KINDS for f in others):
        return False
    return all(_type_of(value, source_types) == target.columns[column] for column, value in on.pairs.items())


_PLAIN = (
    exp.And, exp.Or, exp.Not, exp.Paren, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between, exp.In, exp.Like,
    exp.Cast, exp.DataType, exp.Literal, exp.Boolean, exp.Null, exp.Neg, exp.Column, exp.Identifier, exp.Tuple,
    exp.Select, exp.From, exp.Table, exp.TableAlias, exp.Where, exp.Star, exp.Alias, exp.Subquery,
)  # fmt: skip


def chosen_by_key(condition: str | None, alias: str, target: Target) -> bool:
    """Whether the rows of an UPDATE or DELETE are chosen by a plain condition on the key alone, so that it chooses all rows
    of a key or none."""
    if condition is None or len(target.key_fields) != 1 or target.columns[target.key_fields[0]] not in _KEY_KINDS:
        return False
    try:
        node = sqlglot.parse_one(f"SELECT {condition}", read="duckdb").expressions[0]
    except SqlglotError:
        return False
    if not all(isinstance(part, _PLAIN) for part in node.walk()):
        return False
    others = {c.lower() for c in target.columns} - {target.key_fields[0].lower()}
    for column in node.find_all(exp.Column):
        first, *rest = [p.name.lower() for p in column.parts]
        # A name without a table may be one of the target, even inside of a subquery; what looks like a table, a field of one.
        names = [first, *rest[:1]] if first == alias.lower() else [first]
        if any(name in others or name.startswith("_") for name in names):
            return False
    return not takes_whole_rows([condition], alias)


def takes_whole_rows(texts: Iterable[str], alias: str) -> bool:
    """Whether expressions name the row as a value (`t`, `t.*`, COLUMNS(...)), which has the columns of a place then."""
    for text in texts:
        found = tokens(text)
        for before, token, after in zip([None, *found], found, [*found[1:], None], strict=False):
            dotted = before is not None and before.text == "."
            if token.kind in IDENTIFIERS and token.name.lower() == alias.lower() and not dotted:
                if after is None or after.text != ".":
                    return True
            elif token.word == "COLUMNS" or (token.text == "*" and (before is None or before.text in ".(,")):
                return True
    return False


def _type_of(value: str, source_types: Mapping[str, str]) -> str | None:
    """The type of a column of the source; None for any other expression."""
    try:
        node = sqlglot.parse_one(f"SELECT {value}", read="duckdb").expressions[0]
    except SqlglotError:
        return None
    return source_types.get(node.name.lower()) if isinstance(node, exp.Column) and len(node.parts) <= 2 else None


def fields(alias: str, target: Target) -> list[str]:
    """What the stage has of a row's place."""
    ords = [f"{alias}.{quote(f)} AS {_ord(i)}" for i, f in enumerate(target.ordering_fields)]
    return [f"{alias}.{SLICE_NO}", f"{alias}.{ROW_NO}", *ords]


def found_sql(target: Target, several: bool) -> str:
    """The live rows of the table that have a key of the stage, as `table.read.keys_sql` gives them.

    `several`: the stage may have a row of the table more than once."""
    ords = "".join(f", {_ord(i)} AS ord_{i}" for i in range(len(target.ordering_fields)))
    return (
        f"SELECT {'DISTINCT ' if several else ''}{KEY} AS record_key, {SLICE_NO} AS slice_no, {ROW_NO} AS row_no, true AS live{ords}, "
        f"false AS own FROM {STAGE} WHERE {SLICE_NO} IS NOT NULL"
    )


def doubts_sql(target: Target, on: On | None = None) -> str:
    """DOUBTS: yields a row when what is found may not be all."""
    odd_key = f"{SLICE_NO} IS NOT NULL AND {OP} IN ('upsert', 'delete') AND {KEY} IS DISTINCT FROM {target.key_sql}"
    doubts = [f"({odd_key})"]
    for field in set(on.pairs if on else ()) - set(target.key_fields):
        text = f"coalesce(CAST({quote(field)} AS VARCHAR), '')"
        doubts.append(f"({OP} = 'insert' AND {text} IN ('', {literal(NULL_PARTITION)}))")
        doubts.append(f"({SLICE_NO} IS NOT NULL AND contains({PATH}, {literal(NULL_PARTITION)}))")
    return f"SELECT 1 FROM {STAGE} WHERE {' OR '.join(doubts)} LIMIT 1"


def first_compared(compared: Sequence[str], target: Target) -> str:
    """The column in which an update is compared first: one that is read anyway, or that is likely to differ."""

    def rank(column: str) -> int:
        kind = target.columns[column].partition("(")[0].partition(" ")[0]
        return -1 if column in target.ordering_fields else _QUICK.index(kind) if kind in _QUICK else len(_QUICK)

    return min(compared, key=rank)


def differing_sql(target: Target, columns: Sequence[str]) -> str:
    """Takes SAME from the rows that differ from the stored ones in `columns`."""
    differ = " OR ".join(f"s.{quote(c)} IS DISTINCT FROM t.{quote(c)}" for c in columns)
    place = f"t.{SLICE_NO} = s.{SLICE_NO} AND t.{ROW_NO} IS NOT DISTINCT FROM s.{ROW_NO} AND t.{KEY} = s.{KEY}"
    other = f"SELECT s.rowid FROM {STAGE} s JOIN ({target.placed}) t ON {place} WHERE s.{SAME} AND ({differ})"
    return f"UPDATE {STAGE} SET {SAME} = false WHERE rowid IN ({other})"


def _ord(number: int) -> str:
    return quote(f"__lakesql_ord_{number}")
