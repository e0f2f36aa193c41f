"""`lakesql ingest JOBFILE...`: run the job files of Apache Gobblin's Kafka source, or show what they would do.

Exit codes: 0 every partition reached its end or a limit, 3 some partition failed, 4 another run holds the lock, 5 the
configuration is wrong, 6 too many bad records, 7 another run was faster at the commit. Of several job files all run; the
first code that is not 0 counts. Lines go to standard output, one for each event; errors to standard error.
What runs an ingestion is loaded when one runs: the command line is told about this command at every start.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lakesql.errors import (
    CommitUnknown,
    IngestConflict,
    IngestError,
    IngestionRunning,
    JobError,
    LakeError,
    SQLError,
    TooManyBadRecords,
)  # fmt: skip
from lakesql.ingest.secrets import hide, secrets_of, without_secrets
from lakesql.sql.connection import Connection, connect
from lakesql.storage import open_storage
from lakesql.upkeep import keep, seconds_of

if TYPE_CHECKING:
    from lakesql.ingest.front import Work
    from lakesql.ingest.model import Committed, Plan, Report, TopicPartition
    from lakesql.ingest.progress import Bar, Lines, Progress

CODES: tuple[tuple[type[LakeError], int], ...] = (
    (IngestionRunning, 4),
    (JobError, 5),
    (SQLError, 5),
    (TooManyBadRecords, 6),
    (IngestConflict, 7),
    (IngestError, 3),
    (CommitUnknown, 3),
    (LakeError, 1),
)
"""Exit code of what stopped a run as a whole; the first that fits."""


def ingest(
    files: Annotated[
        list[Path], typer.Argument(metavar="JOBFILE...", help=".pull, .job, .properties, .conf or .json.")
    ],
    into: Annotated[
        str | None, typer.Option(metavar="TABLE", help="Write this Hudi table, in place of files; may hold {topic}.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be read; read and write nothing.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="One run of each job; this is the default.")] = False,
    every: Annotated[str | None, typer.Option(metavar="5m", help="Run again and again, so far apart.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting in place of the file's.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Unknown settings are an error.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines.")] = False,
    metrics: Annotated[
        str | None, typer.Option(metavar="FILE", help="Numbers of the run as OpenMetrics text; may hold {job}.")
    ] = None,
    warehouse: Annotated[str, typer.Option(metavar="DIR", help="Folder of the Hudi tables.")] = "warehouse",
) -> None:
    """Read topics of Kafka into Hudi tables or files, as a job file says."""
    with _exit_codes(without_secrets):
        changed = _changed(set_ or (), into)
    command = _Command(files, changed, dry_run, strict, as_json, metrics)
    with _exit_codes(command.hidden):
        if once and every is not None:
            raise JobError("--once and --every exclude each other.")
        if dry_run and every is not None:
            raise JobError("--dry-run shows one plan; leave --every out.")
        if metrics is not None and len(files) > 1 and "{job}" not in metrics:
            raise JobError(f"--metrics {metrics}: of several jobs each needs a file; put {{job}} into the name.")
        pause = None if every is None else _pause(every)
        with connect(warehouse=warehouse) as con:
            if pause is None:
                code = command.round(con)
            else:
                keep(lambda: command.again(con), command.say, pause)
                code = 0
    raise typer.Exit(code)


def _pause(text: str) -> float:
    try:
        return seconds_of(text)
    except LakeError as error:
        raise JobError(f"--every {error}") from error


def _changed(given: Sequence[str], into: str | None) -> dict[str, str]:
    """The settings of the command line. JobError for what is no setting."""
    from lakesql.ingest.front import INTO

    settings = {}
    for one in given:
        key, sign, value = one.partition("=")
        if not sign or not key.strip():
            raise JobError(f"--set {one.split()[0] if one.split() else ''}: write KEY=VALUE.")
        settings[key.strip()] = value.strip()
    if into is not None:
        settings[INTO] = into
    return settings


class _Command:
    """What the command line asks for, and what has been said already."""

    def __init__(
        self,
        files: Sequence[Path],
        changed: Mapping[str, str],
        dry_run: bool,
        strict: bool,
        as_json: bool,
        metrics: str | None,
    ) -> None:
        self._files, self._changed, self._dry_run, self._strict = files, dict(changed), dry_run, strict
        self._json, self._metrics = as_json, metrics
        self._secrets = secrets_of(changed)
        self._said: set[str] = set()
        self._rounds: dict[str, set[str]] | None = None  # by job: what earlier rounds have noted

    def again(self, con: Connection) -> str:
        """One round of many; the work has said what there is to say."""
        if self._rounds is None:
            self._rounds = {}
        self.round(con)
        return ""

    def round(self, con: Connection) -> int:
        """Each job once; the first exit code that is not 0. What stops a job does not stop the others, if there are any."""
        codes: list[int] = []
        for file in self._files:
            try:
                codes.append(self._one(con, file))
            except LakeError as error:
                if len(self._files) == 1:
                    raise
                codes.append(code_of(error))
                self.complain(error)
        return next((code for code in codes if code), 0)

    def _one(self, con: Connection, file: Path) -> int:
        work = con.ingestion_of(file, self._changed, self._strict)
        self._secrets |= secrets_of({**work.job.settings, **work.job.client})
        for remark in work.remarks:
            if (said := f"{work.job.name}: {remark}" if len(self._files) > 1 else remark) not in self._said:
                self._said.add(said)
                self.say(said)
        work = replace(work, remarks=())
        if self._dry_run:
            return self._show(con.plan_of(work))
        return self._run(con, work)

    def _show(self, plan: "Plan") -> int:
        from lakesql.ingest.report import plan_events, plan_lines

        for line in plan_events(plan) if self._json else plan_lines(plan):
            self.line(line)
        return 3 if any(one.error for one in plan.ranges) else 0

    def _run(self, con: Connection, work: "Work") -> int:
        from lakesql.ingest.metrics import Metrics
        from lakesql.ingest.openmetrics import openmetrics

        numbers = Metrics(work.job.name)
        with self._progress(work.job.name) as progress:
            report = con.run_ingestion(work, progress, numbers)
        if self._metrics is not None:
            file = Path(self._metrics.replace("{job}", work.job.name)).absolute()
            open_storage(file.parent).put(file.name, openmetrics(numbers, work.job.name).encode())
        for failure in report.failures:
            self.complain(failure)
        return report.exit_code

    @contextmanager
    def _progress(self, job: str) -> Iterator["Progress"]:
        from lakesql.ingest.progress import Bar, Lines

        rounds = None if self._rounds is None else self._rounds.setdefault(job, set())
        lines = Lines(self.line, self._json, rounds=rounds)
        if self._json or not (sys.stdout.isatty() and sys.stderr.isatty()):
            yield lines
            return
        with Bar() as bar:
            yield _LinesAndBar(lines, bar)

    # ------------------------------------------------------------ saying

    def hidden(self, text: str) -> str:
        """A text without the secrets of the jobs."""
        return hide(text, self._secrets)

    def line(self, text: str) -> None:
        """One line of output, as it is but for secrets."""
        typer.echo(self.hidden(text))

    def say(self, text: str) -> None:
        """A remark; nothing for nothing."""
        if text:
            self.line(json.dumps({"event": "note", "text": text}) if self._json else text)

    def complain(self, error: LakeError) -> None:
        """An error that does not end the command."""
        typer.echo(f"Error: {self.hidden(str(error))}", err=True)


class _LinesAndBar:
    """Plan and report as lines, and between them the bar."""

    def __init__(self, lines: "Lines", bar: "Bar") -> None:
        self._lines, self._bar = lines, bar

    def planned(self, plan: "Plan") -> None:
        self._lines.planned(plan)
        self._bar.planned(plan)

    def note(self, text: str) -> None:
        self._lines.note(text)

    def moved(self, at: "TopicPartition", offset: int, records: int, size: int) -> None:
        self._bar.moved(at, offset, records, size)

    def committing(self, target: str) -> None:
        self._bar.committing(target)

    def committed(self, target: str, done: "Committed") -> None:
        self._bar.committed(target, done)

    def finished(self, report: "Report") -> None:
        self._lines.finished(report)
        self._bar.finished(report)


# ---------------------------------------------------------------- exit codes


def code_of(error: LakeError) -> int:
    """The exit code of an error."""
    return next(code for kind, code in CODES if isinstance(error, kind))


@contextmanager
def _exit_codes(hidden: Callable[[str], str]) -> Iterator[None]:
    """Within, errors are said without secrets and end the command with their code."""
    try:
        yield
    except LakeError as error:
        typer.echo(f"Error: {hidden(str(error))}", err=True)
        raise typer.Exit(code_of(error)) from error
    except KeyboardInterrupt as error:
        typer.echo("Interrupted", err=True)
        raise typer.Exit(130) from error
