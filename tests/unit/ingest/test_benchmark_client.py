"""The benchmark of the client alone reads every record in each of its cases."""

import json

import pytest

from benchmarks.ingest.client import CASES, json_record, produce_json, ranges_of
from lakesql.ingest.kafka import open_client
from tests.kafka.mock import MockCluster


@pytest.fixture(scope="module")
def filled():
    with MockCluster() as cluster:
        cluster.create("bench", 3)
        size = produce_json(cluster.brokers, "bench", 3000)
        yield open_client({"bootstrap.servers": cluster.brokers}), size


@pytest.mark.parametrize("case", CASES)
def test_each_case_reads_every_record(filled, case):
    client, _ = filled
    assert CASES[case](client, ranges_of(client, "bench")) == 3000


def test_records_are_json_of_about_a_hundred_bytes(filled):
    _, size = filled
    assert [json.loads(json_record(n))["id"] for n in range(100)] == list(range(100))
    assert 95 < size / 3000 < 125
