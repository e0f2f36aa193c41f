"""What `hoodie.properties` says: the settings of a table as typed fields, and its checksum.

`TableConfig.from_text` reads what any Hudi release wrote for table versions 6, 8 and 9 (hudi-format 1) and refuses,
before anything else is read, what could only be guessed: other versions, bootstrap tables, files that are not
Parquet. The merge mode is resolved as in 1.5. `new_table_properties` gives the one form that lakesql writes (1.8).
Unknown keys stay in `properties` and go back into the file when it is rewritten.
Not here: what a mode or a key generator does with rows, and write settings that are not stored in the table.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from lakesql.errors import FormatError, TableError, Unsupported
from lakesql.format.properties import parse_properties

VERSIONS = (6, 8, 9)
TABLE_TYPES = ("COPY_ON_WRITE", "MERGE_ON_READ")
EVENT_TIME, COMMIT_TIME, CUSTOM = "EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING", "CUSTOM"
EVENT_TIME_STRATEGY = "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5"
COMMIT_TIME_STRATEGY = "ce9acb64-bde0-424c-9b91-f6ebba25356d"

_MODEL = "org.apache.hudi.common.model."
EVENT_TIME_PAYLOAD = _MODEL + "DefaultHoodieRecordPayload"
COMMIT_TIME_PAYLOAD = _MODEL + "OverwriteWithLatestAvroPayload"
_PAYLOAD_MODES = {
    EVENT_TIME_PAYLOAD: EVENT_TIME,
    _MODEL + "EventTimeAvroPayload": EVENT_TIME,
    COMMIT_TIME_PAYLOAD: COMMIT_TIME,
}
_UNAVAILABLE = "hoodie.write.partial.update.unavailable.value"
UNAVAILABLE_VALUE = "__debezium_unavailable_value"
_STRATEGY_MODES = {EVENT_TIME_STRATEGY: EVENT_TIME, COMMIT_TIME_STRATEGY: COMMIT_TIME}
CUSTOM_MERGER_STRATEGY = "1897ef5f-18bc-4557-939c-9d6a8afd1519"
CUSTOM_STRATEGY = "00000000-0000-0000-0000-000000000000"
_PARTIAL, _IGNORE_DEFAULTS = "hoodie.table.partial.update.mode", "IGNORE_DEFAULTS"
# Before version 9 these payload classes imply which rows are deletes; nothing about it is stored (1.5).
_PAYLOAD_DELETES = {
    _MODEL + "AWSDmsAvroPayload": ("Op", "D"),
    _MODEL + "debezium.MySqlDebeziumAvroPayload": ("_change_operation_type", "d"),
    _MODEL + "debezium.PostgresDebeziumAvroPayload": ("_change_operation_type", "d"),
}

# Payload class -> mode and partial update mode that version 9 makes of it (1.5).
_TRANSLATED = {
    EVENT_TIME_PAYLOAD: (EVENT_TIME, ""),
    _MODEL + "EventTimeAvroPayload": (EVENT_TIME, ""),
    COMMIT_TIME_PAYLOAD: (COMMIT_TIME, ""),
    _MODEL + "PartialUpdateAvroPayload": (EVENT_TIME, _IGNORE_DEFAULTS),
    _MODEL + "OverwriteNonDefaultsWithLatestAvroPayload": (COMMIT_TIME, _IGNORE_DEFAULTS),
    _MODEL + "AWSDmsAvroPayload": (COMMIT_TIME, ""),
    _MODEL + "debezium.MySqlDebeziumAvroPayload": (EVENT_TIME, ""),
    _MODEL + "debezium.PostgresDebeziumAvroPayload": (EVENT_TIME, "FILL_UNAVAILABLE"),
}
_OLDER_PAYLOADS = (_MODEL + "FirstValueAvroPayload", _MODEL + "HoodieAvroPayload")

_KEYGEN_PACKAGE = "org.apache.hudi.keygen."
KEY_GENERATOR_CLASSES = {
    "SIMPLE": "SimpleKeyGenerator",
    "SIMPLE_AVRO": "SimpleAvroKeyGenerator",
    "COMPLEX": "ComplexKeyGenerator",
    "COMPLEX_AVRO": "ComplexAvroKeyGenerator",
    "NON_PARTITION": "NonpartitionedKeyGenerator",
    "NON_PARTITION_AVRO": "NonpartitionedAvroKeyGenerator",
    "TIMESTAMP": "TimestampBasedKeyGenerator",
    "TIMESTAMP_AVRO": "TimestampBasedAvroKeyGenerator",
    "CUSTOM": "CustomKeyGenerator",
    "CUSTOM_AVRO": "CustomAvroKeyGenerator",
    "GLOBAL_DELETE": "GlobalDeleteKeyGenerator",
    "GLOBAL_DELETE_AVRO": "GlobalAvroDeleteKeyGenerator",
}
"""Generator type (version 8 on) to class name (version 6), hudi-format 6.1."""
_KEY_GENERATOR_TYPES = {name: kind for kind, name in KEY_GENERATOR_CLASSES.items()}

_NAME, _DATABASE, _TYPE = "hoodie.table.name", "hoodie.database.name", "hoodie.table.type"
_VERSION, _LAYOUT, _CHECKSUM = "hoodie.table.version", "hoodie.timeline.layout.version", "hoodie.table.checksum"
_KEYGEN_TYPE, _KEYGEN_CLASS = "hoodie.table.keygenerator.type", "hoodie.table.keygenerator.class"
_PARTITION_FIELDS = "hoodie.table.partition.fields"
_PRECOMBINE, _ORDERING = "hoodie.table.precombine.field", "hoodie.table.ordering.fields"
_MODE, _STRATEGY = "hoodie.record.merge.mode", "hoodie.record.merge.strategy.id"
_PAYLOAD = "hoodie.compaction.payload.class"
_MERGE_PROPERTY = "hoodie.record.merge.property."
_PARTIAL_MODES = {"IGNORE_MARKERS": "FILL_UNAVAILABLE"}  # old spelling: new spelling


def table_checksum(name: str, database: str = "") -> str:
    """The value of hoodie.table.checksum (1.2): it covers the two names and nothing else."""
    return str(zlib.crc32(f"{database}.{name}".encode()))


@dataclass(frozen=True, slots=True)
class TableConfig:
    """The stored settings of a table. `properties` is the whole file, the rest is read out of it."""

    properties: Mapping[str, str]
    name: str
    database: str
    table_type: str
    version: int
    layout: int
    record_key_fields: tuple[str, ...]
    """Empty: keys are generated."""
    partition_fields: tuple[str, ...]
    partition_types: tuple[str, ...]
    """SIMPLE or TIMESTAMP per partition field; '' where a CUSTOM generator of version 6 does not tell."""
    ordering_fields: tuple[str, ...]
    key_generator: str
    """Type name of hudi-format 6.1; USER_PROVIDED for a class that is not Hudi's."""
    hive_style: bool
    url_encode: bool
    slash_dates: bool
    drop_partition_columns: bool
    meta_fields: bool
    timezone: str | None
    """UTC or LOCAL; None when the table does not tell (then Java writers use their own zone)."""
    merge_mode: str
    payload_class: str | None
    partial_update_mode: str | None
    unavailable_value: str
    """The text that stands for a value which a change feed did not carry."""
    delete_field: str | None
    delete_marker: str | None
    metadata_partitions: tuple[str, ...]
    create_schema: str | None
    cdc_enabled: bool
    timeline_path: str
    """Relative to .hoodie; '' in layout 1."""
    history_path: str
    """Relative to the timeline folder."""

    @property
    def is_mor(self) -> bool:
        return self.table_type == "MERGE_ON_READ"

    @property
    def timeline_folder(self) -> str:
        """Folder of the instant files, relative to the table."""
        return f".hoodie/{self.timeline_path}" if self.timeline_path else ".hoodie"

    @property
    def history_folder(self) -> str:
        """Folder of the archived timeline, relative to the table."""
        return f"{self.timeline_folder}/{self.history_path}"

    @classmethod
    def from_file(cls, text: str, where: str) -> Self:
        """As `from_text`, of a whole file: FormatError too when its end, or the checksum every table has, is missing."""
        whole = text.endswith(("\n", "\r"))
        try:
            found = cls.from_text(text, where)
        except Unsupported:
            if whole:
                raise
            found = None  # perhaps a value that lost its end
        if found is None or not whole:
            raise FormatError(
                f"{where}: the last line has no end, so the file seems cut off after '{text.splitlines()[-1][-40:]}'. "
                "Restore the file; if it is complete, end its last line."
            )
        if not found.properties.get(_CHECKSUM, "").strip():
            raise FormatError(
                f"{where}: {_CHECKSUM} is missing; every table has one, so the file seems cut off and other settings may "
                "be missing as well. Restore the file; if it is complete, add "
                f"{_CHECKSUM}={table_checksum(found.name, found.database)}."
            )
        return found

    @classmethod
    def from_text(cls, text: str, where: str) -> Self:
        """The settings in the text of a hoodie.properties; `where` names the file in errors.

        FormatError when it is damaged, Unsupported when the table is of a kind that lakesql does not read.
        """
        properties = parse_properties(text, where)
        version, layout = _check(properties, where)
        fields, types = _partition_fields(properties)
        keys = _csv(properties.get("hoodie.table.recordkey.fields", ""))
        generator = _key_generator(properties, keys, fields)
        payload = _first(properties, _PAYLOAD, "hoodie.datasource.write.payload.class", _LEGACY_PAYLOAD)
        implied = _PAYLOAD_DELETES.get(payload or "", (None, None)) if version < 9 else (None, None)
        partial = properties.get(_PARTIAL, "").strip().upper()
        timestamp = "" if generator.startswith("CUSTOM") else "SIMPLE"
        if generator.startswith("TIMESTAMP"):
            timestamp = "TIMESTAMP"
        return cls(
            properties=properties,
            name=properties[_NAME],
            database=properties.get(_DATABASE, ""),
            table_type=properties[_TYPE].strip().upper(),
            version=version,
            layout=layout,
            record_key_fields=keys,
            partition_fields=fields,
            partition_types=tuple(kind or timestamp for kind in types),
            ordering_fields=_ordering_fields(properties),
            key_generator=generator,
            hive_style=_flag(properties, "hoodie.datasource.write.hive_style_partitioning"),
            url_encode=_flag(properties, "hoodie.datasource.write.partitionpath.urlencode"),
            slash_dates=_flag(properties, "hoodie.datasource.write.slash.separated.date.partitioning"),
            drop_partition_columns=_flag(properties, "hoodie.datasource.write.drop.partition.columns"),
            meta_fields=_flag(properties, "hoodie.populate.meta.fields", default=True),
            timezone=properties.get("hoodie.table.timeline.timezone", "").strip().upper() or None,
            merge_mode=_merge_mode(properties, version, payload),
            payload_class=payload,
            partial_update_mode=_PARTIAL_MODES.get(partial, partial) or None,
            unavailable_value=_first(
                properties, *_merge_keys(_UNAVAILABLE), *_merge_keys("partial.update.unavailable.value")
            )
            or UNAVAILABLE_VALUE,
            delete_field=_first(properties, *_merge_keys("hoodie.payload.delete.field")) or implied[0],
            delete_marker=_first(properties, *_merge_keys("hoodie.payload.delete.marker")) or implied[1],
            metadata_partitions=_csv(properties.get("hoodie.table.metadata.partitions", "")),
            create_schema=properties.get("hoodie.table.create.schema") or None,
            cdc_enabled=_flag(properties, "hoodie.table.cdc.enabled"),
            timeline_path="" if layout == 1 else properties.get("hoodie.timeline.path") or "timeline",
            history_path=(
                properties.get("hoodie.archivelog.folder") or "archived"
                if layout == 1
                else properties.get("hoodie.timeline.history.path") or "history"
            ),
        )


_LEGACY_PAYLOAD = "hoodie.table.legacy.payload.class"


def new_table_properties(
    *,
    name: str,
    table_type: str,
    version: int,
    record_key_fields: Sequence[str],
    partition_fields: Sequence[str],
    ordering_fields: Sequence[str],
    merge_mode: str,
    schema_json: str,
    hive_style: bool = True,
    url_encode: bool = False,
    extra: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The properties of a new table (hudi-format 1.8); `extra` comes on top, the checksum fits the result.

    A key generator type in `extra` is stored in the form of the version. Instants will be in UTC, always: without
    that property a Spark in another time zone loses its writes (2.2). TableError or Unsupported for settings that a
    table of this version cannot have.
    """
    more = dict(extra or {})
    if version not in VERSIONS:
        raise Unsupported(f"table version {version}. lakesql creates tables of version 6, 8 and 9.")
    if table_type not in TABLE_TYPES:
        raise TableError(f"table type '{table_type}'. Choose one of {', '.join(TABLE_TYPES)}.")
    generator = more.pop(_KEYGEN_TYPE, None) or _inferred_generator(record_key_fields, partition_fields)
    properties = {
        _NAME: name,
        _TYPE: table_type,
        _VERSION: str(version),
        _LAYOUT: "1" if version == 6 else "2",
        "hoodie.archivelog.folder": "archived",
        "hoodie.table.create.schema": schema_json,
        "hoodie.datasource.write.drop.partition.columns": "false",
        "hoodie.datasource.write.hive_style_partitioning": str(hive_style).lower(),
        "hoodie.datasource.write.partitionpath.urlencode": str(url_encode).lower(),
        "hoodie.table.timeline.timezone": "UTC",
    }
    if version == 6:
        if generator not in KEY_GENERATOR_CLASSES:
            raise Unsupported(f"key generator '{generator}'. Choose one of {', '.join(KEY_GENERATOR_CLASSES)}.")
        properties[_KEYGEN_CLASS] = _KEYGEN_PACKAGE + KEY_GENERATOR_CLASSES[generator]
    else:
        properties[_KEYGEN_TYPE] = generator
        properties["hoodie.table.initial.version"] = str(version)
        properties["hoodie.timeline.path"] = "timeline"
        properties["hoodie.timeline.history.path"] = "history"
    if record_key_fields:
        properties["hoodie.table.recordkey.fields"] = ",".join(record_key_fields)
    if partition_fields:
        properties[_PARTITION_FIELDS] = ",".join(partition_fields)
    payload = more.pop(_PAYLOAD, "").strip()
    strategy = more.get(_STRATEGY, "").strip()
    if strategy and merge_mode != CUSTOM and _STRATEGY_MODES.get(strategy) != merge_mode:
        raise Unsupported(
            f"merge strategy '{strategy}' (recordMergeStrategyId) under merge mode '{merge_mode}'. A merger of your own "
            f"needs recordMergeMode = '{CUSTOM}'; otherwise leave the strategy out."
        )
    if merge_mode == CUSTOM and not payload:
        properties |= _custom_properties(version, tuple(ordering_fields), more.pop(_STRATEGY, CUSTOM_MERGER_STRATEGY))
    elif payload:
        properties |= _payload_properties(version, tuple(ordering_fields), payload)
    else:
        properties |= _merge_properties(version, table_type, tuple(ordering_fields), merge_mode)
    if version == 9:
        properties["hoodie.table.format"] = "native"
    properties |= more
    properties[_CHECKSUM] = table_checksum(properties[_NAME], properties.get(_DATABASE, ""))
    return properties


def _merge_properties(version: int, table_type: str, ordering: tuple[str, ...], mode: str) -> dict[str, str]:
    if mode not in (EVENT_TIME, COMMIT_TIME):
        raise Unsupported(f"merge mode '{mode}' for a new table. Choose {EVENT_TIME} or {COMMIT_TIME}.")
    if mode == EVENT_TIME and not ordering:
        raise TableError(f"{EVENT_TIME} compares an ordering field and none is given. Name one, or use {COMMIT_TIME}.")
    if version < 9 and len(ordering) > 1:
        raise Unsupported(f"several ordering fields in table version {version}. Use version 9, or one ordering field.")
    payload = EVENT_TIME_PAYLOAD if mode == EVENT_TIME else COMMIT_TIME_PAYLOAD
    if version == 9:
        fields = {_ORDERING: ",".join(ordering)} if ordering else {}
        return {**fields, _MODE: mode}
    properties = {_PRECOMBINE: ordering[0]} if ordering else {}
    if version == 8:
        strategy = EVENT_TIME_STRATEGY if mode == EVENT_TIME else COMMIT_TIME_STRATEGY
        return {**properties, _MODE: mode, _STRATEGY: strategy, _PAYLOAD: payload}
    # Version 6 has no mode. Merge-on-read needs the class, or 0.15 cannot read at all; on copy-on-write an ordering
    # field alone means event time, so only the other case has to be said.
    if table_type == "MERGE_ON_READ" or (mode == COMMIT_TIME and ordering):
        properties[_PAYLOAD] = payload
    return properties


def _custom_properties(version: int, ordering: tuple[str, ...], strategy: str) -> dict[str, str]:
    """What a table stores whose rows are merged by a person's own merger."""
    if version < 8:
        raise Unsupported(f"merge mode {CUSTOM} in table version {version}. Use version 8 or 9.")
    field = _ORDERING if version == 9 else _PRECOMBINE
    return {_MODE: CUSTOM, _STRATEGY: strategy} | ({field: ",".join(ordering)} if ordering else {})


def _payload_properties(version: int, ordering: tuple[str, ...], payload: str) -> dict[str, str]:
    """What a table of a payload class stores; version 9 translates the class (1.5)."""
    known = {name.rsplit(".", 1)[-1]: name for name in (*_TRANSLATED, *_OLDER_PAYLOADS)}
    name = known.get(payload.rsplit(".", 1)[-1], payload)
    if version < 9:
        if len(ordering) > 1:
            raise Unsupported(
                f"several ordering fields in table version {version}. Use version 9, or one ordering field."
            )
        properties = {_PAYLOAD: name} | ({_PRECOMBINE: ordering[0]} if ordering else {})
        if version == 8:
            mode = {EVENT_TIME_PAYLOAD: EVENT_TIME, COMMIT_TIME_PAYLOAD: COMMIT_TIME}.get(name, CUSTOM)
            strategy = {EVENT_TIME: EVENT_TIME_STRATEGY, COMMIT_TIME: COMMIT_TIME_STRATEGY}.get(mode, CUSTOM_STRATEGY)
            properties |= {_MODE: mode, _STRATEGY: strategy}
        return properties
    if name not in _TRANSLATED:
        fields = {_ORDERING: ",".join(ordering)} if ordering else {}
        return {**fields, _MODE: CUSTOM, _STRATEGY: CUSTOM_STRATEGY, _PAYLOAD: name}
    mode, partial = _TRANSLATED[name]
    if name.endswith("MySqlDebeziumAvroPayload") and ordering in ((), ("_event_seq",)):
        ordering = ("_event_bin_file", "_event_pos")
    if mode == EVENT_TIME and not ordering:
        raise TableError(f"payload class {payload} compares an ordering field and none is given. Name one.")
    properties = {_MODE: mode, _LEGACY_PAYLOAD: name} | ({_ORDERING: ",".join(ordering)} if ordering else {})
    if name in _PAYLOAD_DELETES:
        field, marker = _PAYLOAD_DELETES[name]
        properties |= {_merge_keys("hoodie.payload.delete.field")[0]: field}
        properties |= {_merge_keys("hoodie.payload.delete.marker")[0]: marker}
    if partial:
        properties[_PARTIAL] = partial
    if partial == "FILL_UNAVAILABLE":
        properties[_merge_keys(_UNAVAILABLE)[0]] = UNAVAILABLE_VALUE
    return properties


def _check(properties: Mapping[str, str], where: str) -> tuple[int, int]:
    """Version and layout of a table that we can read; raises for every other one."""
    for key in (_NAME, _TYPE, _VERSION, _LAYOUT):
        if not properties.get(key, "").strip():
            raise FormatError(
                f"{where}: {key} is missing, so the table cannot be read safely. Restore the file or add the key."
            )
    version, layout = _integer(properties, _VERSION, where), _integer(properties, _LAYOUT, where)
    if version not in VERSIONS:
        raise Unsupported(
            f"{where}: table version {version}. lakesql reads and writes versions 6, 8 and 9. Bring the table to one of "
            "them with Hudi's upgrade_table or downgrade_table procedure on Spark."
        )
    expected_layout = 1 if version == 6 else 2
    if layout != expected_layout:
        raise FormatError(
            f"{where}: {_LAYOUT} is {layout}, but table version {version} has layout {expected_layout}. "
            "An upgrade was interrupted, or the file was edited; restore it."
        )
    if properties[_TYPE].strip().upper() not in TABLE_TYPES:
        raise FormatError(
            f"{where}: {_TYPE} is '{properties[_TYPE]}', expected one of {', '.join(TABLE_TYPES)}. Restore the file."
        )
    stored = properties.get(_CHECKSUM, "").strip()
    computed = table_checksum(properties[_NAME], properties.get(_DATABASE, ""))
    if stored and stored != computed:
        raise FormatError(
            f"{where}: {_CHECKSUM} is {stored}, but the database and table names in the file give {computed}. "
            "The file was edited or damaged; restore it, or correct the names or the checksum."
        )
    for key, accepted in _ONLY.items():
        value = properties.get(key, "").strip()
        if value and value.upper() not in accepted:
            raise Unsupported(f"{where}: {key}={value}. lakesql does not read such tables.")
    return version, layout


_ONLY: Mapping[str, tuple[str, ...]] = {
    "hoodie.bootstrap.base.path": (),
    "hoodie.table.base.file.format": ("PARQUET",),
    "hoodie.table.log.file.format": ("HOODIE_LOG",),
    "hoodie.table.multiple.base.file.formats.enable": ("FALSE",),
    "hoodie.table.format": ("NATIVE",),
}
"""Key to the values that change nothing; any other value is a table of another kind."""


def _merge_mode(properties: Mapping[str, str], version: int, payload: str | None) -> str:
    """The rule of Hudi 1.x (hudi-format 1.5), which differs from what 0.15 does with unmerged logs."""
    stored = properties.get(_MODE, "").strip().upper()
    if stored:
        return stored
    strategy = _first(properties, _STRATEGY, "hoodie.compaction.record.merger.strategy")
    if not payload and not strategy:
        return EVENT_TIME if _ordering_fields(properties) else COMMIT_TIME
    by_payload = _PAYLOAD_MODES.get(payload, CUSTOM) if payload else None
    by_strategy = _STRATEGY_MODES.get(strategy, CUSTOM) if strategy else None
    first, second = (by_payload, by_strategy) if version < 8 else (by_strategy, by_payload)
    return first or second or CUSTOM


def _key_generator(properties: Mapping[str, str], keys: Sequence[str], partitions: Sequence[str]) -> str:
    kind = properties.get(_KEYGEN_TYPE, "").strip().upper()
    if kind and kind != "USER_PROVIDED":
        return kind
    name = properties.get(_KEYGEN_CLASS, "").strip()
    if name:
        return _KEY_GENERATOR_TYPES.get(name.removeprefix(_KEYGEN_PACKAGE), "USER_PROVIDED")
    return kind or _inferred_generator(keys, partitions)


def _inferred_generator(keys: Sequence[str], partitions: Sequence[str]) -> str:
    """What Hudi takes when a table is created without naming one (hudi-format 6.1, 6.7)."""
    if any(":" in field for field in partitions):
        return "CUSTOM"
    if not partitions:
        return "NON_PARTITION"
    return "SIMPLE" if len(keys) <= 1 and len(partitions) == 1 else "COMPLEX"


def _partition_fields(properties: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    pairs = [field.partition(":") for field in _csv(properties.get(_PARTITION_FIELDS, ""))]
    return tuple(pair[0] for pair in pairs), tuple(pair[2].upper() for pair in pairs)


def _ordering_fields(properties: Mapping[str, str]) -> tuple[str, ...]:
    return _csv(_first(properties, _ORDERING, _PRECOMBINE) or "")


def _merge_keys(key: str) -> tuple[str, str]:
    return _MERGE_PROPERTY + key, key


def _first(properties: Mapping[str, str], *keys: str) -> str | None:
    return next((value for key in keys if (value := properties.get(key, "").strip())), None)


def _csv(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _flag(properties: Mapping[str, str], key: str, default: bool = False) -> bool:
    value = properties.get(key, "").strip().lower()
    return value == "true" if value else default


def _integer(properties: Mapping[str, str], key: str, where: str) -> int:
    try:
        return int(properties[key])
    except ValueError:
        raise FormatError(f"{where}: {key} is '{properties[key]}', expected a number. Restore the file.") from None
