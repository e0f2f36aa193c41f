"""Numbers stand beside the right form of their noun."""

import pytest

from lakesql.counted import counted


@pytest.mark.parametrize(("number", "text"), [(0, "0 files"), (1, "1 file"), (2, "2 files"), (1234, "1,234 files")])
def test_one_thing_is_singular_and_any_other_number_plural(number: int, text: str) -> None:
    assert counted(number, "file") == text


def test_a_plural_of_its_own_is_taken() -> None:
    assert [counted(n, "copy", "copies") for n in (1, 2)] == ["1 copy", "2 copies"]
