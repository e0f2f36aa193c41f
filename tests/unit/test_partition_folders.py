"""A partition value that makes a folder name with a meaning elsewhere is a partition like any other."""

import pytest

from lakesql.storage import TEMPORARY
from tests.writing import delete, rows_of, table, upsert

HIVE_STYLE = "hoodie.datasource.write.hive_style_partitioning"


@pytest.mark.parametrize("hive_style", ["true", "false"])
@pytest.mark.parametrize("type_", ["cow", "mor"])
@pytest.mark.parametrize("value", ["x.crc", ".x.crc", f"{TEMPORARY}x", f".x{TEMPORARY}1", "_temporary", "a/.hoodie"])
def test_rows_are_read_from_a_folder_of_any_name(tmp_path, value, type_, hive_style):
    t = table(tmp_path / "t", type_, properties={HIVE_STYLE: hive_style})
    upsert(t, ("a", value, 1, 1), ("b", value, 2, 1))
    upsert(t, ("a", value, 3, 2))
    delete(t, ("b", value))
    assert rows_of(t) == [("a", value, 3, 2)]
