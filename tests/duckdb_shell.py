"""The stock DuckDB shell with `sql/hudi.sql`, started as a person starts it; one run answers many statements."""

import re
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

MACROS = Path(__file__).parents[1] / "sql" / "hudi.sql"
_COMPARING = duckdb.connect()
_COMPARING.execute("SET TimeZone = 'UTC'")
_ERROR = re.compile(r"^(?:\x1b\[\d+m)?(?:[A-Z]\w+ )+Error: ", re.M)


def run(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The shell in a folder with this text on its standard input; it goes on after errors."""
    program = Path(sys.executable).with_name("duckdb")
    assert program.exists(), f"{program}: the DuckDB shell is missing; install lakesql[test]"
    command = [str(program), "-init", str(MACROS)]
    return subprocess.run(command, input=text, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


def ask(queries: Sequence[str], folder: Path) -> list[pa.Table | str]:
    """What each query gives: its rows, or the text of its error. `folder` takes the rows on their way."""
    files = [folder / f"answer_{i}.parquet" for i in range(len(queries))]
    for file in files:
        file.unlink(missing_ok=True)
    copies = (f"COPY ({query}) TO '{file}';" for query, file in zip(queries, files, strict=True))
    done = run("\n".join(["SET TimeZone = 'UTC'; SET threads = 1;", *copies]), folder)
    starts = [m.start() for m in _ERROR.finditer(done.stderr)]
    errors = [done.stderr[a:b].strip() for a, b in pairwise([*starts, len(done.stderr)])]
    assert len(errors) == sum(not _is_whole(file) for file in files), done.stderr
    left = iter(errors)
    return [pq.read_table(file) if _is_whole(file) else next(left) for file in files]


def _is_whole(file: Path) -> bool:
    """Whether the copy went to its end: an error in the middle of it leaves a file without its footer."""
    return file.exists() and file.read_bytes().endswith(b"PAR1")


def difference(want: pa.Table, got: pa.Table) -> str:
    """'' when both have the same columns with the same types and the same rows, in any order."""
    con = _COMPARING.cursor()
    con.register("want", want)
    con.register("got", got)
    columns, found = (sorted(r[:2] for r in con.execute(f"DESCRIBE {side}").fetchall()) for side in ("want", "got"))
    if columns != found:
        return f"columns {found} instead of {columns}"
    names = [name for name, _ in columns]
    if "_hoodie_commit_time" in names and want["_hoodie_commit_time"].null_count == len(want):
        names.remove("_hoodie_file_name")  # some writers fill it even in tables without meta columns
    text = ", ".join(f'"{name}"::VARCHAR AS "{name}"' for name in names)
    lost = con.execute(f"SELECT {text} FROM want EXCEPT ALL SELECT {text} FROM got").fetchall()
    extra = con.execute(f"SELECT {text} FROM got EXCEPT ALL SELECT {text} FROM want").fetchall()
    return f"missing {lost[:2]} unexpected {extra[:2]}" if lost or extra else ""
