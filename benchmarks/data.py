"""The data of the benchmarks: one generated source, the same rows as Hudi tables and as a Delta table.

Eight columns with a random key of 16 characters, so that no reader can prune files by key; ROWS_PER_FILE rows per base
file; the table `commits` has one commit per file. The updates change every hundredth row, the same share in each file,
and no key is new. Everything is made once per number of rows and kept below benchmarks/data; a case works on a copy
made of hard links.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

import lakesql

ROWS_PER_FILE = 250_000
UPDATED_SHARE = 100
DIRTY_FIFTH = 5  # of the files of mor_fifth one in so many has updates
ZSTD_LEVEL = 1  # lakesql's level, given to every other writer too
FORMAT = "3"  # of this folder; a new number makes the data anew

COLUMNS = """
    substr(md5(i::VARCHAR), 1, 16) AS id,
    make_timestamp(1700000000000000 + i * 1000 + {late}) AS event_time,
    (hash(i) % 200000)::BIGINT AS customer,
    (hash(i + 1) % 50)::INTEGER AS quantity,
    round((hash(i + 2) % 1000000) / 100.0 + {late}, 2)::DOUBLE AS amount,
    ['new', 'paid', 'sent', 'done', 'back'][(hash(i + 3) % 5 + 1)::BIGINT] AS status,
    'city ' || (hash(i + 4) % 200) AS city,
    'remark ' || (hash(i + 5) % 3000000) AS remark
"""


def prepare(folder: Path, rows: int) -> Path:
    """The data set of that many rows below `folder`, made when it is not there."""
    root = folder / f"rows-{rows}"
    done = root / "complete"
    if done.exists() and done.read_text() == FORMAT:
        return root
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    for name, source, late in (
        ("source", f"range(0, {rows}) t(i)", 0),
        ("updates", f"range(0, {rows}, {UPDATED_SHARE}) t(i)", 1),
    ):
        con.execute(f"COPY (SELECT {COLUMNS.format(late=late)} FROM {source}) TO '{root / name}.parquet'")
    updates = pq.read_table(root / "updates.parquet")
    few = updates.slice(0, updates.num_rows // DIRTY_FIFTH)  # keys of the first files alone
    for kind, folder_name, changed in (
        ("cow", "cow", None),
        ("mor", "mor", None),
        ("mor", "mor_upserted", updates),
        ("mor", "mor_fifth", few),
    ):
        table = new_table(root / folder_name, kind, updates.schema)
        table.bulk_insert(source_reader(root), **bulk_settings())
        if changed is not None:
            table.upsert(changed)
    table = new_table(root / "commits", "cow", updates.schema)
    for batch in source_batches(root):
        table.bulk_insert(batch, **bulk_settings())
    from deltalake import WriterProperties, write_deltalake  # of the extra `bench`, which only this peer needs

    for batch in source_batches(root):
        properties = WriterProperties(compression="ZSTD", compression_level=ZSTD_LEVEL)
        write_deltalake(str(root / "delta"), batch, mode="append", writer_properties=properties)
    done.write_text(FORMAT)
    return root


def new_table(path: Path, kind: str, schema: pa.Schema, config: dict[str, str] | None = None) -> lakesql.Table:
    return lakesql.create_table(
        str(path), schema, type=kind, primary_key=["id"], ordering_fields=["event_time"], config=config
    )


def bulk_settings() -> dict[str, str]:
    return {"hoodie.copyonwrite.insert.split.size": str(ROWS_PER_FILE)}


def source_batches(root: Path) -> Iterator[pa.Table]:
    """The source in tables of one base file each."""
    file = pq.ParquetFile(root / "source.parquet")
    for batch in file.iter_batches(ROWS_PER_FILE):
        yield pa.Table.from_batches([batch])


def source_reader(root: Path) -> pa.RecordBatchReader:
    """The source as a stream: the rows are never in Arrow all at once."""
    file = pq.ParquetFile(root / "source.parquet")
    return pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches(65_536))


def copy(root: Path, name: str, work: Path) -> Path:
    """A copy of a table; data files are never changed in place, so links do."""
    target = work / name
    shutil.copytree(root / name, target, copy_function=lambda a, b: Path(b).hardlink_to(a))
    return target


def base_files(table: Path) -> list[str]:
    return sorted(str(p) for p in table.glob("*.parquet"))
