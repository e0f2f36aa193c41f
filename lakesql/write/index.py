"""Which index a write uses to find keys: `hoodie.index.type`, from the job's settings or else from the table.

    SIMPLE            a key is looked up among all keys of its partition
    BLOOM             the same result, but files that cannot hold a key of the batch are not read (`prune`)
    GLOBAL_SIMPLE     a key is unique in the table: looked up in all partitions, and moved when its own changes (`moves`)
    GLOBAL_BLOOM      both
    BUCKET            the hash of the key says which file group of the partition holds it (`buckets`)
    not given         SIMPLE, or BLOOM where that is faster

Tables do not store which index their other writers use, except that file ids of a bucket index begin with the bucket's
number (hudi-format 3.1). Everything is decided here; nothing is read.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from lakesql.errors import TableError, Unsupported
from lakesql.format.files import FileSlice
from lakesql.table.state import TableState
from lakesql.write.settings import WriteConfig

SETTINGS = (
    "hoodie.index.type",
    "hoodie.simple.index.update.partition.path",
    "hoodie.bloom.index.update.partition.path",
    "hoodie.bucket.index.num.buckets",
    "hoodie.bucket.index.hash.field",
    "hoodie.index.bucket.engine",
)
"""What a table may hold as properties for its writers."""

# A random id starts with eight digits once in forty; with three zeros before, and on every group, it does not.
_BUCKET_ID = re.compile(r"000\d{5}-")


@dataclass(frozen=True, slots=True)
class Index:
    """How keys are found."""

    prunes: bool | None = False  # leave out files by their key range and Bloom filter; None: where it pays
    everywhere: bool = False  # a key is unique in the table, not just in its partition
    moves: bool = True  # `everywhere`: a row whose partition changed goes there; False: it stays where it is
    buckets: int = 0  # file groups per partition; 0: not a bucket index
    fields: tuple[str, ...] = ()  # of the record key, hashed to the bucket's number


SIMPLE = Index()


def of_table(state: TableState) -> Mapping[str, str]:
    """The index settings that the table itself holds; a job's settings go before them."""
    return {name: state.config.properties[name] for name in SETTINGS if state.config.properties.get(name)}


def bucket_of(file_slice: FileSlice) -> int:
    return int(file_slice.file_id[:8])


def index_of(state: TableState, settings: WriteConfig) -> Index:
    """The index of a write. Unsupported or TableError, saying what to set, where settings and table do not agree."""
    strange, bucketed = _groups(state, settings)
    kind = settings.index or ("BUCKET" if bucketed and settings.buckets else "")
    if kind == "BUCKET":
        if strange:
            raise Unsupported(
                f"{state.path}: hoodie.index.type is BUCKET, but file group {strange} is not a bucket: the table was "
                "written with another index. RESET hoodie.index.type."
            )
        return _bucket_index(state, settings)
    if bucketed:
        raise Unsupported(
            f"{state.path}: the file groups are buckets of a bucket index (for example {bucketed}), and the "
            "table does not store how many there are. SET hoodie.index.type = BUCKET and "
            "hoodie.bucket.index.num.buckets to the number that the table's other writers use."
        )
    return {
        "": Index(prunes=None),
        "SIMPLE": SIMPLE,
        "INMEMORY": SIMPLE,
        "BLOOM": Index(prunes=True),
        "GLOBAL_SIMPLE": Index(everywhere=True, moves=settings.simple_index_moves),
        "GLOBAL_BLOOM": Index(prunes=True, everywhere=True, moves=settings.bloom_index_moves),
    }[kind]


def is_bucketed(state: TableState, settings: WriteConfig) -> bool:
    """Whether the file groups are buckets, so that rows must not go to groups of another id."""
    return settings.index == "BUCKET" or bool(_groups(state, settings)[1])


def _groups(state: TableState, settings: WriteConfig) -> tuple[str, str]:
    """The id of a file group that is no bucket, and, when there is none, that of one that is; '' for none."""
    if settings.index != "BUCKET" and not any(_BUCKET_ID.match(f.file_id) for f in state.files):
        return "", ""
    ids = [one.file_id for one in state.slices()]
    strange = next((i for i in ids if not _BUCKET_ID.match(i)), "")
    return strange, "" if strange or not ids else ids[0]


def _bucket_index(state: TableState, settings: WriteConfig) -> Index:
    keys = state.config.record_key_fields
    if not settings.buckets:
        raise Unsupported(
            f"{state.path}: hoodie.index.type is BUCKET and the number of buckets is not given. SET "
            "hoodie.bucket.index.num.buckets to the number that all writers of this table use."
        )
    if not keys:
        raise TableError(f"{state.path}: a bucket index needs record keys, and the keys of this table are generated.")
    fields = tuple(f.strip() for f in settings.bucket_fields.split(",") if f.strip())
    foreign = [f for f in fields if f not in keys]
    if foreign:
        raise TableError(
            f"{state.path}: setting hoodie.bucket.index.hash.field names {foreign[0]}, which is no record key column "
            f"({', '.join(keys)}). Correct it or RESET hoodie.bucket.index.hash.field."
        )
    return Index(buckets=settings.buckets, fields=fields or keys)
