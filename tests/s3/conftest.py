"""S3 servers as fixtures: `moto` always, `versitygw` where `make versitygw` was run.

A test that uses `versitygw` is skipped where the server is missing, and fails with LAKESQL_VERSITYGW=required.
"""

import os
from collections.abc import Iterator

import pytest

from tests import lakes
from tests.s3.proxy import Proxy
from tests.s3.servers import Server, environment, missing


@pytest.fixture(params=["moto", pytest.param("versitygw", marks=pytest.mark.versitygw)])
def server(request: pytest.FixtureRequest) -> Server:
    """Each S3 server in turn."""
    return running(request.param)


@pytest.fixture
def proxy(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy in front of the server; lakesql takes it for S3."""
    with Proxy(server.port) as found:
        for name, value in environment(found.url).items():
            monkeypatch.setenv(name, value)
        yield found


def running(kind: str) -> Server:
    """The server of this process."""
    lack = missing(kind)
    if lack and os.environ.get("LAKESQL_VERSITYGW") == "required":
        pytest.fail(f"LAKESQL_VERSITYGW=required, but {lack}")
    if lack:
        pytest.skip(lack)
    return lakes.server(kind)
