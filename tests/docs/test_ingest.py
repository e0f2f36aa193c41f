"""`docs/ingest/README.md`: its blocks run in order against a mock cluster, and show every statement there is."""

import re
from pathlib import Path
from typing import get_args

import pytest

import lakesql
from lakesql.ingest.front import SHORT
from lakesql.ingest_command import CODES
from lakesql.sql import nodes
from lakesql.sql.kafka_functions import PLANNERS
from lakesql.sql.lexer import split
from lakesql.sql.parse_ingest import FORMATS, OUTPUTS
from lakesql.sql.statements import parse
from tests.kafka.mock import MockCluster

PAGE = (Path(__file__).parents[2] / "docs" / "ingest" / "README.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.S)


def test_blocks_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mock_kafka: MockCluster) -> None:
    monkeypatch.chdir(tmp_path)
    mock_kafka.create("orders", 4)
    scope: dict[str, object] = {}
    with lakesql.connect(warehouse=tmp_path / "lake") as con:
        for language, body in BLOCKS:
            body = body.replace("127.0.0.1:9092", mock_kafka.brokers)
            if language == "python":
                exec(body, scope)
            else:
                for piece in split(body):
                    con.execute(piece.text)
                    if piece.text.strip() == "RUN INGESTION orders_in":
                        assert sum(row[5] for row in con.fetchall()) == 1000
        con.execute("SELECT count(*), sum(id) FROM orders")
        assert con.fetchall() == [(1000, 499500)]


def test_every_statement_is_shown() -> None:
    shown = set()
    for language, body in BLOCKS:
        if language == "sql":
            shown |= {type(parse(body, piece, lambda _: False)) for piece in split(body)}
    assert set(get_args(nodes.Ingestion)) | {nodes.ExplainIngest, nodes.Call} <= shown


def test_words_functions_and_exit_codes_are_in_the_tables() -> None:
    for word in (
        *FORMATS,
        *(w for words in OUTPUTS.values() for w in words if w != "HUDI"),
        *(k.upper() for k in SHORT),
    ):
        assert f"`{word}" in PAGE, word
    assert [name for name in PLANNERS if f"`{name}(" not in PAGE] == []
    assert [code for _, code in CODES if not re.search(rf"^\| {code}\b", PAGE, re.M)] == []
