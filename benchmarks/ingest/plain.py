"""What a person would write: confluent-kafka, json or fastavro record by record, pyarrow to a Parquet file.

No offsets are kept, nothing is merged, a bad record ends it: less work than an ingestion does.
"""

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Consumer, TopicPartition
from fastavro import parse_schema, schemaless_reader

from benchmarks.ingest.records import AVRO_SCHEMA

ROWS = 100_000
SCHEMA = pa.schema(
    [("id", pa.int64()), ("ts", pa.int64()), ("customer", pa.string()), ("amount", pa.float64()), ("note", pa.string())]
)


def run(brokers: str, topic: str, form: str, target: Path) -> int:
    """Read the whole topic into one file; how many records that were."""
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "plain", "enable.auto.commit": False})
    partitions = sorted(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
    left = 0
    for number in partitions:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10)
        left += high - low
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    avro = parse_schema(AVRO_SCHEMA)
    waiting: list[dict[str, Any]] = []
    total = 0
    with pq.ParquetWriter(target, SCHEMA) as writer:
        while left > 0:
            for message in consumer.consume(10_000, timeout=1.0):
                if message.error():
                    raise RuntimeError(message.error())
                value = message.value()
                waiting.append(json.loads(value) if form == "json" else schemaless_reader(BytesIO(value), avro, None))
                left -= 1
            if len(waiting) >= ROWS or left <= 0:
                writer.write_table(pa.Table.from_pylist(waiting, schema=SCHEMA))
                total += len(waiting)
                waiting = []
    consumer.close()
    return total
