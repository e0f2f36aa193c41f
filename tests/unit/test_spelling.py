"""Misspelt settings and partitions are refused wherever a call takes them, with the nearest name there is."""

import re
from pathlib import Path

import pytest

import lakesql
from lakesql.cli import app
from lakesql.errors import LakeError, SQLError, TableError
from lakesql.services.spelling import KNOWN, OURS, require_known
from tests.samples import Kind, create, rows, tuples

SLIP, MEANT = "hoodie.clean.commits.retaind", "hoodie.clean.commits.retained"
FOREIGN = "hoodie.metadata.index.column.stats.enable"


@pytest.fixture
def table(tmp_path: Path) -> lakesql.Table:
    made = create(tmp_path / "t", Kind("mor", 9))
    made.upsert(rows(("a", "x", 1, 1), ("b", "y", 1, 1)))
    made.upsert(rows(("a", "x", 2, 2)))
    return made


CALLS = {
    "upsert": lambda t, s: t.upsert(rows(("a", "x", 9, 9)), **s),
    "delete by keys": lambda t, s: t.delete(rows(("a", "x", None, None)), **s),
    "delete by condition": lambda t, s: t.delete("v = 1", **s),
    "clean": lambda t, s: t.clean(**s),
    "archive": lambda t, s: t.archive(**s),
    "compact": lambda t, s: t.compact(**s),
    "cluster": lambda t, s: t.cluster(**s),
    "expire_partitions": lambda t, s: t.expire_partitions(**{"hoodie.partition.ttl.strategy.days.retain": "9", **s}),
    "rollback": lambda t, s: t.rollback(**s),
    "savepoint": lambda t, s: t.savepoint(**s),
    "restore": lambda t, s: t.restore(**s),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (SLIP, f"setting {SLIP} is unknown; did you mean {MEANT}?"),
        ("lakesql.clean.grac", "did you mean lakesql.clean.grace?"),
        ("lakesql.nonsense", "lakesql has lakesql.merge.duplicates"),
        ("commits_retained", "begin with hoodie. or lakesql."),
        ("clean_commits_retained", f"Did you mean {MEANT}?"),
    ],
)
def test_methods_of_a_table_refuse_settings_that_do_not_exist(
    table: lakesql.Table, name: str, setting: str, said: str
) -> None:
    before = table.state.timeline.newest_time
    with pytest.raises(SQLError) as caught:
        CALLS[name](table, {setting: "1"})
    assert said in str(caught.value)
    assert table.state.timeline.newest_time == before


def test_settings_of_hudi_that_lakesql_does_not_read_pass(table: lakesql.Table) -> None:
    table.upsert(rows(("a", "x", 3, 3)), **{FOREIGN: "true"})
    table.clean(**{FOREIGN: "true"})
    assert table.compact(**{FOREIGN: "true"}).file_groups == 1
    assert tuples(table.read()) == [("a", "x", 3, 3), ("b", "y", 1, 1)]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("hoodie.sql.insert.operation", "hoodie.spark.sql.insert.into.operation"),
        ("hoodie.insert.into.operation", "hoodie.spark.sql.insert.into.operation"),
        ("hoodie.datasource.write.recordkey", "hoodie.datasource.write.recordkey.field"),
        ("hoodie.compact.inline.delta.commits", "hoodie.compact.inline.max.delta.commits"),
        ("hoodie.clean.retained.commits", "hoodie.clean.commits.retained"),
    ],
)
def test_names_with_words_left_out_or_in_another_order_are_refused(written: str, meant: str) -> None:
    with pytest.raises(SQLError, match=re.escape(f"setting {written} is unknown; did you mean {meant}?")):
        require_known(written)


@pytest.mark.parametrize(
    "real",
    [
        FOREIGN,
        "hoodie.bucket.index.max.num.buckets",
        "hoodie.metadata.log.compaction.enable",
        "hoodie.metadata.write.concurrency.mode",
        "hoodie.record.merge.mode",
        "hoodie.base.file.format",
        "hoodie.logfile.max.size",
    ],
)
def test_other_names_of_hudi_that_share_words_with_known_ones_pass(real: str) -> None:
    require_known(real)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("orderingField", "orderingFields"),
        ("primaryKeys", "primaryKey"),
        ("precombinefield", "preCombineField"),
        ("typ", "type"),
    ],
)
def test_short_names_of_properties_are_refused_with_the_nearest(tmp_path: Path, written: str, meant: str) -> None:
    with lakesql.connect(warehouse=str(tmp_path)) as con, pytest.raises(SQLError, match=f"did you mean {meant}"):
        con.sql(f"CREATE TABLE t (id INT) USING hudi TBLPROPERTIES ({written} = 'id')")
    assert not list(tmp_path.iterdir())


def test_every_known_setting_passes() -> None:
    for name in (*KNOWN, *OURS):
        require_known(name)


@pytest.mark.parametrize("procedure", ["run_compaction", "run_clean", "run_clustering", "run_ttl"])
def test_options_of_procedures_refuse_settings_that_do_not_exist(table: lakesql.Table, procedure: str) -> None:
    with lakesql.connect() as con, pytest.raises(SQLError) as caught:
        con.sql(f"CALL {procedure}(path => '{table.path}', options => '{FOREIGN}=true,{SLIP}=1')")
    assert f"CALL {procedure}: options: setting {SLIP} is unknown; did you mean {MEANT}?" in str(caught.value)


@pytest.mark.parametrize("command", ["compact", "cluster", "clean", "archive"])
def test_set_of_commands_refuses_settings_that_do_not_exist(table: lakesql.Table, command: str) -> None:
    with pytest.raises(LakeError) as caught:
        app([command, table.path, "--set", f"{SLIP}=1"], standalone_mode=False)
    assert f"did you mean {MEANT}?" in str(caught.value)


@pytest.mark.parametrize(
    "call",
    [
        lambda t: t.compact(partitions=["city=w"]),
        lambda t: t.compact(partitions=["city=x", "city=w"], run=False),
        lambda t: t.compact(partitions=["city=w"], logs=True),
        lambda t: t.compact(partitions=["city=w"], strategy="adaptive"),
        lambda t: t.cluster(partitions=["city=w"]),
        lambda t: lakesql.connect().sql(
            f"CALL run_clustering(path => '{t.path}', selected_partitions => 'city=x,city=w')"
        ),
    ],
)
def test_unknown_partitions_are_refused_with_the_nearest_ones(table: lakesql.Table, call) -> None:
    before = table.state.timeline.newest_time
    with pytest.raises(
        TableError, match=r"there is no partition 'city=w'; there are 'city=[xy]', 'city=[xy]'\. Nothing"
    ):
        call(table)
    assert table.state.timeline.newest_time == before


def test_partitions_as_one_text_are_refused(table: lakesql.Table) -> None:
    with pytest.raises(TableError, match="give a list of partition paths"):
        table.compact(partitions="city=x")
