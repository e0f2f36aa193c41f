"""Golden tables without a disk: a zip of tests/golden/tables as MemoryStorage."""

import zipfile
from pathlib import Path

from lakesql.storage import MemoryStorage

FOLDER = Path(__file__).parent / "golden" / "tables"


def names() -> list[str]:
    """One plain table of each kind of writer; the golden tests read all of them."""
    return [
        "h015_complexkey_mor",
        "h120_nullpartition_mor",
        "quickstart_trips_table_mor_avro_v6_trips_8i1u",
        "r060_cow_v8_archived",
        "r060_mor_v8_commit_time",
    ]


def open_zip(name: str) -> MemoryStorage:
    """The first table in the zip of that name; its metadata table is left out."""
    storage = MemoryStorage(name)
    with zipfile.ZipFile(FOLDER / f"{name}.zip") as archive:
        (root,) = {path.partition("/.hoodie/")[0] for path in archive.namelist() if "/.hoodie/" in path}
        for entry in archive.infolist():
            path = entry.filename.removeprefix(f"{root}/")
            if path != entry.filename and not entry.is_dir() and not path.startswith(".hoodie/metadata/"):
                storage.put(path, archive.read(entry))
    storage.requests.clear()
    return storage
