"""The statements lakesql runs itself, one frozen class each: what `statements.parse` makes and `connection` runs.

Expressions, conditions and queries are the user's text, cut out of the statement and not looked into; `Text` keeps
where each piece came from, so that an error can point at it. Names are tuples of identifiers without quotes,
outermost first.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

Name = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of a statement and its position there."""

    sql: str
    start: int


@dataclass(frozen=True, slots=True)
class Passed:
    """Not ours: goes to DuckDB as it is."""

    sql: str


@dataclass(frozen=True, slots=True)
class Assignment:
    """`column = value`, or one column of an INSERT with its value."""

    column: str
    value: Text
    start: int
    path: tuple[str, ...] = ()
    """Fields below a struct column: `SET addr.city = e` sets the field `city` of `addr` and keeps the others."""


@dataclass(frozen=True, slots=True)
class Clause:
    """One WHEN of a MERGE. `assignments` is None for `*` and for actions that set nothing."""

    kind: str  # matched, not_matched, by_source
    action: str  # update, delete, insert, nothing, error
    condition: Text | None
    assignments: tuple[Assignment, ...] | None
    start: int
    by_position: bool = False
    """INSERT VALUES without a column list: the columns are the table's, in order."""
    message: Text | None = None
    """What THEN ERROR says."""


@dataclass(frozen=True, slots=True)
class Merge:
    """MERGE INTO. `on` or `using_columns` is set."""

    target: Name
    alias: str
    source: Text
    source_alias: str | None
    on: Text | None
    using_columns: tuple[str, ...]
    clauses: tuple[Clause, ...]
    ctes: str
    spark: bool
    returning: tuple[Text, ...] = ()
    evolves: bool = False
    """WITH SCHEMA EVOLUTION: columns of the source that the table lacks are added."""


@dataclass(frozen=True, slots=True)
class Update:
    """UPDATE t SET ... WHERE."""

    target: Name
    alias: str
    assignments: tuple[Assignment, ...]
    where: Text | None
    ctes: str
    spark: bool
    returning: tuple[Text, ...] = ()


@dataclass(frozen=True, slots=True)
class Delete:
    """DELETE FROM t WHERE."""

    target: Name
    alias: str
    where: Text | None
    ctes: str
    spark: bool
    returning: tuple[Text, ...] = ()


@dataclass(frozen=True, slots=True)
class Insert:
    """INSERT INTO / OVERWRITE. A partition without value is dynamic: its values come from the query."""

    target: Name
    columns: tuple[str, ...] | None
    by_name: bool
    overwrite: bool
    partition: tuple[tuple[str, Text | None], ...]
    source: Text
    ctes: str
    spark: bool
    returning: tuple[Text, ...] = ()


@dataclass(frozen=True, slots=True)
class Truncate:
    """TRUNCATE TABLE t."""

    target: Name


@dataclass(frozen=True, slots=True)
class Column:
    """A column of CREATE TABLE, or one that PARTITIONED BY defines with a type."""

    name: str
    type: Text
    nullable: bool
    comment: str | None


@dataclass(frozen=True, slots=True)
class CreateTable:
    """CREATE TABLE ... USING hudi."""

    target: Name
    if_not_exists: bool
    columns: tuple[Column, ...]
    partitioned_by: tuple[str, ...]
    location: str | None
    comment: str | None
    properties: Mapping[str, str]
    query: Text | None
    spark: bool


@dataclass(frozen=True, slots=True)
class DropTable:
    """DROP TABLE t."""

    target: Name
    if_exists: bool
    purge: bool


@dataclass(frozen=True, slots=True)
class ShowProperties:
    """SHOW TBLPROPERTIES t [('key')]."""

    target: Name
    key: str | None


@dataclass(frozen=True, slots=True)
class ShowTables:
    """SHOW TABLES LIKE 'pattern'."""

    pattern: str


@dataclass(frozen=True, slots=True)
class ShowColumns:
    """SHOW COLUMNS IN t."""

    target: Name


@dataclass(frozen=True, slots=True)
class CreateSecret:
    """CREATE SECRET of an object store."""

    name: str
    kind: str
    values: Mapping[str, tuple[str, ...]] = field(repr=False)
    replace: bool
    if_absent: bool
    persistent: bool


@dataclass(frozen=True, slots=True)
class DropSecret:
    """DROP SECRET [IF EXISTS] name."""

    name: str
    if_there: bool


@dataclass(frozen=True, slots=True)
class SetSetting:
    """SET hoodie.x = y; without a value it shows the setting."""

    key: str
    value: str | None


@dataclass(frozen=True, slots=True)
class ResetSetting:
    """RESET hoodie.x; without a key all of them."""

    key: str | None


@dataclass(frozen=True, slots=True)
class Explain:
    """EXPLAIN of a statement that changes rows: what it would write, or with `fates` what becomes of every row."""

    statement: Merge | Update | Delete | Insert
    fates: bool


@dataclass(frozen=True, slots=True)
class Call:
    """CALL procedure(name => value, ...); an argument by position has no name."""

    procedure: str
    arguments: tuple[tuple[str | None, Text], ...]


@dataclass(frozen=True, slots=True)
class Option:
    """One entry of a map of options; the value is the user's text, a literal or a parameter."""

    key: str
    value: Text
    start: int


@dataclass(frozen=True, slots=True)
class Ingest:
    """INGEST INTO ... FROM KAFKA. `into` is a table's name, a text with {topic}, or with `files` a folder."""

    into: Name
    files: bool
    options: tuple[Option, ...]
    format: str | None
    function: str | None
    """The name of the registered function of FORMAT PYTHON."""
    format_options: tuple[Option, ...]
    output: str | None
    properties: Mapping[str, str]
    partitioned_by: tuple[str, ...]
    query: Text | None
    start: int


@dataclass(frozen=True, slots=True)
class CreateIngestion:
    """CREATE INGESTION name AS INGEST ..."""

    ingestion: str
    replace: bool
    if_not_exists: bool
    ingest: Ingest


@dataclass(frozen=True, slots=True)
class RunIngestion:
    """RUN INGESTION name [WITH (options)]"""

    ingestion: str
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True)
class ShowIngestion:
    """SHOW INGESTION name"""

    ingestion: str


@dataclass(frozen=True, slots=True)
class AlterIngestion:
    """ALTER INGESTION name SET OPTIONS (...)"""

    ingestion: str
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a partition is to be read from. `kind`: offset, earliest, latest or timestamp."""

    partition: int | None
    """None: every partition that is not named."""
    kind: str
    value: Text | None
    start: int


@dataclass(frozen=True, slots=True)
class SetOffsets:
    """ALTER INGESTION name SET OFFSETS (topic 'orders', 0 = 1200, 1 = earliest, ...)"""

    ingestion: str
    places: tuple[tuple[str, tuple[Place, ...]], ...]
    """By topic; the topic '' is the only one that the ingestion has."""


Places = tuple[tuple[str, tuple[Place, ...]], ...]
"""By topic; the topic '' is the only one that the ingestion has."""


@dataclass(frozen=True, slots=True)
class ReplayIngestion:
    """REPLAY INGESTION name FROM place [TO place] [WITH (options)]; `begin` None: FROM QUARANTINE"""

    ingestion: str
    begin: Places | None
    end: Places | None
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True)
class DropIngestion:
    """DROP INGESTION [IF EXISTS] name"""

    ingestion: str
    if_exists: bool


@dataclass(frozen=True, slots=True)
class ExplainIngest:
    """EXPLAIN INGEST ... | RUN INGESTION ... | REPLAY INGESTION ...: the plan, without reading a record."""

    statement: Ingest | RunIngestion | ReplayIngestion


Ingestion = (
    Ingest
    | CreateIngestion
    | RunIngestion
    | ReplayIngestion
    | ShowIngestion
    | AlterIngestion
    | SetOffsets
    | DropIngestion
)
Change = Merge | Update | Delete | Insert | Truncate
Show = ShowProperties | ShowTables | ShowColumns
Statement = (
    Change
    | CreateTable
    | DropTable
    | Show
    | CreateSecret
    | DropSecret
    | SetSetting
    | ResetSetting
    | Explain
    | Call
    | Ingestion
    | ExplainIngest
    | Passed
)
