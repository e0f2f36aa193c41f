"""The real parts of a run: the client, the targets, the decoders and the limits that a job asks for."""

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from threading import Lock, Semaphore
from typing import cast

import duckdb

from lakesql.ingest import kafka, topics
from lakesql.ingest.decode import decoder_factory
from lakesql.ingest.file_sink import FileSink
from lakesql.ingest.hudi_rows import evolves
from lakesql.ingest.hudi_sink import HudiSink
from lakesql.ingest.limits import limited, permits
from lakesql.ingest.metrics import current
from lakesql.ingest.model import Decoder, Fetched, Job, Limit, Sample, Sink
from lakesql.ingest.plan import plan_run
from lakesql.ingest.run import Parts, targets
from lakesql.storage import open_storage
from lakesql.table.state import PROPERTIES, load_head
from lakesql.write.names_of_settings import SYNONYMS
from lakesql.write.table_options import new_table_options


def assemble(job: Job, con: duckdb.DuckDBPyConnection) -> Parts:
    """What a run of this job is joined from; a context that gives everything back. JobError for what cannot be made."""
    pool, decoders = permits(job.limit), _Decoders(job)
    decoder_factory(job.format)  # what is wrong with the format is said before anything else
    return Parts(
        client=kafka.open_client(job.client, isolation=job.isolation, readers=max(1, min(job.workers, job.max_tasks))),
        select=lambda asked, there: [topic.name for topic in topics.selected(there, asked)],
        plan=plan_run,
        sink=lambda path, of: _sink(con, job, path, of),
        decoder=decoders,
        limiter=lambda: _Limited(job.limit, pool),
        sampled=decoders.learn,
    )


def _sink(con: duckdb.DuckDBPyConnection, job: Job, path: str, of: tuple[str, ...]) -> Sink:
    if job.target.kind == "files":
        return FileSink(job, path, con=con)
    return HudiSink(con, job, path, of)


class _Decoders:
    """Decoders by the topics of a target; those of one target share schemas and columns."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._lock = Lock()
        self._sample: Sample | None = None
        self._made: dict[tuple[str, ...], Callable[[], Decoder]] = {}

    def learn(self, sample: Sample) -> None:
        """How the first records of a topic are had."""
        self._sample = sample

    def __call__(self, of: tuple[str, ...]) -> Decoder:
        with self._lock:
            if of not in self._made:
                self._made[of] = self._factory(of)
        return self._made[of]()

    def _factory(self, of: tuple[str, ...]) -> Callable[[], Decoder]:
        job, target = self._job, self._job.target
        schema, keys, evolve = None, tuple[str, ...](), False
        if target.kind == "hudi":
            [path] = targets(target.path, of)
            storage = open_storage(path)
            if storage.stat(PROPERTIES) is not None:
                table = load_head(storage)
                keys = table.config.record_key_fields
                schema = table.schema if target.select is None else None
                evolve = evolves({**table.config.properties, **job.settings, **target.options})
            else:
                given = {k: v for k, v in target.options.items() if k in SYNONYMS}
                keys = new_table_options(target.properties, target.partition_by, job.name, given).primary_key
        return decoder_factory(job.format, schema, keys, metrics=current, sample=self._sample, evolve=evolve)


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
