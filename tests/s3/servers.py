"""S3 servers of this machine: `moto`, which keeps everything in memory, and `versitygw`, a real one over a folder.

Both are context managers that give a `Server`; they end with their owner, even when that one is killed. `environment`
is what a process needs to reach a server as it would reach S3.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import obstore
from obstore.store import S3Store

KEY, SECRET, REGION = "testing", "testing-secret", "us-east-1"
BUCKET = "lake"
START_S = 60.0
ROOT = Path(__file__).resolve().parents[2]
VERSITYGW = ROOT / ".versitygw" / "versitygw"
_MOTO = """
import os, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
from moto.server import main
main(["-H", "127.0.0.1", "-p", sys.argv[1]])
"""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server with the empty bucket BUCKET."""

    kind: str
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def environment(url: str) -> dict[str, str]:
    """The variables under which S3 clients find the server at this address."""
    return {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ENDPOINT_URL": url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def missing(kind: str) -> str | None:
    """What the server lacks on this machine; None when it can run."""
    if kind == "versitygw" and not VERSITYGW.exists():
        return "there is no .versitygw/versitygw (make versitygw)"
    return None


@contextmanager
def running(kind: str, folder: Path) -> Iterator[Server]:
    """The server `moto` or `versitygw`; `folder` is its own."""
    folder.mkdir(parents=True, exist_ok=True)
    port = _free_port()
    if kind == "moto":
        command, variables = [sys.executable, "-c", _MOTO, str(port)], {}
    else:
        data = folder / "data"
        data.mkdir()
        command = [str(VERSITYGW), "--quiet", "--port", f"127.0.0.1:{port}", "posix", str(data)]
        variables = {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}
    with _process(command, variables, folder / f"{kind}.log") as process:
        _await(process, port, folder / f"{kind}.log")
        _make_bucket(port)
        yield Server(kind, port)


def store(url: str, prefix: str = "") -> S3Store:
    """The bucket as obstore sees it, past lakesql."""
    return S3Store(
        BUCKET,
        prefix=prefix or None,
        endpoint=url,
        access_key_id=KEY,
        secret_access_key=SECRET,
        region=REGION,
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )


@contextmanager
def _process(command: Sequence[str], variables: Mapping[str, str], log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """The process; a guard with an end of a pipe ends it when this process goes, however it goes."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=out, stderr=out, env={**os.environ, **variables}
        )
        guard = subprocess.Popen(
            ["sh", "-c", f"read -r _; kill -9 {process.pid}"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        try:
            yield process
        finally:
            guard.kill()
            guard.communicate()
            process.kill()
            process.communicate()


def _await(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while True:
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the S3 server did not start: {log.read_text(errors='replace')[-4000:]}")
        time.sleep(0.05)


def _make_bucket(port: int) -> None:
    """A PUT of the bucket; obstore has no such request, so it is signed here with the client of the servers' tests."""
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{port}",
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        region_name=REGION,
    )
    client.create_bucket(Bucket=BUCKET)
    client.close()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def upload(folder: Path, url: str, prefix: str) -> None:
    """Every file below a folder, under a prefix of the bucket."""
    target = store(url, prefix)
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            obstore.put(target, file.relative_to(folder).as_posix(), file.read_bytes())


def download(url: str, prefix: str, folder: Path) -> None:
    """Everything under a prefix, into a folder."""
    source = store(url, prefix)
    for name in files(url, prefix):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(bytes(obstore.get(source, name).bytes()))


def files(url: str, prefix: str) -> dict[str, int]:
    """Every object under a prefix, with its size."""
    found = obstore.list(store(url, prefix)).collect()
    return {str(one["path"]): int(one["size"]) for one in found}


def copy(url: str, source: str, target: str) -> None:
    """Every object of one prefix under another."""
    bucket = store(url)
    for name in files(url, source):
        obstore.copy(bucket, f"{source}/{name}", f"{target}/{name}")


def remove(url: str, prefix: str) -> None:
    """Everything under a prefix."""
    if names := list(files(url, prefix)):
        obstore.delete(store(url, prefix), names)
