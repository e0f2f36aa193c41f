"""Bloom filters of base files, against texts that Hudi's own filters gave for the same keys."""

import base64
import hashlib
import math
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from lakesql.errors import FormatError, Unsupported
from lakesql.format.bloom import DYNAMIC, SIMPLE, from_text, new_filter

TAILS = ("", "ü", "東京", "x", "yz", "😀")


def keys(first: int, last: int) -> pa.Array:
    return pa.array([f"key-{i}{TAILS[i % 6]}" for i in range(first, last)], pa.string())


class Golden(NamedTuple):
    type_code: str
    entries: int
    max_entries: int
    count: int
    fpp: float
    length: int
    sha256: str
    hits: str
    text: str


def goldens() -> list[Golden]:
    lines = (Path(__file__).parent.parent / "golden" / "bloom.tsv").read_text(encoding="utf-8").splitlines()
    kinds = (str, int, int, int, float, int, str, str, str)
    return [Golden(*(kind(v) for kind, v in zip(kinds, line.split("\t"), strict=True))) for line in lines]


@pytest.mark.parametrize(
    "golden", goldens(), ids=lambda g: f"{g.type_code}-{g.entries}-{g.max_entries}-{g.count}-{g.fpp}"
)
def test_the_text_is_hudis_bit_for_bit_and_so_are_the_answers(golden: Golden) -> None:
    added = keys(0, golden.count)
    bloom = new_filter(added, golden.entries, golden.fpp, golden.max_entries, golden.type_code)
    text = bloom.to_text()
    assert (len(text), hashlib.sha256(text.encode()).hexdigest()) == (golden.length, golden.sha256)
    assert golden.text in ("", text)
    probes = bloom.might_contain(keys(golden.count, golden.count + 200))
    assert "".join("01"[int(p)] for p in probes) == golden.hits
    assert bloom.might_contain(added).all()
    assert from_text(text, golden.type_code).to_text() == text


def test_keys_added_in_portions_give_the_same_filter_as_all_at_once() -> None:
    for entries, most in ((10, 25), (10, 10), (7, 5), (100, 1000)):
        grown, at = new_filter(keys(0, 0), entries, 0.01, most), 0
        for portion in (1, 9, 0, 10, 3, 40, 200):
            grown = grown.add(keys(at, at + portion))
            at += portion
        assert grown.to_text() == new_filter(keys(0, at), entries, 0.01, most).to_text()


def test_a_filter_from_a_footer_takes_further_keys() -> None:
    old = from_text(new_filter(keys(0, 5), 10, 0.01, 25).to_text(), DYNAMIC, 25)
    more = old.add(keys(5, 22))
    assert more.to_text() == new_filter(keys(0, 22), 10, 0.01, 25).to_text()
    assert not old.might_contain(keys(5, 22)).all()
    simple = from_text(new_filter(keys(0, 5), 10, 0.01, type_code=SIMPLE).to_text()).add(keys(5, 9))
    assert simple.to_text() == new_filter(keys(0, 9), 10, 0.01, type_code=SIMPLE).to_text()


def test_a_filter_that_gets_too_full_has_fewer_functions_and_is_the_better_for_it() -> None:
    most, foreign = keys(0, 3000), keys(3000, 6000)
    usual, fitted = (new_filter(most, 300, 1e-6, 600, expected=n) for n in (0, 3000))
    assert (usual.hashes, fitted.hashes) == (20, 4)
    assert fitted.might_contain(most).all()
    assert fitted.might_contain(foreign).mean() < 0.15 < 0.3 < usual.might_contain(foreign).mean()
    again = from_text(fitted.to_text(), DYNAMIC, 600)
    assert (again.might_contain(foreign) == fitted.might_contain(foreign)).all()
    for roomy in (1, 300, 600):
        assert (
            new_filter(keys(0, 9), 300, 1e-6, 600, expected=roomy).to_text()
            == new_filter(keys(0, 9), 300, 1e-6, 600).to_text()
        )


def test_the_default_filter_has_the_header_of_real_files() -> None:
    data = base64.b64decode(new_filter(keys(0, 3)).to_text())
    row = "ffffffff 0000001e 01 00277d3e"
    assert data.startswith(bytes.fromhex(f"{row} 0000ea60 00000003 00000001 {row}"))


def test_keys_of_every_array_type_and_slice_are_the_same_keys() -> None:
    array = keys(0, 50)
    text = new_filter(array, 100).to_text()
    parts = pa.chunked_array([array.slice(0, 7), array.slice(7)])
    assert new_filter(array.cast(pa.large_string()), 100).to_text() == text
    assert new_filter(array.cast(pa.string_view()), 100).to_text() == text
    assert new_filter(parts, 100).to_text() == text
    assert new_filter(pa.chunked_array([], pa.string()), 100).to_text() == new_filter(keys(0, 0), 100).to_text()


def murmur(d: bytes, seed: int) -> int:
    """The hash in plain Python (Hudi format note, appendix D)."""
    m, u = 0x5BD1E995, 0xFFFFFFFF
    h = (seed ^ len(d)) & u
    for j in range(0, len(d) - len(d) % 4, 4):
        k = int.from_bytes(d[j : j + 4], "little") * m & u
        k = (k ^ (k >> 24)) * m & u
        h = (h * m & u) ^ k
    signed = struct.unpack(f"{len(d)}b", d)
    r = len(d) % 4
    if r:
        for behind in range(r):
            h ^= signed[-1 - behind] << 8 * behind & u
        h = h * m & u
    h ^= h >> 13
    h = h * m & u
    return h ^ (h >> 15)


def test_positions_equal_those_of_the_plain_hash_for_keys_of_every_length() -> None:
    texts = ["", *("aé東😀"[i % 4] * (i % 7) + "x" * i for i in range(40))]
    bloom = new_filter(pa.array(texts), 1000)
    expected = np.zeros(bloom.bits, bool)
    for text in texts:
        seed = 0
        for _ in range(bloom.hashes):
            seed = murmur(text.encode(), seed)
            signed = seed - (1 << 32) if seed >> 31 else seed
            expected[abs(int(math.fmod(signed, bloom.bits)))] = True
    assert (bloom.rows[0] == expected).all()


@pytest.mark.parametrize("text", ["", "????", "/////w=="])
def test_a_text_that_is_no_filter_is_a_format_error(text: str) -> None:
    with pytest.raises(FormatError, match=r"bloom filter of \d characters is damaged"):
        from_text(text)


@pytest.mark.parametrize("type_code", [SIMPLE, DYNAMIC])
def test_every_truncation_and_trailing_bytes_are_a_format_error(type_code: str) -> None:
    data = base64.b64decode(new_filter(keys(0, 22), 10, 0.01, 25, type_code).to_text())
    for bad in (*(data[:end] for end in range(len(data))), data + b"\0"):
        with pytest.raises(FormatError):
            from_text(base64.b64encode(bad).decode(), type_code)


def test_a_dynamic_filter_read_as_a_simple_one_is_a_format_error() -> None:
    dynamic = new_filter(keys(0, 3), 10).to_text()
    with pytest.raises(FormatError, match="Is its type code right"):
        from_text(dynamic)
    with pytest.raises(Unsupported, match="bloom filter type 'CUCKOO'"):
        from_text(dynamic, "CUCKOO")


@pytest.mark.parametrize(
    ("at", "value"), [(0, 1), (4, 0), (8, 7), (9, 0), (13, 0), (17, -1), (21, 0), (21, 1 << 30), (34, 5)]
)
def test_a_field_that_no_filter_has_is_a_format_error(at: int, value: int) -> None:
    data = bytearray(base64.b64decode(new_filter(keys(0, 3), 10).to_text()))
    struct.pack_into(">b" if at == 8 else ">i", data, at, value)
    with pytest.raises(FormatError):
        from_text(base64.b64encode(data).decode(), DYNAMIC)
