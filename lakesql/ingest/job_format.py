"""The format of messages out of the settings of a job: by its name, or by the Java classes that Gobblin's jobs name.

The frame of Avro cannot be told from the bytes (R38 and R39 begin alike): it is never guessed.
"""

import re
from dataclasses import replace
from urllib.parse import unquote

from lakesql.ingest.model import Format
from lakesql.ingest.reading import Reading
from lakesql.ingest.setting_keys import FORMAT

FIXED = "gobblin.source.kafka.fixedSchema."
LOGIN = "schema.registry.basic.auth.user.info"
_CHOOSING = {
    "source.class",
    "kafka.deserializer.type",
    "lakesql.format",
    "lakesql.wire",
    "kafka.schema.registry.url",
    "kafka.schema.registry.class",
}
_DESERIALIZERS = {
    "CONFLUENT_AVRO": Format("avro", "confluent"),
    "CONFLUENT_JSON": Format("json"),
    "GSON": Format("json"),
    "STRING": Format("string"),
    "BYTE_ARRAY": Format("raw"),
}


def format_of(read: Reading, given: Format | None) -> Format:
    """The format that a statement gives, or the one that the settings say, with their options."""
    chosen = given or _named(read)
    wire = chosen.wire or _wire(read, chosen)
    registry, login = _without_login(chosen.registry or read("kafka.schema.registry.url"))
    options = {
        key.name: str(read.text(key.name)) for key in FORMAT if key.name not in _CHOOSING and read.given(key.name)
    }
    for name, value in read.settings.items():
        if name.startswith(FIXED):
            read.check_closed(name, value)
            options[name] = value
    if login:
        options.setdefault(LOGIN, login)
    found = replace(chosen, wire=wire, registry=registry, options=options | dict(chosen.options))
    _check(read, found)
    return found


def _named(read: Reading) -> Format:
    if kind := read("lakesql.format"):
        return Format(kind)
    deserializer = read("kafka.deserializer.type")
    source = read.text("source.class")
    simple = (source or "").rsplit(".", 1)[-1]
    if deserializer:
        return _DESERIALIZERS[deserializer]
    if simple.startswith("KafkaSimpleJson"):
        return Format("json")
    if simple.startswith("KafkaSimple"):
        return Format("raw")
    if simple == "KafkaAvroSource":
        return Format("avro", "linkedin")
    remedy = "Set lakesql.format to json, avro, raw, string or python."
    if simple == "KafkaDeserializerSource":
        raise read.missing("kafka.deserializer.type", f"KafkaDeserializerSource needs it. {remedy}")
    if source:
        raise read.wrong("source.class", "the format of this class is not known", remedy)
    raise read.missing(
        "lakesql.format", "The format of the messages is not said. Set it to json, avro, raw, string or python."
    )


def _wire(read: Reading, chosen: Format) -> str | None:
    if chosen.kind not in ("avro", "json"):
        return None
    wire: str | None = read("lakesql.wire")
    if wire or chosen.kind == "json":
        return wire
    registry = (read.text("kafka.schema.registry.class") or "").rsplit(".", 1)[-1].lower()
    if "confluent" in registry:
        return "confluent"
    if registry:
        return "linkedin"
    raise read.missing(
        "lakesql.wire", "The frame of Avro cannot be told from the bytes. Set it to confluent, linkedin or none."
    )


def _without_login(urls: str | None) -> tuple[str | None, str | None]:
    """The addresses without user and password, which would be seen wherever they are shown; and these."""
    if not urls or not (found := re.search(r"(?<=//)[^/@\s,]+(?=@)", urls)):
        return urls, None
    return re.sub(r"(?<=//)[^/@\s,]+@", "", urls), unquote(found[0])


def _check(read: Reading, found: Format) -> None:
    options = found.options
    if found.kind == "avro":
        fixed = "lakesql.avro.schema" in options or any(name.startswith(FIXED) for name in options)
        if found.wire == "none" and not fixed:
            raise read.missing(
                "lakesql.avro.schema", f"Avro without a frame needs a fixed schema. Set it, or {FIXED}<topic>."
            )
        if found.wire != "none" and not found.registry:
            raise read.missing(
                "kafka.schema.registry.url", f"Avro with the {found.wire} frame needs the registry of its schemas."
            )
    if found.kind == "python" and not options.get("lakesql.decoder") and not options.get("function"):
        raise read.missing("lakesql.decoder", "Set it to the name given to lakesql.register_decoder.")
    if options.get("lakesql.envelope", "none").lower() != "none" and found.kind not in ("json", "avro"):
        raise read.wrong(
            "lakesql.envelope", f"messages of the format {found.kind} have no envelope", "Use json or avro."
        )
