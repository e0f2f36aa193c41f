"""One measurement in a process of its own: `python -m benchmarks.ingest.child CASE --brokers ... --topic ... --work ...`.

The last line of the output is JSON: records, seconds, CPU seconds, peak memory.
"""

import argparse
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.ingest.records import AVRO_SCHEMA, JSON_COLUMNS
from benchmarks.measure import measure

CASES = ("client", "reader", "lakesql", "plain")


def job_settings(brokers: str, topic: str, form: str, workers: int) -> dict[str, str]:
    """The job as a person has it in a file."""
    shared = {
        "job.name": f"bench-{topic}",
        "kafka.brokers": brokers,
        "topic.whitelist": topic,
        "bootstrap.with.offset": "earliest",
        "mr.job.max.mappers": str(workers),
        "taskexecutor.threadpool.size": str(workers),
        "lakesql.format": form,
    }
    if form == "json":
        return shared | {"lakesql.json.columns": JSON_COLUMNS}
    return shared | {"lakesql.wire": "none", f"gobblin.source.kafka.fixedSchema.{topic}": json.dumps(AVRO_SCHEMA)}


def job(arguments: argparse.Namespace) -> Any:
    from lakesql.ingest import settings as known
    from lakesql.ingest.model import Target

    made = job_settings(arguments.brokers, arguments.topic, arguments.form, arguments.workers)
    properties = {"type": "mor", "primaryKey": "id", "orderingFields": "ts"}
    target = Target("hudi", f"{arguments.work}/orders", arguments.operation, properties)
    return known.job_of(made, target=target).job


def lakesql_case(arguments: argparse.Namespace) -> Callable[[], int]:
    """A run into a new Merge-on-Read table."""
    import duckdb

    from lakesql.ingest import assembly
    from lakesql.ingest.run import run

    def call() -> int:
        one = job(arguments)
        with assembly.assemble(one, duckdb.connect()) as parts:
            report = run(one, parts)
        if report.exit_code:
            raise SystemExit("\n".join(str(failure) for failure in report.failures))
        return sum(one.written for one in report.partitions)

    return call


def tasks_case(arguments: argparse.Namespace, read: Callable[[Any, Any, Any], int]) -> Callable[[], int]:
    """The tasks of the plan, each read by `read(client, ranges, job)`, in as many threads; the records are dropped."""
    import duckdb

    from lakesql.ingest import assembly
    from lakesql.ingest.run import planned

    def call() -> int:
        one, rows = job(arguments), list[int]()
        with assembly.assemble(one, duckdb.connect()) as parts:
            tasks = list(planned(one, parts).tasks)

            def work() -> None:
                while tasks:
                    rows.append(read(parts.client, tasks.pop().ranges, one))

            threads = [threading.Thread(target=work) for _ in range(arguments.workers)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        return sum(rows)

    return call


def client_case(arguments: argparse.Namespace) -> Callable[[], int]:
    """The library's consumer alone: every message's value is taken."""
    from benchmarks.ingest.client import by_library

    return tasks_case(arguments, lambda client, ranges, _: by_library(client, ranges, values=True))


def reader_case(arguments: argparse.Namespace) -> Callable[[], int]:
    """lakesql's reader on top of it: record batches."""

    def read(client: Any, ranges: Any, one: Any) -> int:
        return sum(fetched.batch.num_rows for fetched in client.read(ranges, one.reset, one.fetch_timeout_s))

    return tasks_case(arguments, read)


def plain_case(arguments: argparse.Namespace) -> Callable[[], int]:
    from benchmarks.ingest.plain import run

    return lambda: run(arguments.brokers, arguments.topic, arguments.form, Path(arguments.work) / "orders.parquet")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=CASES)
    for name in ("brokers", "topic", "form", "work"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--operation", default=None)
    arguments = parser.parse_args()
    cases = {"client": client_case, "reader": reader_case, "lakesql": lakesql_case, "plain": plain_case}
    call = cases[arguments.case](arguments)
    rows = list[int]()
    found = measure(lambda: rows.append(call()), 1)
    print(json.dumps({"case": arguments.case, "form": arguments.form, "records": rows[0], **found}))


if __name__ == "__main__":
    main()
