"""The servers that other tests use do what those rely on."""

import pytest
from confluent_kafka import TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.kafka.mock import MockCluster
from tests.kafka.produce import Record, produce


def bounds(brokers, topic, partition=0):
    admin = AdminClient({"bootstrap.servers": brokers})
    at = TopicPartition(topic, partition)
    return [
        admin.list_offsets({at: spec})[at].result(10).offset for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
    ]


def topic_id(brokers, topic):
    admin = AdminClient({"bootstrap.servers": brokers})
    return str(admin.describe_topics(TopicCollection([topic]))[topic].result(10).topic_id)


def test_produce_says_where_each_record_lies(mock_kafka):
    topic = mock_kafka.create("t", 3)
    records = [b"a", Record(b"b", b"key", [("h", b"x")], 1000, 2), None]
    assert produce(mock_kafka.brokers, topic, records, partition=1, compression="zstd") == [(1, 0), (2, 0), (1, 1)]
    assert bounds(mock_kafka.brokers, topic, 1) == [0, 2]


def test_deleted_records_move_the_earliest_offset_of_the_mock_cluster(mock_kafka):
    topic = mock_kafka.create("t")
    produce(mock_kafka.brokers, topic, [b"a"] * 5, partition=0)
    mock_kafka.delete_records(topic, 0, 3)
    assert bounds(mock_kafka.brokers, topic) == [3, 5]


def test_a_topic_of_the_mock_cluster_made_again_has_another_id(mock_kafka):
    topic = mock_kafka.create("t")
    first = topic_id(mock_kafka.brokers, topic)
    mock_kafka.delete(topic)
    mock_kafka.create(topic)
    assert topic_id(mock_kafka.brokers, topic) != first


def test_making_a_topic_twice_is_refused():
    with MockCluster() as cluster:
        cluster.create("t")
        with pytest.raises(RuntimeError, match="topic_create"):
            cluster.create("t")
