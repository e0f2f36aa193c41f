"""The table functions about Kafka, on any registered connection.

    kafka_offsets(t)                     what the ingestions of a table, or of a folder of files, have stored
    kafka_offsets(topics, brokers := )   what the brokers have; `topics` are regular expressions, as in topic.whitelist
    kafka_lag(t)                         how far a table is behind its topics: of a named ingestion, or with brokers, now;
                                         else as it was when the last run was planned
    kafka_ingest_runs(t)                 the commits of its ingestions
    kafka_quarantine(t)                  the records that could not be decoded
    kafka_scan(topic, brokers := )       the records of a topic, for a look; nothing is committed

`options := MAP {...}` takes settings of the client as an ingestion does, SSL and SASL among them.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from lakesql.errors import SQLError
from lakesql.ingest import definitions, kafka, stored, tables
from lakesql.ingest.front import resolved
from lakesql.ingest.model import Bounds, Client, State, TopicPartition
from lakesql.ingest.secrets import hidden
from lakesql.ingest.settings import job_of
from lakesql.ingest.state import runs_table
from lakesql.sql.instance import Arguments, Free, Instance
from lakesql.sql.results import rows_sql, table_sql
from lakesql.storage import Storage, open_storage
from lakesql.table.state import PROPERTIES
