"""Settings of a write: Hudi's names, parsed once into typed fields (defaults: hudi-format 10.1).

Unknown keys are allowed and ignored, as Hudi ignores them: a job may carry settings meant for other engines. A value
that cannot be parsed is a TableError, a value we know and cannot honour is Unsupported; both name the setting.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lakesql.errors import Unsupported
from lakesql.values import flag, fraction, one_of, parsed, size, whole

# Measured (numbers in `basefile`): zstd at level 1 writes as fast as snappy and its files are 40 % smaller; gzip,
# Hudi's default, takes many times as long. Spark reads, updates and compacts files of all of them (hudi-format 3.9).
DEFAULT_CODEC = "zstd"
CODECS = {"zstd": "zstd", "snappy": "snappy", "gzip": "gzip", "lz4_raw": "lz4", "uncompressed": "none", "none": "none"}

DUPLICATE_POLICIES = ("none", "drop", "fail")
INDEXES = ("", "SIMPLE", "BLOOM", "GLOBAL_SIMPLE", "GLOBAL_BLOOM", "BUCKET", "INMEMORY")
RETRIES = "lakesql.write.retries"
"""How often a statement that lost against another writer is run again."""

SORT_MODES = {
    "none": False,
    "global_sort": True,
    "partition_sort": True,
    "partition_path_repartition": False,
    "partition_path_repartition_and_sort": True,
}
"""`hoodie.bulkinsert.sort.mode` -> whether the rows of a partition are sorted by record key before they are cut into
files. The modes differ further only in how Spark spreads rows over tasks; here a partition is always written in one
piece."""


@dataclass(frozen=True, slots=True)
class WriteConfig:
    """One write's settings. Sizes are bytes, counts are rows."""

    max_file_bytes: int = 120 << 20
    small_file_bytes: int = 100 << 20
    small_file_candidates: int = 1
    insert_split_rows: int = 500_000
    record_bytes: int = 0  # 0: measured
    log_block_bytes: int = 256 << 20
    codec: str = CODECS[DEFAULT_CODEC]
    bloom_entries: int = 60_000
    bloom_fpp: float = 1e-9
    bloom_max_entries: int = 100_000
    lock_wait_ms: int = 60_000
    retries: int = 5
    duplicates: str = "none"
    combine_before_insert: bool = False
    timezone: str = ""
    bare_complex_keys: bool = False
    payload_class: str = ""  # for tables that cannot store one: version 6, copy-on-write
    index: str = ""  # one of INDEXES
    simple_index_moves: bool = True
    bloom_index_moves: bool = True
    buckets: int = 0  # 0: not given
    bucket_fields: str = ""
    bulk_insert_sorts: bool = False
    partial_updates: bool = False
    clustering_updates: str = ""  # "", "reject" or "allow"
    clustering_rollback: bool = False

    @property
    def clusterings_yield(self) -> bool:
        """Whether a pending clustering goes when a write needs its file groups."""
        return self.clustering_updates == "allow" or (self.clustering_rollback and self.clustering_updates != "reject")


def parse_settings(settings: Mapping[str, str]) -> WriteConfig:
    """The typed form of a job's settings. Raises TableError or Unsupported, naming the setting and its value."""
    _refuse(settings)
    return parsed(WriteConfig, _BY_FIELD, settings)


def _refuse(settings: Mapping[str, str]) -> None:
    index = str(settings.get("hoodie.index.type", "")).strip().upper()
    if index not in INDEXES:
        raise Unsupported(
            f"setting hoodie.index.type = {index}: lakesql knows {', '.join(filter(None, INDEXES))}. RESET "
            "hoodie.index.type, or write with Spark."
        )
    engine = str(settings.get("hoodie.index.bucket.engine", "")).strip().upper()
    if index == "BUCKET" and engine not in ("", "SIMPLE"):
        raise Unsupported(
            f"setting hoodie.index.bucket.engine = {engine}: the number of buckets changes over time; lakesql writes to "
            "SIMPLE bucket indexes only. Write with Spark."
        )
    mode = str(settings.get("hoodie.write.concurrency.mode", "SINGLE_WRITER")).upper()
    if mode == "NON_BLOCKING_CONCURRENCY_CONTROL":
        raise Unsupported(
            f"setting hoodie.write.concurrency.mode = {mode}: lakesql has one writer at a time. RESET "
            "hoodie.write.concurrency.mode, or set OPTIMISTIC_CONCURRENCY_CONTROL."
        )


def _codec(text: str) -> str:
    if text.lower() not in CODECS:
        raise ValueError(f"must be one of {', '.join(CODECS)}")
    return CODECS[text.lower()]


def _sort_mode(text: str) -> bool:
    if text.lower() not in SORT_MODES:
        raise ValueError(f"must be one of {', '.join(SORT_MODES).upper()}")
    return SORT_MODES[text.lower()]


def _update_strategy(text: str) -> str:
    words = {"SparkRejectUpdateStrategy": "reject", "SparkAllowUpdateStrategy": "allow"}
    name = text.rsplit(".", 1)[-1]
    if name not in words:
        raise ValueError(f"must be one of {', '.join(words)}")
    return words[name]


_BY_FIELD: dict[str, tuple[str, Callable[[str], Any]]] = {
    "max_file_bytes": ("hoodie.parquet.max.file.size", size(1)),
    "small_file_bytes": ("hoodie.parquet.small.file.limit", whole),
    "small_file_candidates": ("hoodie.merge.small.file.group.candidates.limit", size(0)),
    "insert_split_rows": ("hoodie.copyonwrite.insert.split.size", size(1)),
    "record_bytes": ("hoodie.copyonwrite.record.size.estimate", size(1)),
    "log_block_bytes": ("hoodie.logfile.data.block.max.size", size(1)),
    "codec": ("hoodie.parquet.compression.codec", _codec),
    "bloom_entries": ("hoodie.index.bloom.num_entries", size(1)),
    "bloom_fpp": ("hoodie.index.bloom.fpp", fraction),
    "bloom_max_entries": ("hoodie.bloom.index.filter.dynamic.max.entries", size(1)),
    "lock_wait_ms": ("hoodie.write.lock.wait_time_ms", size(0)),
    "retries": (RETRIES, size(0)),
    "duplicates": ("hoodie.datasource.insert.dup.policy", one_of(*DUPLICATE_POLICIES)),
    "combine_before_insert": ("hoodie.combine.before.insert", flag),
    "timezone": ("hoodie.table.timeline.timezone", one_of("utc", "local")),
    "payload_class": ("hoodie.datasource.write.payload.class", str),
    "bare_complex_keys": ("hoodie.write.complex.keygen.new.encoding", flag),
    "index": ("hoodie.index.type", str.upper),
    "simple_index_moves": ("hoodie.simple.index.update.partition.path", flag),
    "bloom_index_moves": ("hoodie.bloom.index.update.partition.path", flag),
    "buckets": ("hoodie.bucket.index.num.buckets", size(1)),
    "bucket_fields": ("hoodie.bucket.index.hash.field", str),
    "clustering_updates": ("hoodie.clustering.updates.strategy", _update_strategy),
    "clustering_rollback": ("hoodie.clustering.rollback.pending.replacecommit.on.conflict", flag),
    "bulk_insert_sorts": ("hoodie.bulkinsert.sort.mode", _sort_mode),
    "partial_updates": ("hoodie.spark.sql.merge.into.partial.updates", flag),
}

SETTINGS = frozenset(name for name, _ in _BY_FIELD.values())
"""The settings that have a meaning for a write."""
