"""A fault at every request of every kind of write: the table is as before or as after, never between.

A statement that is hit once either succeeds, because the request is made again, or fails with an error of ours; one that
succeeds has written its rows, one that fails has not, and only CommitUnknown leaves that open. Whatever is left, the next
write goes on from it. With `gone` the server stays away from that request on.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

import lakesql
from lakesql.errors import CommitUnknown, LakeError
from lakesql.stores import calls as store_calls
from lakesql.stores.calls import Retry
from lakesql.stores.settings import Stores, chosen
from lakesql.write import commit
from tests.s3 import servers
from tests.s3.proxy import HOW, Fault, Proxy
from tests.samples import Kind, Row, create, rows, tuples

BEFORE: list[Row] = [("a", "x", 1, 1), ("b", "y", 1, 1), ("c", "x", 1, 1)]
NEXT: Row = ("z", "y", 9, 9)


@dataclass(frozen=True)
class Verb:
    """A write, and the rows there are after it."""

    name: str
    run: Callable[[lakesql.Table], object]
    after: list[Row]
    type: str = "mor"

    def __str__(self) -> str:
        return f"{self.name}-{self.type}"


def sql(statement: str) -> Callable[[lakesql.Table], object]:
    def run(table: lakesql.Table) -> object:
        warehouse, _, name = table.path.rpartition("/")
        with lakesql.connect(warehouse=warehouse, config=TIMEOUT) as con:
            return con.execute(statement.format(name)).fetchall()

    return run


MERGE = """MERGE INTO {} t USING (VALUES ('a', 'x', 5, 5), ('d', 'y', 5, 5)) s(id, city, v, ts) ON t.id = s.id AND t.city = s.city
WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"""
MERGED = sorted([("a", "x", 5, 5), ("d", "y", 5, 5), *BEFORE[1:]])
UPSERT = [("a", "x", 2, 2), ("d", "x", 2, 2)]
UPSERTED = sorted([*UPSERT, *BEFORE[1:]])
VERBS = [
    *(
        Verb(name, run, after, type_)
        for type_ in ("mor", "cow")
        for name, run, after in (
            ("upsert", lambda t: t.upsert(rows(*UPSERT)), UPSERTED),
            ("insert", lambda t: t.insert(rows(("d", "x", 2, 2))), sorted([*BEFORE, ("d", "x", 2, 2)])),
            ("update", sql("UPDATE {} SET v = 7, ts = 7 WHERE id = 'a'"), sorted([("a", "x", 7, 7), *BEFORE[1:]])),
            ("delete", sql("DELETE FROM {} WHERE id = 'b'"), [BEFORE[0], BEFORE[2]]),
            ("merge", sql(MERGE), MERGED),
            ("overwrite", lambda t: t.insert_overwrite(rows(("d", "x", 2, 2))), [BEFORE[1], ("d", "x", 2, 2)]),
        )
    ),
    Verb("compact", lambda t: t.compact(), BEFORE),
    Verb("cluster", lambda t: t.cluster(["v"]), BEFORE, "cow"),
    Verb("clean", lambda t: t.clean(**{"hoodie.clean.commits.retained": "1"}), BEFORE, "cow"),
]
ALWAYS = {("upsert-mor", "lost"), ("merge-cow", "503"), ("upsert-mor", "gone")}
CASES = [
    pytest.param(verb, how, id=f"{verb}-{how}", marks=[] if (str(verb), how) in ALWAYS else [pytest.mark.store])
    for verb in VERBS
    for how in (*HOW, "gone")
]


TIMEOUT = {"lakesql.store.timeout": "1"}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Requests are tried four times, with short pauses, and answers are waited for a second."""
    monkeypatch.setattr(store_calls, "Retry", lambda: Retry(4, 4, 0.01, 0.05, 10.0))
    monkeypatch.setattr(commit, "_LATE_S", (0.05,))
    with chosen(Stores(dict(TIMEOUT))):
        yield


def template(url: str, kind: str) -> str:
    """The prefix of a table with a little history."""
    prefix = f"faults/{os.getpid()}/template-{kind}"
    if not servers.files(url, prefix):
        table = create(f"s3://{servers.BUCKET}/{prefix}", Kind(kind, 9))
        table.upsert(rows(*((i, c, 0, 0) for i, c, _, _ in BEFORE)))
        table.upsert(rows(*BEFORE))
    return prefix


@pytest.mark.parametrize(("verb", "how"), CASES)
def test_a_write_is_whole_or_not_there(verb: Verb, how: str, proxy: Proxy) -> None:
    direct = f"http://127.0.0.1:{proxy.upstream}"
    source, number, met = template(direct, verb.type), 0, True
    met_any = False
    while met:
        number += 1
        prefix = f"faults/{os.getpid()}/{verb}_{how}_{number}".replace("-", "_")
        servers.copy(direct, source, prefix)
        path = f"s3://{servers.BUCKET}/{prefix}"
        table = lakesql.open_table(path)
        proxy.arm(Fault(number, "503" if how == "gone" else how, times=0 if how == "gone" else 1))
        error: LakeError | None = None
        try:
            verb.run(table)
        except LakeError as raised:
            error = raised
        met = bool(proxy.broken)
        met_any |= met
        where = f"request {number}, {proxy.broken}: {error}"
        proxy.arm(None)
        if how == "gone":  # as if the minute had passed for which the lock of a dead writer holds
            servers.remove(direct, f"{prefix}/.hoodie/.locks")
        found = tuples(lakesql.open_table(path).read())
        if error is None:
            assert found == verb.after, where
        elif isinstance(error, CommitUnknown):
            assert found in (BEFORE, verb.after), where
        else:
            assert found == BEFORE, where
        written = found
        lakesql.open_table(path).upsert(rows(NEXT))
        assert tuples(lakesql.open_table(path).read()) == sorted([*written, NEXT]), where
        assert lakesql.open_table(path).state.timeline.pending("commit", "deltacommit", "replacecommit") == [], where
        servers.remove(direct, prefix)
    assert met_any
    assert number > 8
