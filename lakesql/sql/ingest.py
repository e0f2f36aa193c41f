"""The statements about ingestion run: INGEST, EXPLAIN INGEST, and CREATE, RUN, SHOW, ALTER and DROP INGESTION.

A statement becomes a definition, the definition a job (`lakesql.ingest.front`), and what the run did a table: one row for
each partition. Here are only the things of a connection: names of tables, parameters, views of new tables, settings.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from os import PathLike
from typing import Any

import duckdb
import pyarrow as pa

from lakesql.errors import LakeError, SQLError, TableError
from lakesql.ingest import definitions, front, moving, replay, tables
from lakesql.ingest.definitions import Definition
from lakesql.ingest.front import Work
from lakesql.ingest.metrics import Metrics
from lakesql.ingest.model import Plan, Report
from lakesql.ingest.moving import Wanted
from lakesql.ingest.progress import Progress
from lakesql.ingest.replay import Replay
from lakesql.ingest.secrets import hidden, masked
from lakesql.sql import views
from lakesql.sql.cursor import string_value
from lakesql.sql.lexer import tokens
from lakesql.sql.nodes import (
    AlterIngestion,
    CreateIngestion,
    CreateTable,
    DropIngestion,
    ExplainIngest,
    Ingest,
    Option,
    Places,
    ReplayIngestion,
    RunIngestion,
    SetOffsets,
    ShowIngestion,
    Text,
)  # fmt: skip
from lakesql.sql.options import options_of
from lakesql.sql.results import message_sql, pairs_sql
from lakesql.sql.session import Session
from lakesql.storage import open_storage
from lakesql.table.state import PROPERTIES, read_config
from lakesql.write import WriteResult

TOPIC = "{topic}"


def ingest(session: Session, statement: Ingest) -> pa.Table:
    """Run an ingestion that has no name of its own: its offsets go by the name of the target."""
    definition = _definition(session, statement, None)
    return run(session, definition)


def run_ingestion(session: Session, statement: RunIngestion) -> pa.Table:
    """Run a named ingestion, with some settings for this time alone."""
    return run(session, _changed(session, statement))


def replay_ingestion(session: Session, statement: ReplayIngestion) -> pa.Table:
    """Read an old range again into the table of a named ingestion, or decode its quarantine again; its offsets stay."""
    asked = _asked(session, statement)
    return run(session, _changed(session, statement), asked)


def _asked(session: Session, statement: ReplayIngestion) -> Replay:
    end = None if statement.end is None else _wanted(session, statement.end)
    begin = None if statement.begin is None else _wanted(session, statement.begin)
    return Replay(begin, end, [option.key for option in statement.options])


def explain(session: Session, statement: ExplainIngest) -> pa.Table:
    """The plan of a run; no record is read and nothing is written."""
    inner = statement.statement
    definition = _definition(session, inner, None) if isinstance(inner, Ingest) else _changed(session, inner)
    with hidden(definition.options):
        work = work_of(session, definition)
        if isinstance(inner, ReplayIngestion):
            with session.instance.cursor() as con:
                return tables.plan(replay.plan(con, work, _asked(session, inner)), work.remarks)
        return tables.plan(plan_of(session, work), work.remarks)


def create(session: Session, statement: CreateIngestion) -> str:
    """Keep a definition in the warehouse; the job is looked at, no broker is asked."""
    name = statement.ingestion
    definition = _definition(session, statement.ingest, name)
    with hidden(definition.options):
        work = work_of(session, definition)
    there = name in definitions.names(session.warehouse)
    if there and statement.if_not_exists:
        return message_sql(f"Ingestion {name} exists.")
    if there and not statement.replace:
        raise SQLError(f"ingestion {name} exists. DROP INGESTION {name} first, or use OR REPLACE or IF NOT EXISTS.")
    if there:
        definitions.change(session.warehouse, definition, _now(session))
    elif not definitions.create(session.warehouse, definition, _now(session)):
        raise SQLError(f"ingestion {name} was created by another session meanwhile. SHOW INGESTION {name} shows it.")
    return message_sql(_said(session, f"Created ingestion {name}.", definition, work))


def alter(session: Session, statement: AlterIngestion) -> str:
    """Change some settings of a definition."""
    before = definitions.require(session.warehouse, statement.ingestion)
    given = _values(session, statement.options)
    _require_same_name(given, statement.ingestion)
    after = before.with_options(given)
    with hidden(after.options):
        work = work_of(session, after)
    definitions.change(session.warehouse, after, _now(session))
    return message_sql(_said(session, f"Changed ingestion {after.name}: {', '.join(given)}.", after, work))


def set_offsets(session: Session, statement: SetOffsets) -> pa.Table:
    """Let an ingestion go on elsewhere: a commit without rows. Before and after, and what that skips or repeats."""
    definition = definitions.require(session.warehouse, statement.ingestion)
    wanted = _wanted(session, statement.places)
    with hidden(definition.options), session.instance.cursor() as con:
        work = work_of(session, definition)
        return moving.move(con, work.job, wanted, dry_run=False, now_ms=session.clock())


def _wanted(session: Session, places: Places) -> Wanted:
    return {
        topic: {p.partition: (p.kind, None if p.value is None else _value(session, p.value)) for p in of}
        for topic, of in places
    }


def drop(session: Session, statement: DropIngestion) -> str:
    """Forget a definition. The target keeps its rows and its offsets."""
    name = statement.ingestion
    if definitions.drop(session.warehouse, name):
        return message_sql(
            f"Dropped ingestion {name}. Its target keeps rows and offsets: an ingestion of that name goes on there."
        )
    if statement.if_exists:
        return message_sql(f"There is no ingestion {name}.")
    definitions.require(session.warehouse, name)
    raise AssertionError(name)  # it came back meanwhile


def show(session: Session, statement: ShowIngestion) -> str:
    """A definition: its statement, its settings, secrets masked, where it is kept."""
    found = definitions.require(session.warehouse, statement.ingestion)
    rows: list[tuple[str, str | None]] = [
        ("statement", found.statement()),
        ("target", f"files in {found.into}" if found.files else path_of(session, found.into)),
        ("kept in", definitions.location(session.warehouse, found.name)),
    ]
    rows += [(f"options: {k}", v) for k, v in masked(found.options).items()]
    rows += [(f"format: {k}", v) for k, v in masked(found.format_options).items()]
    return pairs_sql(rows)


# ---------------------------------------------------------------- running


def run(session: Session, definition: Definition, asked: Replay | None = None) -> pa.Table:
    """Run a definition, or replay what is asked of it; the report as a table. Raised is what hindered it, when it stored nothing."""
    with hidden(definition.options):
        work = work_of(session, definition)
        with session.progress() as progress:
            report = run_work(session, work, progress, asked=asked)
        if report.failures and not any(c.commit for c in report.committed.values()):
            raise report.failures[0]
    return tables.report(report)


def run_work(
    session: Session,
    work: Work,
    progress: Progress | None = None,
    metrics: Metrics | None = None,
    asked: Replay | None = None,
) -> Report:
    """Run a job on this connection's tables; also what it leaves: views of new tables, the last result."""
    session.instance.release(session.owner)
    with session.instance.cursor() as con:
        if asked is not None:
            report = replay.run(con, work, asked, progress, metrics)
        else:
            report = front.run(con, work, progress, metrics)
    _show_tables(session, report)
    session.last_result = result_of(report)
    return report


def plan_of(session: Session, work: Work) -> Plan:
    """What a run would read."""
    with session.instance.cursor() as con:
        return front.plan(con, work)


def work_of_file(session: Session, file: str | PathLike[str], changed: Mapping[str, str], strict: bool) -> Work:
    """The job of a job file on this connection."""
    return front.work_of_file(file, changed, lambda name: path_of(session, name), strict)


def work_of(session: Session, definition: Definition) -> Work:
    """The job of a definition on this connection. SQLError for a name that is taken by something else."""
    if not definition.files and TOPIC not in definition.into:
        _require_place(session, definition)
    return front.work_of(definition, lambda name: path_of(session, name), session.settings)


def path_of(session: Session, into: str) -> str:
    """The folder of the table that a target names; of a new one in the warehouse. {topic} stays."""
    if "/" in into:
        return open_storage(into).uri
    known = session.instance.path_of(into)
    if known is None and TOPIC not in into and views.refresh(session, {into.lower()}):
        known = session.instance.path_of(into)
    return known or session.managed_path(into)


def _require_place(session: Session, definition: Definition) -> None:
    """TableError before the run, for what would hinder the views of the table after it."""
    path = path_of(session, definition.into)
    name = path.rpartition("/")[2] if "/" in definition.into else definition.into
    storage = open_storage(path)
    if storage.stat(PROPERTIES) is not None:
        return
    if any(storage.list("")):
        raise TableError(
            f"table {name}: the folder {path} is not empty and holds no Hudi table. Choose another name for the target."
        )
    views.require_unused(session, name, path)
    kind = {k.lower(): v.lower() for k, v in definition.properties.items()}.get("type", "cow")
    views.require_free(session, name, kind in ("mor", "merge_on_read"))


def _show_tables(session: Session, report: Report) -> None:
    """Views of the tables that are new."""
    for path in report.committed:
        name = path.rpartition("/")[2]
        if session.instance.path_of(name) is None and open_storage(path).stat(PROPERTIES) is not None:
            try:
                views.add(session, name, path)
            except LakeError as error:
                session.problems[name.lower()] = error


def result_of(report: Report) -> WriteResult:
    """What a run did to its targets, in sum; the commit is the one of the last target."""
    done = [c for c in report.committed.values() if c.commit is not None]
    return WriteResult(
        instant=done[-1].commit if done else None,
        action=_action(report) if done else None,
        operation="ingest",
        rows_inserted=sum(c.inserted for c in done),
        rows_updated=sum(c.updated for c in done),
        rows_deleted=sum(c.deleted for c in done),
        rows_ignored=sum(c.ignored for c in done),
        files_written=sum(c.files for c in done),
        bytes_written=sum(c.bytes for c in done),
        duration_s=report.seconds,
        notes=tuple(dict.fromkeys((*report.notes, *(n for c in done for n in c.notes)))),
        rows_quarantined=sum(one.quarantined for one in report.partitions) if done else 0,
    )


def _action(report: Report) -> str:
    """The action of the last commit as the timeline names it; of a folder of files: manifest."""
    path = [p for p, c in report.committed.items() if c.commit is not None][-1]
    with suppress(LakeError, FileNotFoundError):
        return "deltacommit" if read_config(open_storage(path)).is_mor else "commit"
    return "manifest"


# ---------------------------------------------------------------- from the statement


def _definition(session: Session, statement: Ingest, name: str | None) -> Definition:
    options = _values(session, statement.options)
    if name is not None:
        _require_same_name(options, name)
    into, options_name = _into(session, statement), options.get("job.name", "")
    definition = Definition(
        name or options_name or front.name_for(into),
        into,
        statement.files,
        options,
        statement.format,
        statement.function,
        _values(session, statement.format_options),
        statement.output,
        dict(statement.properties),
        statement.partitioned_by,
        None if statement.query is None else statement.query.sql,
    )
    if not statement.files:
        _check_properties(definition)
    return definition


def _into(session: Session, statement: Ingest) -> str:
    if statement.files:
        [folder] = statement.into
        return folder if "://" in folder and not folder.startswith("file:") else open_storage(folder).uri
    if len(statement.into) == 2 and statement.into[0].lower() == "hudi" and "/" in statement.into[1]:
        return open_storage(statement.into[1]).uri
    name = statement.into[-1]
    if "/" in name:
        return open_storage(name).uri
    return session.plain_name(statement.into)


def _check_properties(definition: Definition) -> None:
    """SQLError for properties that CREATE TABLE would not take."""
    options_of(
        CreateTable(
            (definition.into,), False, (), definition.partitioned_by, None, None, definition.properties, None, False
        ),
        definition.into,
    )


def _changed(session: Session, statement: RunIngestion | ReplayIngestion) -> Definition:
    found = definitions.require(session.warehouse, statement.ingestion)
    given = _values(session, statement.options)
    _require_same_name(given, statement.ingestion)
    return found.with_options(given)


def _require_same_name(options: Mapping[str, str], name: str) -> None:
    other = options.get("job.name", name)
    if other != name:
        raise SQLError(
            f"ingestion {name}: job.name = {other!r} contradicts its name, by which its offsets are kept. Leave job.name out."
        )


def _values(session: Session, options: Sequence[Option]) -> dict[str, str]:
    return {o.key: _value(session, o.value) for o in options}


def _value(session: Session, text: Text) -> str:
    """A literal without quotes, the value of a parameter, or the words as they are."""
    words = tokens(text.sql)
    if len(words) == 1 and words[0].kind in ("string", "quoted"):
        return string_value(words[0])
    if text.sql.startswith("getvariable("):
        try:
            found = session.con.execute(f"SELECT CAST({text.sql} AS VARCHAR)").fetchall()[0][0]
        except duckdb.Error as error:
            raise SQLError("a parameter of an ingestion must be a text, a number or a time.") from error
        if found is None:
            raise SQLError("a parameter of an ingestion is NULL; leave the setting out instead.")
        return str(found)
    return text.sql


def _said(session: Session, text: str, definition: Definition, work: Work) -> str:
    """What creating or changing a definition says: itself, remarks about settings, and where secrets lie open."""
    plain = definition.plain_secrets()
    if plain:
        text += (
            f" {', '.join(plain)}: stored in plain text in {definitions.location(session.warehouse, definition.name)};"
            " write ${env:NAME} as the value to keep it in the environment."
        )
    return " ".join([text, *work.remarks])


def _now(session: Session) -> str:
    return datetime.fromtimestamp(session.clock() / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


HANDLERS: dict[type, Callable[[Session, Any], str | pa.Table]] = {
    Ingest: ingest,
    CreateIngestion: create,
    RunIngestion: run_ingestion,
    ReplayIngestion: replay_ingestion,
    ShowIngestion: show,
    AlterIngestion: alter,
    SetOffsets: set_offsets,
    DropIngestion: drop,
    ExplainIngest: explain,
}
"""What runs each of the statements of ingestion."""
