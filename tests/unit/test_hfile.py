"""HFiles made by hand: several blocks and levels of index, both codecs, and damage of every kind."""

import gzip
import struct

import pytest

from lakesql.errors import FormatError, LakeError, Unsupported
from lakesql.format.hfile import of_bytes, open_hfile

PAIRS = [(f"key{n:03}", f"value {n}".encode()) for n in range(40)]
GZ, NONE = 1, 2


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def message(**fields: int) -> bytes:
    return b"".join(varint(int(n[1:]) << 3) + varint(v) for n, v in fields.items())


def whole(key: str) -> bytes:
    return struct.pack(">h", len(key)) + key.encode() + b"\0" + b"\x7f" + b"\xff" * 7 + b"\x04"


class Maker:
    """An HFile in the making."""

    def __init__(self, codec: int) -> None:
        self.codec = codec
        self.data = b""

    def block(self, magic: bytes, content: bytes) -> tuple[int, int]:
        stored = gzip.compress(content) if self.codec == GZ else content
        sums = b"\0" * 4 * -(-(33 + len(stored)) // 16384)
        first = len(self.data)
        head = struct.pack(">8siiqBii", magic, len(stored) + len(sums), len(content), -1, 0, 16384, 33 + len(stored))
        self.data += head + stored + sums
        return first, len(self.data) - first

    def pairs(self, pairs: list[tuple[str, bytes]]) -> tuple[int, int, str]:
        content = b"".join(struct.pack(">ii", len(whole(k)), len(v)) + whole(k) + v + b"\0" for k, v in pairs)
        return (*self.block(b"DATABLK*", content), pairs[0][0])

    def inner(self, magic: bytes, entries: list[tuple[int, int, str]]) -> tuple[int, int, str]:
        lines = [struct.pack(">qi", offset, size) + whole(key) for offset, size, key in entries]
        starts = [sum(map(len, lines[:n])) for n in range(len(lines) + 1)]
        head = struct.pack(f">{len(starts) + 1}i", len(lines), *starts)
        return (*self.block(magic, head + b"".join(lines)), entries[0][2])

    def finish(self, entries: list[tuple[int, int, str]], levels: int, count: int, codec: int | None = None) -> bytes:
        lines = [struct.pack(">qi", o, s) + varint(len(k) + 12) + whole(k) for o, s, k in entries]
        root, _ = self.block(b"IDXROOT2", b"".join(lines))
        self.block(b"IDXROOT2", b"")
        pair = b"\x0a\x06schema\x12\x02{}"
        told = b"\x0a" + varint(len(pair)) + pair
        info, _ = self.block(b"FILEINF2", b"PBUF" + varint(len(told)) + told)
        fields = message(f1=info, f2=root, f5=len(entries), f6=0, f7=count, f8=levels, f12=codec or self.codec)
        trailer = b'TRABLK"$' + varint(len(fields)) + fields
        return self.data + trailer.ljust(4092, b"\0") + b"\0\0\0\x03"


def made(codec: int = GZ, levels: int = 1, told: int | None = None) -> bytes:
    maker = Maker(codec)
    entries = [maker.pairs(PAIRS[n : n + 5]) for n in range(0, len(PAIRS), 5)]
    for level in range(1, levels):
        magic = b"IDXLEAF2" if level == 1 else b"IDXINTE2"
        entries = [maker.inner(magic, entries[n : n + 2]) for n in range(0, len(entries), 2)]
    return maker.finish(entries, levels, len(PAIRS), told)


@pytest.mark.parametrize("codec", [GZ, NONE])
@pytest.mark.parametrize("levels", [1, 2, 3])
def test_every_key_is_found_and_no_other(codec: int, levels: int) -> None:
    file = of_bytes(made(codec, levels), "f")
    assert list(file.scan()) == PAIRS
    assert (file.entries, file.levels, file.info) == (40, levels, {"schema": b"{}"})
    assert [file.get(key) for key, _ in PAIRS] == [value for _, value in PAIRS]
    assert [file.get(key) for key in ("", "a", "key0045", "key039x", "z")] == [None] * 5


def test_a_look_up_reads_one_data_block() -> None:
    data, asked = made(), []
    file = of_bytes(data, "f")
    counted = file.__class__(
        lambda first, count: asked.append(first) or data[first : first + count],
        *(getattr(file, name) for name in ("where", "codec", "entries", "levels", "index", "meta", "info")),
    )
    assert counted.get("key017") == b"value 17"
    assert len(asked) == 2  # header and content


def test_a_repeated_key_gives_its_first_value_across_blocks() -> None:
    maker = Maker(NONE)
    entries = [
        maker.pairs([("a", b"1"), ("b", b"2")]),
        maker.pairs([("b", b"3")]),
        maker.pairs([("b", b"4"), ("c", b"5")]),
    ]
    file = of_bytes(maker.finish(entries, 1, 5), "f")
    assert [file.get(k) for k in "abc"] == [b"1", b"2", b"5"]


@pytest.mark.parametrize(("codec", "name"), [(3, "SNAPPY"), (6, "ZSTD"), (99, "99")])
def test_other_codecs_are_refused_by_name(codec: int, name: str) -> None:
    with pytest.raises(Unsupported, match=f"compressed with {name}; lakesql reads GZ and NONE"):
        of_bytes(made(NONE, told=codec), "f")


@pytest.mark.parametrize("data", [b"", b"x" * 100, b"\0" * 5000, made()[:-1], made()[:-1] + b"\x02"])
def test_what_is_no_hfile_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError, match="f: no HFile of version 3"):
        of_bytes(data, "f")


@pytest.mark.parametrize("levels", [1, 2])
def test_damage_is_an_error_of_ours_or_harmless(levels: int) -> None:
    data = made(GZ, levels)
    said = set()
    for at in range(0, len(data) - 4036, 7):
        for value in (0, 0x7F, 0xFF):
            try:
                list(of_bytes(data[:at] + bytes([value]) + data[at + 1 :], "f").scan())
            except LakeError as error:
                said.add(str(error))
    assert said
    assert all(
        (text.startswith("f") and "damaged" in text) or "no HFile" in text or "reads GZ" in text for text in said
    )


def test_an_index_that_leads_back_to_itself_ends() -> None:
    maker = Maker(NONE)
    maker.pairs(PAIRS)
    here = len(maker.data)
    entry = maker.inner(b"IDXLEAF2", [(here, 0, f"key{n:03}") for n in range(50)])
    maker.data = maker.data.replace(b"IDXLEAF2", b"IDXINTE2")
    with pytest.raises(FormatError, match="block at byte"):
        list(of_bytes(maker.finish([entry], 8, 40), "f").scan())
    maker = Maker(NONE)
    leaf = maker.pairs(PAIRS)
    entry = leaf
    for _ in range(7):
        entry = maker.inner(b"IDXINTE2", [entry] * 50)
    with pytest.raises(FormatError, match="the index names it after a later one"):
        list(of_bytes(maker.finish([entry], 8, 40), "f").scan())


def test_an_empty_index_block_is_damage() -> None:
    maker = Maker(NONE)
    here = len(maker.data)
    maker.block(b"IDXLEAF2", struct.pack(">ii", 0, 0))
    with pytest.raises(FormatError, match="an index block of the HFile is empty"):
        list(of_bytes(maker.finish([(here, 0, "a")], 2, 0), "f").scan())


@pytest.mark.parametrize("offset", [2**31, 2**62, 2**80])
def test_no_byte_outside_of_the_file_is_asked_for(offset: int) -> None:
    data, asked = made(), []

    def read(first: int, count: int) -> bytes:
        asked.append((first, count))
        assert 0 <= first <= first + count <= len(data)
        return data[first : first + count]

    open_hfile(read, len(data), "f")
    fields = message(f1=offset, f2=offset, f5=1, f7=1, f8=1, f12=GZ)
    trailer = b'TRABLK"$' + varint(len(fields)) + fields
    data = data[:-4096] + trailer.ljust(4092, b"\0") + b"\0\0\0\x03"
    with pytest.raises(FormatError, match=f"f: the HFile names byte {offset}, it has {len(data)}"):
        open_hfile(read, len(data), "f")
    assert asked
