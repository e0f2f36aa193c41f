"""Delete block contents of versions 1 and 2: what the Kryo serialiser writes for HoodieKey[] and DeleteRecord[].

Strategy: a reader for exactly these two object graphs, one object after another (such blocks are old and small).

    class    varint 0 null; 1 name: varint name number, the name itself at its first use; n+2 registered class n
    object   varint 0 null, 1 a new object follows, n+2 the n-th object of the stream again; boxed numbers have none
    string   first byte < 128: ASCII up to the byte with its top bit set; else a length (characters + 1, 6 bits in the
             first byte, bit 6: more) and that many UTF-16 units in one to three bytes each
    array    varint length + 1, then class and object of each element
    HoodieKey     partitionPath, recordKey (fields in the order of their names)
    DeleteRecord  class and object of the key, class and value of the ordering value

Hudi format note 4.7. Other classes of ordering values (BigDecimal, Timestamp, Utf8) are refused by name. Never written.
"""

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lakesql.errors import FormatError, Unsupported

_KEYS = "[Lorg.apache.hudi.common.model.HoodieKey;"
_RECORDS = "[Lorg.apache.hudi.common.model.DeleteRecord;"
_KEY = "org.apache.hudi.common.model.HoodieKey"
_RECORD = "org.apache.hudi.common.model.DeleteRecord"
_REGISTERED = ("int", "string", "float", "boolean", "byte", "char", "short", "long", "double", "void")
_TOP = re.compile(rb"[\x80-\xff]")

Delete = tuple[str | None, str | None, str | None, Any]  # record key, partition path, kind of ordering value, the value


@dataclass(slots=True)
class _Stream:
    data: bytes
    at: int = 0
    names: list[str] = field(default_factory=list)
    objects: list[tuple[str | None, Any]] = field(default_factory=list)  # class and value


def read_deletes(data: bytes, version: int) -> list[Delete]:
    """(record key, partition path, kind, ordering value) of each deleted key.

    kind is one of int, long, float, double, boolean, string, or None without an ordering value. FormatError when the
    bytes are not a Kryo array of the version's class, Unsupported for another class of ordering value.
    """
    s = _Stream(data)
    try:
        expected = _KEYS if version == 1 else _RECORDS
        name = _class(s)
        if name != expected:
            raise FormatError(f"delete block content version {version}: expected class {expected}, found {name}.")
        _reference(s)
        s.objects.append((expected, None))
        count = _varint(s) - 1
        if count > len(data):
            raise FormatError(f"delete block: an array of {count} elements in {len(data)} bytes. It is damaged.")
        rows = [_element(s, _KEY if version == 1 else _RECORD) for _ in range(count)]
    except (IndexError, struct.error, UnicodeError) as error:
        raise FormatError(
            f"delete block content version {version} ends or goes wrong at byte {s.at} of {len(data)}: {error}. "
            "It is damaged or torn."
        ) from None
    return [row for row in rows if row is not None]


def _element(s: _Stream, expected: str) -> Delete | None:
    row: Delete | None = _object(s, expected, _key if expected == _KEY else _record)
    return row


def _object(s: _Stream, expected: str, read: Callable[[_Stream], Any]) -> Any:
    """Class and object; the value of an object met before is taken from the list."""
    name = _class(s)
    if name is None:
        return None
    if name != expected:
        raise FormatError(f"delete block: expected class {expected}, found {name} at byte {s.at}.")
    known = _reference(s)
    if known is not None:
        return _known(s, known, expected)
    number = len(s.objects)
    s.objects.append((None, None))
    value = read(s)
    s.objects[number] = expected, value
    return value


def _known(s: _Stream, number: int, expected: str) -> Any:
    name, value = s.objects[number]
    if name != expected:
        raise FormatError(f"delete block: object {number} is not of class {expected} at byte {s.at}. It is damaged.")
    return value


def _key(s: _Stream) -> Delete:
    partition = _string_object(s)
    return _string_object(s), partition, None, None


def _record(s: _Stream) -> Delete:
    key = _object(s, _KEY, _key)
    kind = _class(s)
    if key is None:
        raise FormatError(f"delete block: a delete record without a key at byte {s.at}.")
    if kind is None:
        return (key[0], key[1], None, None)
    if kind == "string":
        return (key[0], key[1], kind, _string_object(s))
    if kind not in _VALUES:
        raise Unsupported(
            f"delete block: an ordering value of class {kind} in the Kryo form of Hudi 0.13 and older is not read. "
            "Compact the table with the Hudi release that wrote it."
        )
    name, read = _VALUES[kind]
    return (key[0], key[1], name, read(s))


def _class(s: _Stream) -> str | None:
    number = _varint(s)
    if number == 0:
        return None
    if number > 1:
        number -= 2
        return _REGISTERED[number] if number < len(_REGISTERED) else f"number {number} of the registered ones"
    number = _varint(s)
    if number > len(s.names):
        raise FormatError(f"delete block: class name number {number} before its name at byte {s.at}.")
    if number == len(s.names):
        s.names.append(_string(s) or "")
    return s.names[number]


def _reference(s: _Stream) -> int | None:
    """None for a new object, else the number of the object meant."""
    number = _varint(s)
    if number == 1:
        return None
    if number == 0 or number - 2 >= len(s.objects):
        raise FormatError(f"delete block: a reference to object {number - 2} of {len(s.objects)} at byte {s.at}.")
    return number - 2


def _string_object(s: _Stream) -> str | None:
    if s.data[s.at] == 0:
        s.at += 1
        return None
    known = _reference(s)
    if known is None:
        s.objects.append(("string", _string(s)))
        known = -1
    text: str | None = _known(s, known, "string")
    return text


def _string(s: _Stream) -> str | None:
    first = s.data[s.at]
    if first < 128:
        top = _TOP.search(s.data, s.at)
        if top is None:
            raise FormatError(f"delete block: a string without an end at byte {s.at}.")
        text = s.data[s.at : top.start()] + bytes([s.data[top.start()] & 127])
        s.at = top.end()
        return text.decode("ascii")
    s.at += 1
    length = first & 63
    shift = 6
    more = first & 64
    while more:
        byte = s.data[s.at]
        s.at += 1
        length |= (byte & 127) << shift
        shift += 7
        more = byte & 128 if shift < 34 else 0
    if length == 0:
        return None
    begin = s.at
    for _ in range(length - 1):
        byte = s.data[s.at]
        s.at += 1 if byte < 128 else 2 if byte < 224 else 3
    if s.at > len(s.data):
        raise FormatError(f"delete block: a string goes on past the end at byte {begin}.")
    text_ = s.data[begin : s.at].decode("utf-8", "surrogatepass")
    return text_.encode("utf-16", "surrogatepass").decode("utf-16")


def _varint(s: _Stream, bytes_max: int = 5) -> int:
    """Seven bits a byte; the ninth byte of a long carries eight."""
    value = shift = 0
    for i in range(bytes_max):
        byte = s.data[s.at]
        s.at += 1
        if i == 8:
            return value | byte << shift
        value |= (byte & 127) << shift
        if byte < 128:
            return value
        shift += 7
    raise FormatError(f"delete block: a number of more than {bytes_max} bytes at byte {s.at}.")


def _zigzag(s: _Stream, bytes_max: int, bits: int) -> int:
    z = _varint(s, bytes_max) & ((1 << bits) - 1)
    return (z >> 1) ^ -(z & 1)


def _unpacked(s: _Stream, layout: str) -> Any:
    value = struct.unpack_from(layout, s.data, s.at)[0]
    s.at += struct.calcsize(layout)
    return value


_VALUES: dict[str, tuple[str, Callable[[_Stream], Any]]] = {
    "int": ("int", lambda s: _zigzag(s, 5, 32)),
    "long": ("long", lambda s: _zigzag(s, 9, 64)),
    "short": ("int", lambda s: _unpacked(s, ">h")),
    "byte": ("int", lambda s: _unpacked(s, ">b")),
    "float": ("float", lambda s: _unpacked(s, ">f")),
    "double": ("double", lambda s: _unpacked(s, ">d")),
    "boolean": ("boolean", lambda s: _unpacked(s, ">?")),
}
