"""A Kafka cluster for `lakesql demo` where no broker is: the mock cluster inside librdkafka, which the extra `[kafka]` brings.

It lives in this process, listens on this machine only, and forgets everything at its end.
"""

import ctypes
import importlib.util
import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_TIMEOUT_S = 10.0


def librdkafka() -> Path | None:
    """The file of librdkafka that comes with confluent-kafka; None when there is none to be found."""
    found = importlib.util.find_spec("confluent_kafka")
    if found is None or not found.origin:
        return None
    package = Path(found.origin).parent
    places = (package.parent / "confluent_kafka.libs", package / ".dylibs", package)
    files = itertools.chain.from_iterable(sorted(place.glob("librdkafka*")) for place in places if place.is_dir())
    return next((one for one in files if ".so" in one.name or one.suffix == ".dylib"), None)


@contextmanager
def cluster(file: Path, topic: str, partitions: int) -> Iterator[str]:
    """The address of a cluster of one broker with a topic."""
    import confluent_kafka  # noqa: F401  loads the library with what it needs itself

    rd = ctypes.CDLL(str(file))
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    rd.rd_kafka_conf_new.restype = rd.rd_kafka_new.restype = rd.rd_kafka_mock_cluster_new.restype = pointer
    rd.rd_kafka_mock_cluster_bootstraps.restype = text
    configuration, error = pointer(rd.rd_kafka_conf_new()), ctypes.create_string_buffer(512)
    rd.rd_kafka_conf_set(configuration, b"log_level", b"0", error, ctypes.c_size_t(512))
    owner = pointer(rd.rd_kafka_new(0, configuration, error, ctypes.c_size_t(512)))
    made = pointer(rd.rd_kafka_mock_cluster_new(owner, 1))
    try:
        rd.rd_kafka_mock_set_controller_id(made, 1)
        rd.rd_kafka_mock_topic_create(made, topic.encode(), partitions, 1)
        yield rd.rd_kafka_mock_cluster_bootstraps(made).decode()
    finally:
        rd.rd_kafka_mock_cluster_destroy(made)
        rd.rd_kafka_destroy(owner)


def send(brokers: str, topic: str, records: Sequence[tuple[bytes, bytes]], partitions: int) -> None:
    """Key and value of each record, spread over the partitions by key."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 1, "log_level": 0})
    for key, value in records:
        producer.produce(topic, value, key, sum(key) % partitions)
    producer.flush(_TIMEOUT_S)
