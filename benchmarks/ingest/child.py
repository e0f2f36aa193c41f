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

CASES = ("client", "lakesql", "plain")


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


def client_case(arguments: argparse.Namespace) -> Callable[[], int]:
    """The client alone: the same tasks, in as many threads, and every batch is dropped."""
    import duckdb

    from lakesql.ingest import assembly
    from lakesql.ingest.run import planned

    def call() -> int:
        one, rows = job(arguments), list[int]()
        with assembly.assemble(one, duckdb.connect()) as parts:
            tasks = list(planned(one, parts).tasks)

            def work() -> None:
                while tasks:
                    ranges = tasks.pop().ranges
                    for fetched in parts.client.read(ranges, one.reset, one.fetch_timeout_s):
                        rows.append(fetched.batch.num_rows)

            threads = [threading.Thread(target=work) for _ in range(arguments.workers)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        return sum(rows)

    return call


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
    call = {"client": client_case, "lakesql": lakesql_case, "plain": plain_case}[arguments.case](arguments)
    rows = list[int]()
    found = measure(lambda: rows.append(call()), 1)
    print(json.dumps({"case": arguments.case, "form": arguments.form, "records": rows[0], **found}))


if __name__ == "__main__":
    main()
