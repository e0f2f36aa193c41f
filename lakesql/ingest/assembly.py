"""The real parts of a run: the client, the targets, the decoders and the limits that a job asks for."""

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from threading import Semaphore
from typing import cast

import duckdb

from lakesql.ingest import kafka, topics
from lakesql.ingest.decode import decoder_factory
from lakesql.ingest.file_sink import FileSink
from lakesql.ingest.hudi_sink import HudiSink
from lakesql.ingest.limits import limited, permits
from lakesql.ingest.model import Fetched, Job, Limit, Sink
from lakesql.ingest.plan import plan_run
from lakesql.ingest.run import Parts


def assemble(job: Job, con: duckdb.DuckDBPyConnection) -> Parts:
    """What a run of this job is joined from; a context that gives everything back. JobError for what cannot be made."""
    decoders = decoder_factory(job.format, None)
    pool = permits(job.limit)
    return Parts(
        client=kafka.open_client(job.client, isolation=job.isolation, readers=max(1, min(job.workers, job.max_tasks))),
        select=lambda asked, there: [topic.name for topic in topics.selected(there, asked)],
        plan=plan_run,
        sink=lambda path, of: _sink(con, job, path, of),
        decoder=lambda _of: decoders(),
        limiter=lambda: _Limited(job.limit, pool),
    )


def _sink(con: duckdb.DuckDBPyConnection, job: Job, path: str, of: tuple[str, ...]) -> Sink:
    if job.target.kind == "files":
        return FileSink(job, path, lambda topic: _options(job, topic))
    return HudiSink(con, job, path, of)


def _options(job: Job, topic: str) -> Mapping[str, str]:
    """The settings of a topic's files: those of the job, and what is said for the topic alone."""
    return {**job.target.options, **topics.settings_of(job, topic)}


class _Limited:
    """The limit of one pass of a task; knows afterwards whether it ended the pass."""

    def __init__(self, limit: Limit | None, pool: Semaphore | None) -> None:
        self._limit, self._pool = limit, pool
        self._ended = False
        self.stopped: str | None = None

    def wrap(self, fetched: Iterator[Fetched]) -> Iterator[Fetched]:
        """The same, until the limit."""
        with closing(cast(Generator[Fetched], limited(self._watched(fetched), self._limit, self._pool))) as within:
            yield from within
        if not self._ended and self._limit is not None:
            self.stopped = self._limit.kind

    def _watched(self, fetched: Iterator[Fetched]) -> Iterator[Fetched]:
        with closing(cast(Generator[Fetched], fetched)):
            yield from fetched
        self._ended = True
