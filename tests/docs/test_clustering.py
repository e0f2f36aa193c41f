"""docs/services/clustering.md: its examples run, in their order, and its tables name every setting with its default."""

import re
import shlex
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import lakesql
from lakesql import cli
from lakesql.services import ttl
from lakesql.services.clustering_plan import BY_FIELD, ClusteringConfig

TEXT = (Path(__file__).parents[2] / "docs" / "services" / "clustering.md").read_text()
EXAMPLES = re.findall(r"```(\w+)\n(.*?)```", TEXT, re.S)


def test_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with lakesql.connect() as con:
        con.execute(
            "CREATE TABLE trips (id INT, ts BIGINT, lon DOUBLE, lat DOUBLE, city STRING) USING hudi "
            "PARTITIONED BY (city) TBLPROPERTIES (primaryKey = 'id')"
        )
        con.execute("INSERT INTO trips VALUES (1, 3, 10.75, 59.91, 'oslo'), (2, 1, 5.32, 60.39, 'bergen')")
        want = con.sql("SELECT * EXCLUDE (_hoodie_file_name) FROM trips ORDER BY id").fetchall()
        table = con.table("trips")
        for language, body in EXAMPLES:
            if language == "python":
                exec(body, {"table": table})
            elif language == "sql":
                for statement in filter(str.strip, body.split(";")):
                    con.sql(statement).fetchall()
            else:
                for line in filter(str.strip, body.splitlines()):
                    words = shlex.split(line, comments=True)
                    if "--every" not in words:
                        monkeypatch.setattr(sys, "argv", words)
                        with pytest.raises(SystemExit) as end:
                            cli.main()
                        assert not end.value.code
        assert con.sql("SELECT * EXCLUDE (_hoodie_file_name) FROM trips ORDER BY id").fetchall() == want


def defaults() -> list[tuple[str, str]]:
    """Names of settings as the tables write them, with the default as text where it is a number or a flag."""
    config = ClusteringConfig()
    found = []
    for field in fields(ClusteringConfig):
        name = BY_FIELD[field.name][0]
        value = getattr(config, field.name)
        if name.startswith("hoodie.clustering.") and not name.endswith("class"):
            found.append((name.removeprefix("hoodie.clustering."), str(value).lower() if value not in ((), "") else ""))
    return found


@pytest.mark.parametrize(("name", "default"), defaults())
def test_setting_is_in_the_table_with_its_default(name: str, default: str) -> None:
    last = name.removeprefix("plan.strategy")
    (row,) = [
        line
        for line in TEXT.split("## Partition TTL")[0].splitlines()
        if line.startswith("|") and (f"`{name}`" in line or f"`{last}`" in line)
    ]
    assert default in row.lower()


def test_settings_of_ttl_are_in_the_table() -> None:
    for name in ttl.SETTINGS:
        if not name.endswith("class"):
            assert f"`{name.removeprefix('hoodie.partition.ttl.')}`" in TEXT
