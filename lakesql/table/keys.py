"""Key generators: record key and partition path of a row, as SQL expressions over the table's columns.

Every generator of hudi-format 6.1 is here as text for DuckDB, so keys of a whole batch are computed in one scan and
equal Hudi's byte for byte: Java's spelling of decimals and doubles (6.2), hive style and Hive's escaping (6.3, 6.5),
the TIMESTAMP generator (6.4, `key_times`), typed parts of CUSTOM (6.6). A NULL result means the row has no key.
Options not stored in the table (6.4 for CUSTOM, 6.6 for version 6) are taken from `options`, the job's settings.
Not here: keys that are generated (6.7), and looking at a table to find the style of its single-field complex keys.
"""

from collections.abc import Mapping

import pyarrow as pa

from lakesql.errors import TableError, Unsupported
from lakesql.format.metadata import TableConfig
from lakesql.table.key_times import timestamp_path_sql
from lakesql.table.names import literal, quote

BARE, PREFIXED = "bare", "prefixed"
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"

GENERATORS = {
    "SIMPLE": "SIMPLE",
    "SIMPLE_AVRO": "SIMPLE",
    "COMPLEX": "COMPLEX",
    "COMPLEX_AVRO": "COMPLEX",
    "NON_PARTITION": "NON_PARTITION",
    "NON_PARTITION_AVRO": "NON_PARTITION",
    "TIMESTAMP": "TIMESTAMP",
    "TIMESTAMP_AVRO": "TIMESTAMP",
    "CUSTOM": "CUSTOM",
    "CUSTOM_AVRO": "CUSTOM",
    "GLOBAL_DELETE": "GLOBAL_DELETE",
    "GLOBAL_DELETE_AVRO": "GLOBAL_DELETE",
    "AUTO_RECORD": "SIMPLE",
    "AUTO_RECORD_AVRO": "SIMPLE",
}
"""Type name -> how keys are built; what is missing here is refused by name."""

# Hive's escaping, not RFC 3986 (hudi-format 6.5).
_ESCAPED = "".join(map(chr, range(1, 32))) + "\x7f\"#%'*/:=?\\{[]^"

_LOGICAL_TIMESTAMPS = "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled"


def generator(config: TableConfig) -> str:
    """How the table builds keys: a value of GENERATORS. Unsupported, by name, for any other key generator."""
    kind = GENERATORS.get(config.key_generator.upper())
    if kind is None:
        raise Unsupported(
            f"table {config.name}: key generator {config.key_generator} is not supported; lakesql knows "
            f"{', '.join(sorted(set(GENERATORS.values())))}. Write to this table with the engine that created it."
        )
    return kind


def styled(config: TableConfig) -> bool:
    """Whether record keys may be `value` or `field:value`: one key field under a complex form (HUDI-7001, 6.2)."""
    return len(config.record_key_fields) == 1 and generator(config) in ("COMPLEX", "GLOBAL_DELETE")


def default_style(config: TableConfig) -> str:
    """The style of a `styled` table that holds no key yet: what the releases that write its version do."""
    stored = config.properties.get("hoodie.table.complex.keygen.encoding", "").upper()
    if stored:
        return BARE if stored == "VALUE_ONLY" else PREFIXED
    return PREFIXED if config.version >= 9 or generator(config) == "GLOBAL_DELETE" else BARE


def record_key_sql(
    config: TableConfig, schema: pa.Schema, style: str | None = None, options: Mapping[str, str] | None = None
) -> str:
    """SQL text giving the record key (VARCHAR) of a row; NULL where Hudi would refuse the key.

    `style` matters for `styled` tables only. TableError when a key column is not in the schema or the table has no key
    columns, Unsupported for a key generator or a key type we cannot spell.
    """
    fields = config.record_key_fields
    if not fields:
        raise TableError(
            f"table {config.name} has no record key columns (hoodie.table.recordkey.fields): its keys are generated. "
            "Give the keys themselves in a column _hoodie_record_key."
        )
    complex_form = len(fields) > 1 or (styled(config) and (style or default_style(config)) == PREFIXED)
    texts = [_text(config, schema, f, options or {}, "record key") for f in fields]
    if not complex_form:
        return f"nullif({texts[0]}, '')"
    parts = [
        f"{literal(f + ':')} || coalesce(nullif({t}, ''), {_placeholder(t)})"
        for f, t in zip(fields, texts, strict=True)
    ]
    filled = " OR ".join(f"nullif({t}, '') IS NOT NULL" for t in texts)
    joined = " || ',' || ".join(parts)
    return f"CASE WHEN {filled} THEN {joined} END"


def partition_path_sql(config: TableConfig, schema: pa.Schema, options: Mapping[str, str] | None = None) -> str:
    """SQL text giving the partition path (VARCHAR, '' when not partitioned) of a row. Errors as `record_key_sql`."""
    given = {**config.properties, **(options or {})}
    kind = generator(config)
    fields = config.partition_fields
    if not fields or kind in ("NON_PARTITION", "GLOBAL_DELETE"):
        return "''"
    types = _partition_types(config, kind, given)
    parts = []
    for field, type_ in zip(fields, types, strict=True):
        if type_ == "TIMESTAMP":
            column, arrow = _column(config, schema, field, "partition")
            value = timestamp_path_sql(column, arrow, given, f"table {config.name}, partition column {field}")
        else:
            value = _simple_path(config, schema, field, given)
        if config.url_encode:
            value = _escaped(value)
        if config.slash_dates and type_ == "SIMPLE":
            value = f"replace({value}, '-', '/')"
        parts.append(f"{literal(field + '=')} || {value}" if config.hive_style else value)
    return " || '/' || ".join(parts)


def has_plain_paths(config: TableConfig) -> bool:
    """Whether a partition path tells the values of the partition columns, but for NULL and the texts that mean it."""
    whole = config.url_encode or len(config.partition_fields) == 1  # else 'a/b', 'c' and 'a', 'b/c' are one path
    return generator(config) in ("SIMPLE", "COMPLEX") and not config.slash_dates and whole


def path_texts(config: TableConfig, path: str) -> list[str] | None:
    """The texts of the partition columns in a partition path, escaped as they stand there; None when it is not made as
    the table's paths are. With one column a slash is part of its text."""
    fields = config.partition_fields
    segments = path.split("/") if len(fields) > 1 else [path]
    if len(segments) != len(fields):
        return None
    if not config.hive_style:
        return segments
    if not all(s.startswith(f"{f}=") for s, f in zip(segments, fields, strict=True)):
        return None
    return [s.removeprefix(f"{f}=") for s, f in zip(segments, fields, strict=True)]


def _placeholder(text: str) -> str:
    return f"CASE WHEN {text} IS NULL THEN '__null__' ELSE '__empty__' END"


def _partition_types(config: TableConfig, kind: str, given: Mapping[str, str]) -> tuple[str, ...]:
    if kind != "CUSTOM":
        return ("TIMESTAMP" if kind == "TIMESTAMP" else "SIMPLE",) * len(config.partition_fields)
    job = given.get("hoodie.datasource.write.partitionpath.field", "")
    typed = dict(part.strip().split(":", 1) for part in job.split(",") if ":" in part)
    stored = dict(zip(config.partition_fields, config.partition_types, strict=True))
    types = {f: stored[f] or typed.get(f, "").upper() for f in config.partition_fields}
    unknown = [f for f, t in types.items() if t not in ("SIMPLE", "TIMESTAMP")]
    if unknown:
        raise Unsupported(
            f"table {config.name}: it is not stored whether the CUSTOM partition columns {', '.join(unknown)} are "
            "SIMPLE or TIMESTAMP. Set hoodie.datasource.write.partitionpath.field as the other writers do, for "
            f"example {','.join(f + ':SIMPLE' for f in config.partition_fields)}."
        )
    return tuple(types.values())


def _simple_path(config: TableConfig, schema: pa.Schema, field: str, given: Mapping[str, str]) -> str:
    text = _text(config, schema, field, given, "partition")
    return f"coalesce(nullif({text}, ''), {literal(NULL_PARTITION)})"


def _escaped(value: str) -> str:
    escaped = "value"
    for char in "%" + _ESCAPED.replace("%", ""):
        escaped = f"replace({escaped}, chr({ord(char)}), '%{ord(char):02X}')"
    pattern = "[" + "".join(f"\\x{{{ord(c):02x}}}" for c in _ESCAPED) + "]"
    # A lambda over a one-element list names the value once; DuckDB then computes it once.
    body = f"CASE WHEN regexp_matches(value, {literal(pattern)}) THEN {escaped} ELSE value END"
    return f"list_transform([{value}], lambda value: {body})[1]"


def _column(config: TableConfig, schema: pa.Schema, field: str, role: str) -> tuple[str, pa.DataType]:
    """SQL reference and Arrow type of a column, or of a field inside structs (`a.b`)."""
    if field in schema.names:
        return quote(field), schema.field(field).type
    head, *rest = field.split(".")
    if not rest or head not in schema.names:
        raise TableError(
            f"table {config.name}: {role} column {field} is not in the table schema ({', '.join(schema.names)}). "
            "hoodie.properties and the schema of the newest commit do not fit each other; restore one of them."
        )
    reference, kind = quote(head), schema.field(head).type
    for name in rest:
        if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
            raise TableError(f"table {config.name}: {role} column {field}: there is no field {name} in {kind}.")
        reference, kind = f"{reference}.{quote(name)}", kind.field(name).type
    return reference, kind


def _text(config: TableConfig, schema: pa.Schema, field: str, options: Mapping[str, str], role: str) -> str:
    column, kind = _column(config, schema, field, role)
    where = f"table {config.name}: {role} column {field}"
    logical = {**config.properties, **options}.get(_LOGICAL_TIMESTAMPS, "false").lower() == "true"
    if logical and pa.types.is_timestamp(kind):
        raise Unsupported(
            f"{where} is a timestamp and {_LOGICAL_TIMESTAMPS} is true; lakesql writes timestamps as numbers only."
        )
    return value_text_sql(column, kind, where)


def value_text_sql(column: str, kind: pa.DataType, where: str) -> str:
    """SQL text that spells a value as Java does inside keys (hudi-format 6.2); NULL stays NULL."""
    if pa.types.is_string(kind):
        return column
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_date(kind):
        return f"CAST({column} AS VARCHAR)"
    if pa.types.is_timestamp(kind):
        return f"CAST({'epoch_ms' if kind.unit == 'ms' else 'epoch_us'}({column}) AS VARCHAR)"
    if pa.types.is_decimal(kind):
        return _decimal_text(column, kind.scale)
    if pa.types.is_floating(kind):
        return _floating_text(column)
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return f"lower(hex({column}))"
    raise Unsupported(f"{where} has type {kind}, which cannot be part of a key. Use string, int, long or date columns.")


def _decimal_text(column: str, scale: int) -> str:
    """`BigDecimal.toString`: plain, except E notation once the adjusted exponent is below -6."""
    plain = f"CAST({column} AS VARCHAR)"
    if scale <= 6:
        return plain
    digits = f"coalesce(nullif(ltrim(replace(CAST(abs({column}) AS VARCHAR), '.', ''), '0'), ''), '0')"
    mantissa = f"left({digits}, 1) || CASE WHEN length({digits}) > 1 THEN '.' || substr({digits}, 2) ELSE '' END"
    exponent = f"CAST(length({digits}) - 1 - {scale} AS VARCHAR)"
    tiny = f"CASE WHEN {column} < 0 THEN '-' ELSE '' END || {mantissa} || 'E' || {exponent}"
    return f"CASE WHEN abs({column}) < 0.000001 THEN {tiny} ELSE {plain} END"


def _floating_text(column: str) -> str:
    """`Double.toString` / `Float.toString`: plain from 1e-3 up to 1e7, else computerised scientific notation.

    The shortest digits, as Java 19 and later. Older ones spend a digit too many on some values (1.17549435E-38).
    """
    text = f"CAST({column} AS VARCHAR)"
    magnitude = f"CAST(abs({column}) AS VARCHAR)"
    sign = f"CASE WHEN {column} < 0 THEN '-' ELSE '' END"
    mantissa = f"split_part({magnitude}, 'e', 1)"
    power = f"CAST(CAST(split_part({magnitude}, 'e', 2) AS INTEGER) AS VARCHAR)"
    # One digit is never enough: Java then takes the two nearest to the exact value, 4.9E-324 where others write 5e-324.
    two = f"printf('%.1e', CAST(abs({column}) AS DOUBLE))"
    nearest = f"split_part({two}, 'e', 1) || 'E' || CAST(CAST(split_part({two}, 'e', 2) AS INTEGER) AS VARCHAR)"
    from_e = f"CASE WHEN contains({mantissa}, '.') THEN {mantissa} || 'E' || {power} ELSE {nearest} END"
    large = f"rtrim(replace({magnitude}, '.', ''), '0')"
    small = f"ltrim(split_part({magnitude}, '.', 2), '0')"

    def scientific(digits: str, exponent: str) -> str:
        return f"left({digits}, 1) || '.' || coalesce(nullif(substr({digits}, 2), ''), '0') || 'E' || {exponent}"

    return (
        f"CASE WHEN isnan({column}) THEN 'NaN' WHEN isinf({column}) THEN {sign} || 'Infinity' WHEN {column} = 0 OR "
        f"(abs({column}) >= 1e-3 AND abs({column}) < 1e7) THEN {text} WHEN contains({magnitude}, 'e') THEN {sign} || "
        f"{from_e} WHEN abs({column}) >= 1e7 THEN {sign} || "
        + scientific(large, f"CAST(length(split_part({magnitude}, '.', 1)) - 1 AS VARCHAR)")
        + f" ELSE {sign} || "
        + scientific(small, f"CAST(length({small}) - length(split_part({magnitude}, '.', 2)) - 1 AS VARCHAR)")
        + " END"
    )
