"""No setting that a part of an ingestion reads is unknown to the table of settings, from which jobs are made."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import lakesql.ingest
from lakesql.ingest.decode import decoder_factory
from lakesql.ingest.job_format import FIXED
from lakesql.ingest.model import Format
from lakesql.ingest.registry import Registry
from lakesql.ingest.setting_keys import KEYS, OLDER, PASSED
from lakesql.ingest.setting_unused import UNUSED
from lakesql.ingest.settings import job_of
from lakesql.services.spelling import OURS

FOLDER = Path(lakesql.ingest.__file__).parent
NAME = re.compile(
    r"(lakesql|kafka|kakfa|schema\.registry|gobblin|writer|data\.publisher|extract|simple\.writer|topics?|bootstrap"
    r"|dataset|reset|workunit|job|mr|task|taskexecutor|hoodie\.streamer)(\.[A-Za-z_]+)+"
)
NO_SETTINGS = {
    "lakesql.kafka",  # a logger
    "lakesql.ingest.v1",
    "job.records.written", "writer.records.written", "writer.bytes.written", "job.commits", "task.retries",  # counters
    "gobblin.kafka",  # the namespace of events
}  # fmt: skip
BASE = {"kafka.brokers": "h:1", "job.name": "j", "lakesql.format": "json", "lakesql.into": "t"}


def texts(module: Path) -> Iterator[str]:
    """The texts in the code of a module, no docstrings."""
    tree = ast.parse(module.read_text())
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.value


def modules() -> list[Path]:
    return sorted(one for one in FOLDER.glob("*.py") if not one.name.startswith("setting_"))


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.stem)
def test_a_setting_that_is_read_is_in_the_table(module: Path) -> None:
    found = {text for text in texts(module) if NAME.fullmatch(text)}
    assert found - NO_SETTINGS - set(KEYS) - set(OLDER) - set(UNUSED) - set(OURS) == set()


class Asked(dict[str, str]):
    """Settings that remember which of them were asked for."""

    def __init__(self, given: dict[str, str]) -> None:
        super().__init__(given)
        self.names: set[str] = set()

    def get(self, name: str, default: object = None) -> object:  # type: ignore[override]
        self.names.add(name)
        return super().get(name, default)  # type: ignore[arg-type]

    def __getitem__(self, name: str) -> str:
        self.names.add(name)
        return super().__getitem__(name)


@pytest.mark.parametrize("source", ["USER_INFO", "SASL_INHERIT", "URL"])
def test_what_the_registry_asks_for_is_in_the_table(source: str, tmp_path: Path) -> None:
    place = {f"schema.registry.ssl.{kind}.location": str(tmp_path / "no.pem") for kind in ("truststore", "keystore")}
    asked = Asked({"schema.registry.basic.auth.credentials.source": source, **place})
    with pytest.raises(Exception, match="certificates cannot be loaded"):
        Registry("https://r:1", "confluent", asked)
    assert len(asked.names) > 10
    assert asked.names - {"sasl.username", "sasl.password"} <= set(KEYS) | set(OLDER)


@pytest.mark.parametrize("key", ["raw", "string", "json", "avro"])
@pytest.mark.parametrize("kind", ["json", "avro"])
def test_what_decoders_ask_for_is_in_the_table(kind: str, key: str) -> None:
    schema = '{"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]}'
    given = {"lakesql.key.format": key, "lakesql.key.columns": "id", "lakesql.key.wire": "none"}
    asked = Asked({**given, "lakesql.avro.schema": schema, "lakesql.key.avro.schema": schema})
    decoder_factory(Format(kind, "none" if kind == "avro" else None, None, asked))().close()
    assert {"lakesql.envelope", "lakesql.debezium.connector", "lakesql.key.wire"} & asked.names
    assert {name for name in asked.names if not name.startswith(FIXED)} <= set(KEYS) | set(OLDER)


def test_settings_of_the_decoders_reach_them() -> None:
    given = {
        "lakesql.json.columns": "a INT",
        "lakesql.json.unknown.keys": "keep",
        "lakesql.json.rest.column": "more",
        "lakesql.debezium.connector": "mysql",
        "lakesql.key.wire": "none",
        "bearer.auth.token": "t",
        "schema.registry.retries": "2",
        "schema.registry.ssl.certificate.location": "/c.pem",
    }
    read = job_of(BASE | given)
    assert (read.unknown, read.unused) == ({}, {})
    assert read.job.format.options == {
        "lakesql.json.columns": "a INT",
        "lakesql.json.unknown.keys": "keep",
        "lakesql.json.rest.column": "more",
        "lakesql.debezium.connector": "mysql",
        "lakesql.key.wire": "none",
        "schema.registry.bearer.auth.token": "t",
        "schema.registry.retries": "2",
        "schema.registry.ssl.certificate.location": "/c.pem",
    }


def test_settings_of_tables_are_passed_on_and_slips_in_their_names_found() -> None:
    own = [name for name in OURS if name not in UNUSED]
    said = tuple(name for names in PASSED for name in names.split(", "))
    assert all(name.startswith(said) for name in own)
    read = job_of(BASE | dict.fromkeys(own, "1"))
    assert (read.unknown, read.unused) == ({}, {})
    into_files = {k: v for k, v in BASE.items() if k != "lakesql.into"} | {"data.publisher.final.dir": "/out"}
    assert set(job_of(into_files | dict.fromkeys(own, "1")).unused) == set(own)
    slips = {
        "lakesql.schema.evole": "lakesql.schema.evolve",
        "hoodie.upsert.shuffle.parallelism": "",
        "hoodie.parquet.max.file.sise": "hoodie.parquet.max.file.size",
        "schema.registry.ssl.ca.loction": "schema.registry.ssl.ca.location",
    }
    found = job_of(BASE | dict.fromkeys(slips, "1")).unknown
    assert found == {name: meant for name, meant in slips.items() if meant}
