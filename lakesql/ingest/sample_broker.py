"""A Kafka broker for samples: the one that the client library has inside of it for tests. It starts in milliseconds.

Producers and consumers of this and of other processes reach it at `brokers`, for as long as the object lives. It keeps a
few MB of each partition in memory and knows no users, no encryption and no transactions; nothing to store data in.
"""

import ctypes
import itertools
from pathlib import Path
from types import TracebackType
from typing import Self

from lakesql.errors import Unsupported

_CONTROLLER = 1
_PRODUCER = 0


class SampleBroker:
    """One broker; a context manager, or `close()` it."""

    def __init__(self) -> None:
        self._library = _library()
        configuration = self._library.rd_kafka_conf_new()
        error = ctypes.create_string_buffer(512)
        self._library.rd_kafka_conf_set(configuration, b"log_level", b"0", error, 512)
        self._owner = self._library.rd_kafka_new(_PRODUCER, configuration, error, 512)
        if not self._owner:
            raise Unsupported(f"the sample broker does not start: {error.value.decode()}. Use a broker of your own.")
        self._cluster = self._library.rd_kafka_mock_cluster_new(self._owner, 1)
        self._library.rd_kafka_mock_set_controller_id(self._cluster, _CONTROLLER)
        self.brokers: str = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def create(self, topic: str, partitions: int = 1) -> str:
        """Make a topic; its name comes back. A topic that is not made so has four partitions."""
        code = self._library.rd_kafka_mock_topic_create(self._cluster, topic.encode(), partitions, 1)
        if code:
            raise Unsupported(f"the sample broker cannot make the topic {topic}: it is there already, or has no name.")
        return topic

    def close(self) -> None:
        """Stop; what was sent to it is gone."""
        if self._cluster:
            self._library.rd_kafka_mock_cluster_destroy(self._cluster)
            self._library.rd_kafka_destroy(self._owner)
            self._cluster = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<SampleBroker {self.brokers}>" if self._cluster else "<SampleBroker, closed>"


def _library() -> ctypes.CDLL:
    """The librdkafka that confluent_kafka has loaded, with the types of the functions used here."""
    try:
        import confluent_kafka
    except ImportError as error:
        raise Unsupported("the sample broker needs the Kafka client: pip install 'lakesql[kafka]'.") from error
    package = Path(confluent_kafka.__file__).parent
    places = (package.parent / "confluent_kafka.libs", package / ".dylibs", package)
    found = itertools.chain.from_iterable(place.glob("librdkafka*") for place in places if place.is_dir())
    path = next((one for one in found if ".so" in one.name or one.suffix == ".dylib"), None)
    if path is None:
        raise Unsupported(
            f"no librdkafka lies beside {package}, so there is no sample broker. Install confluent-kafka from its wheel, "
            "or use a broker of your own."
        )
    library = ctypes.CDLL(str(path))
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    for name, result, arguments in (
        ("rd_kafka_conf_new", pointer, ()),
        ("rd_kafka_conf_set", number, (pointer, text, text, text, ctypes.c_size_t)),
        ("rd_kafka_new", pointer, (number, pointer, text, ctypes.c_size_t)),
        ("rd_kafka_destroy", None, (pointer,)),
        ("rd_kafka_mock_cluster_new", pointer, (pointer, number)),
        ("rd_kafka_mock_cluster_destroy", None, (pointer,)),
        ("rd_kafka_mock_cluster_bootstraps", text, (pointer,)),
        ("rd_kafka_mock_set_controller_id", number, (pointer, ctypes.c_int32)),
        ("rd_kafka_mock_topic_create", number, (pointer, text, number, number)),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
