"""Ingestions that have a name: kept as readable JSON in the warehouse, `.lakesql/ingestions/<name>.json`.

A definition is what was asked for, under the names of the settings as they were given; references like ${env:NAME} stay
unresolved. Where the table of a name lies is found out when it runs, so that a warehouse may be moved. Offsets are not
here: they lie in the target (kafka-ingestion 4.3). The folder begins with a dot and holds no .hoodie, so that no listing of
tables takes it for one.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from difflib import get_close_matches
from typing import Any

from lakesql.errors import FormatError, SQLError
from lakesql.ingest.secrets import is_plain, shown
from lakesql.storage import Storage, open_storage
from lakesql.table.names import literal, quote

FOLDER = ".lakesql/ingestions"
_VERSION = 1
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Definition:
    """An ingestion as it was defined.

    into            name of a Hudi table, or a path of one, perhaps with {topic} in it; or with `files` the folder
    options         settings under the names that were given
    format          json, avro, raw, string, python; None: as the options say, else JSON
    function        name of the registered decoder of format python
    format_options  settings of the format alone
    output          of files: avro, parquet, json, txt
    """

    name: str
    into: str
    files: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    format: str | None = None
    function: str | None = None
    format_options: Mapping[str, str] = field(default_factory=dict)
    output: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    partitioned_by: tuple[str, ...] = ()
    select: str | None = None

    def plain_secrets(self) -> list[str]:
        """The settings whose secrets would be stored as they are."""
        return [k for given in (self.options, self.format_options) for k, v in given.items() if is_plain(k, v)]

    def with_options(self, options: Mapping[str, str]) -> "Definition":
        """The same with some settings changed."""
        return replace(self, options={**self.options, **options})

    def statement(self) -> str:
        """The statement that makes it, without secrets."""
        lines = [f"CREATE INGESTION {_name(self.name)} AS", f"INGEST INTO {self._target()}"]
        lines.append("FROM KAFKA OPTIONS (" + _listed(self.options) + ")")
        if self.format is not None:
            function = f" {literal(self.function)}" if self.function is not None else ""
            given = f" ({_listed(self.format_options)})" if self.format_options else ""
            lines.append(f"FORMAT {self.format.upper()}{function}{given}")
        if self.output is not None:
            lines.append(f"USING {self.output.upper()}")
        if self.properties:
            lines.append(f"TBLPROPERTIES ({_listed(self.properties)})")
        if self.partitioned_by:
            lines.append(f"PARTITIONED BY ({', '.join(map(_name, self.partitioned_by))})")
        if self.select is not None:
            lines.append(f"AS {self.select}")
        return "\n".join(lines)

    def _target(self) -> str:
        if self.files:
            return f"FILES {literal(self.into)}"
        return _name(self.into) if "{topic}" not in self.into and "/" not in self.into else literal(self.into)


def _name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) and name.upper() not in ("FILES", "IF") else quote(name)


def _listed(settings: Mapping[str, str]) -> str:
    return ", ".join(f"{literal(k)} = {literal(shown(k, v))}" for k, v in settings.items())


# ---------------------------------------------------------------- in the warehouse


def create(warehouse: str, definition: Definition, now: str) -> bool:
    """Keep a new definition; False when there is one of that name."""
    return open_storage(warehouse).put_if_absent(_path(definition.name), _text(definition, now))


def change(warehouse: str, definition: Definition, now: str) -> None:
    """Keep a definition in place of the one of that name."""
    open_storage(warehouse).put(_path(definition.name), _text(definition, now))


def drop(warehouse: str, name: str) -> bool:
    """Forget a definition; False when there is none. The offsets stay in the target."""
    storage = open_storage(warehouse)
    if storage.stat(_path(name)) is None:
        return False
    storage.delete(_path(name))
    return True


def find(warehouse: str, name: str) -> Definition | None:
    """The definition of that name. FormatError when its file cannot be read as one."""
    storage = open_storage(warehouse)
    if storage.stat(_path(name)) is None:
        return None
    return _read(storage, _path(name))


def require(warehouse: str, name: str) -> Definition:
    """The definition of that name; SQLError when there is none."""
    found = find(warehouse, name)
    if found is None:
        known = names(warehouse)
        near = get_close_matches(name, known, 1)
        meant = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(known) or 'none'}."
        raise SQLError(
            f"there is no ingestion {name} in {warehouse}. {meant} CREATE INGESTION {name} AS ... makes one."
        )
    return found


def names(warehouse: str) -> list[str]:
    """The names of all definitions, sorted."""
    files, _ = open_storage(warehouse).list(FOLDER)
    return sorted(
        f.path.rpartition("/")[2].removesuffix(".json") for f in files if f.path.endswith(".json")
    )  # fmt: skip


def location(warehouse: str, name: str) -> str:
    """The file of a definition."""
    return f"{open_storage(warehouse).uri}/{_path(name)}"


def _path(name: str) -> str:
    return f"{FOLDER}/{name}.json"


def _text(definition: Definition, now: str) -> bytes:
    held: dict[str, Any] = {
        "version": _VERSION,
        "changed": now,
        "statement": definition.statement().split("\n"),
        "definition": {k: v for k, v in asdict(definition).items() if v not in (None, {}, (), False)},
    }
    return (json.dumps(held, indent=2, ensure_ascii=False) + "\n").encode()


def _read(storage: Storage, path: str) -> Definition:
    where = f"{storage.uri}/{path}"
    try:
        held = json.loads(storage.read(path))
        version = held["version"]
        if version != _VERSION:
            raise FormatError(
                f"{where}: the ingestion has version {version!r}, this lakesql knows {_VERSION}. Use a newer lakesql, or "
                "CREATE OR REPLACE INGESTION."
            )
        given = dict(held["definition"])
        partitioned_by: Sequence[str] = given.pop("partitioned_by", ())
        definition = Definition(**given, partitioned_by=tuple(partitioned_by))
        _check(definition)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FormatError(
            f"{where}: cannot be read as an ingestion ({error}). Correct the file, or CREATE OR REPLACE INGESTION."
        ) from error
    return definition


def _check(definition: Definition) -> None:
    """ValueError for what is no definition although it has its names."""
    for held in (definition.options, definition.format_options, definition.properties):
        if not isinstance(held, dict) or not all(isinstance(x, str) for pair in held.items() for x in pair):
            raise ValueError("settings are texts by name")
    texts = (definition.name, definition.into, definition.format, definition.function, definition.output)
    if not all(isinstance(t, str | None) for t in (*texts, definition.select)) or not definition.into:
        raise ValueError("a text is missing")
