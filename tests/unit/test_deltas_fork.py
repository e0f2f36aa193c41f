"""A forked process keeps its merged logs apart from those of its parent."""

import multiprocessing
from pathlib import Path

import lakesql
from lakesql.table import deltas


def _folder_of_child(found) -> None:
    found.put((str(deltas._temporary_folder()), len(deltas._cache)))


def test_a_forked_process_has_a_folder_of_its_own_and_leaves_the_parents(tmp_path):
    with lakesql.connect(warehouse=tmp_path) as con:
        con.sql("CREATE TABLE t (id BIGINT, v BIGINT) USING hudi TBLPROPERTIES (type = 'mor', primaryKey = 'id')")
        con.sql("INSERT INTO t VALUES (1, 1)")
        con.sql("UPDATE t SET v = 2")
        assert con.sql("SELECT v FROM t").fetchall() == [(2,)]
        ours = deltas._temporary_folder()
        assert deltas._cache
        context = multiprocessing.get_context("fork")
        found = context.SimpleQueue()
        child = context.Process(target=_folder_of_child, args=(found,))
        child.start()
        theirs, kept = found.get()
        child.join()
        assert (theirs != str(ours), kept) == (True, 0)
        Path(theirs).rmdir()
        deltas._remove(ours, -1)
        assert ours.exists()
        assert con.sql("SELECT v FROM t").fetchall() == [(2,)]
