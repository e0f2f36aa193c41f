"""Where tests keep their tables: a folder of this machine, or a prefix of a bucket. The same tests run in both.

The fixture `lake` (tests/conftest.py) is a `Lake`. It is local unless LAKESQL_TEST_STORE names an S3 server (`moto`,
`versitygw`); then the server starts with the first lake of the process and ends with it. Where the variable is not set,
tests marked `on_store` run on moto as well: with `on_store(every=20)` about one of twenty of their cases.
"""

import atexit
import os
import shutil
import tempfile
from contextlib import ExitStack
from functools import cache
from pathlib import Path

from lakesql.storage import Storage, open_storage
from tests.s3 import servers

LOCAL = "local"
STORE = os.environ.get("LAKESQL_TEST_STORE") or LOCAL


class Lake:
    """A folder of its own for the tables of one test. Addresses are texts."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self.is_local = kind == LOCAL
        self.address = str(folder)
        if not self.is_local:
            self.url = server(kind).url
            self.prefix = f"{os.getpid()}/{folder.name}-{os.urandom(4).hex()}"
            self.address = f"s3://{servers.BUCKET}/{self.prefix}"

    def path(self, name: str = "t") -> str:
        """The address of a table of that name."""
        return f"{self.address}/{name}"

    def storage(self, path: str) -> Storage:
        return open_storage(path)

    def bring(self, folder: Path) -> str:
        """The address of everything in a folder of this machine, which is put where tables are kept."""
        if self.is_local:
            return str(folder)
        name = folder.relative_to(self.folder).as_posix() if folder.is_relative_to(self.folder) else folder.name
        servers.upload(folder, self.url, self._prefix(name))
        return self.path(name) if name != "." else self.address

    def fetch(self, path: str) -> Path:
        """A folder of this machine with a copy of what lies in a bucket."""
        folder = self.folder / f"fetched-{os.urandom(4).hex()}"
        servers.download(self.url, self._below(path), folder)
        return folder

    def copy(self, source: str, target: str) -> None:
        """A table under a second address."""
        if self.is_local:
            shutil.copytree(source, target)
        else:
            servers.copy(self.url, self._below(source), self._below(target))

    def remove(self, path: str) -> None:
        if self.is_local:
            shutil.rmtree(path, ignore_errors=True)
        else:
            servers.remove(self.url, self._below(path))

    def files(self, path: str) -> dict[str, int]:
        """Every file of a table with its size, past lakesql."""
        if self.is_local:
            root = Path(path)
            return {p.relative_to(root).as_posix(): p.stat().st_size for p in root.rglob("*") if p.is_file()}
        return servers.files(self.url, self._below(path))

    def _prefix(self, name: str) -> str:
        return self.prefix if name == "." else f"{self.prefix}/{name}"

    @staticmethod
    def _below(path: str) -> str:
        return path.removeprefix(f"s3://{servers.BUCKET}/")


@cache
def server(kind: str) -> servers.Server:
    """The S3 server of this process; from then on S3 is there for its children too."""
    stack = ExitStack()
    atexit.register(stack.close)
    folder = Path(tempfile.mkdtemp(prefix="lakesql-s3-"))
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    found = stack.enter_context(servers.running(kind, folder))
    os.environ.update(servers.environment(found.url))
    return found
