"""A Kafka cluster inside the client library, for tests without a JVM: `MockCluster()` starts in milliseconds.

Clients of this and of other processes reach it by `brokers`. What it cannot do: offsets by time, hiding aborted
records from read_committed, retention, topics made by CreateTopics (`create` makes them). A partition keeps about
5 MB, older records are gone. `broker` has a real one.
"""

import ctypes
import sys
from types import TracebackType

from lakesql import demo_broker

NO_ERROR = 0
CONTROLLER = 1  # the id of the first broker

# Request types of the protocol, for `fail`.
PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
API_VERSIONS, DESCRIBE_TOPICS = 18, 75

# Errors of the protocol, for `fail`.
OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC, NOT_LEADER, TOPIC_DENIED, TRANSPORT = 1, 3, 6, 29, -195


def _library() -> ctypes.CDLL:
    """The librdkafka that confluent_kafka has loaded, with the types of the functions used here."""
    import confluent_kafka  # noqa: F401  loads the library with what it needs itself

    path = demo_broker.librdkafka()
    if path is None:
        raise RuntimeError(f"no librdkafka comes with confluent_kafka on {sys.platform}")
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
        ("rd_kafka_mock_topic_create", number, (pointer, text, number, number)),
        ("rd_kafka_mock_topic_delete", number, (pointer, text)),
        ("rd_kafka_mock_topic_set_error", None, (pointer, text, number)),
        ("rd_kafka_mock_partition_delete_records", number, (pointer, text, ctypes.c_int32, ctypes.c_int64)),
        (  # variable arguments follow
            "rd_kafka_mock_partition_push_request_errors",
            number,
            (pointer, text, ctypes.c_int32, ctypes.c_int16, ctypes.c_size_t),
        ),
        ("rd_kafka_mock_partition_set_leader", number, (pointer, text, ctypes.c_int32, ctypes.c_int32)),
        (
            "rd_kafka_mock_push_request_errors_array",
            None,
            (pointer, ctypes.c_int16, ctypes.c_size_t, ctypes.POINTER(number)),
        ),
        ("rd_kafka_mock_clear_request_errors", None, (pointer, ctypes.c_int16)),
        ("rd_kafka_mock_set_controller_id", number, (pointer, ctypes.c_int32)),
        ("rd_kafka_mock_set_apiversion", number, (pointer, ctypes.c_int16, ctypes.c_int16, ctypes.c_int16)),
        ("rd_kafka_mock_broker_set_down", number, (pointer, ctypes.c_int32)),
        ("rd_kafka_mock_broker_set_up", number, (pointer, ctypes.c_int32)),
        ("rd_kafka_mock_broker_set_rtt", number, (pointer, ctypes.c_int32, number)),
    ):
        function = getattr(library, name)
        function.restype = result
        if arguments:
            function.argtypes = arguments
    return library


class MockCluster:
    """A cluster with one broker or several; a context manager. `brokers` is its bootstrap list."""

    def __init__(self, brokers: int = 1) -> None:
        self._library = _library()
        configuration = self._library.rd_kafka_conf_new()
        error = ctypes.create_string_buffer(512)
        for name, value in ((b"log_level", b"0"), (b"client.id", b"mock-cluster")):
            self._library.rd_kafka_conf_set(configuration, name, value, error, 512)
        self._owner = self._library.rd_kafka_new(0, configuration, error, 512)
        if not self._owner:
            raise RuntimeError(f"mock cluster: {error.value.decode()}")
        self._cluster = self._library.rd_kafka_mock_cluster_new(self._owner, brokers)
        self.brokers: str = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()
        self._must("set_controller_id", CONTROLLER)  # describe_topics, which has topic ids, needs one

    def _must(self, function: str, *arguments: object) -> None:
        code = getattr(self._library, f"rd_kafka_mock_{function}")(self._cluster, *arguments)
        if code != NO_ERROR:
            raise RuntimeError(f"mock cluster: {function}{arguments} gave error {code}")

    def create(self, topic: str, partitions: int = 1) -> str:
        """Make a topic; its name comes back."""
        self._must("topic_create", topic.encode(), partitions, 1)
        return topic

    def delete(self, topic: str) -> None:
        """Delete a topic with its records; made again it has another id."""
        self._must("topic_delete", topic.encode())

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete what lies before this offset, as retention does."""
        self._must("partition_delete_records", topic.encode(), partition, before)

    def fail(self, request: int, *errors: int) -> None:
        """Answer the next requests of this type with these errors, one each; 0 is no error."""
        self._library.rd_kafka_mock_push_request_errors_array(
            self._cluster, request, len(errors), (ctypes.c_int * len(errors))(*errors)
        )

    def fail_partition(self, topic: str, partition: int, request: int, *errors: int) -> None:
        """The same for the part of an answer that is about one partition."""
        codes = map(ctypes.c_int, errors)
        self._must("partition_push_request_errors", topic.encode(), partition, request, len(errors), *codes)

    def recover(self, request: int) -> None:
        """Forget the errors of `fail` that have not been given yet."""
        self._library.rd_kafka_mock_clear_request_errors(self._cluster, request)

    def topic_error(self, topic: str, error: int) -> None:
        """Answer requests for metadata of this topic with an error; 0 ends that."""
        self._library.rd_kafka_mock_topic_set_error(self._cluster, topic.encode(), error)

    def set_leader(self, topic: str, partition: int, broker: int) -> None:
        """Move a partition to another broker; -1: it has no leader."""
        self._must("partition_set_leader", topic.encode(), partition, broker)

    def set_controller(self, broker: int) -> None:
        self._must("set_controller_id", broker)

    def disable(self, request: int) -> None:
        """Act like an old broker that does not know this type of request."""
        self._must("set_apiversion", request, -1, -1)

    def down(self, broker: int = -1) -> None:
        """Cut connections and accept none; -1: of all brokers."""
        self._must("broker_set_down", broker)

    def up(self, broker: int = -1) -> None:
        self._must("broker_set_up", broker)

    def delay(self, milliseconds: int, broker: int = -1) -> None:
        """Let every answer take this long."""
        self._must("broker_set_rtt", broker, milliseconds)

    def close(self) -> None:
        if self._cluster:
            self._library.rd_kafka_mock_cluster_destroy(self._cluster)
            self._library.rd_kafka_destroy(self._owner)
            self._cluster = None

    def __enter__(self) -> "MockCluster":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
