"""Statements that are nearly ours, or another engine's for what we do: the right spelling, for an error that DuckDB made.

Asked only after DuckDB refused a text, so nothing that DuckDB runs is ever taken for a slip.
"""

import re
from collections.abc import Sequence
from difflib import get_close_matches
from itertools import pairwise

import duckdb

from lakesql.errors import SQLError
from lakesql.sql.lexer import IDENTIFIERS, Piece, Token

_NEAR = 0.75
_SERVICES = {
    "COMPACTION": {
        "RUN": "RUN COMPACTION ON {t}",
        "SCHEDULE": "SCHEDULE COMPACTION ON {t}",
        "SHOW": "SHOW COMPACTION ON {t}",
    },
    "CLUSTERING": {
        "RUN": "CALL run_clustering(table => '{t}')",
        "SCHEDULE": "CALL run_clustering(table => '{t}', op => 'schedule')",
        "SHOW": "CALL show_clustering(table => '{t}')",
    },
    "CLEAN": {"RUN": "CALL run_clean(table => '{t}')", "SHOW": "CALL show_cleans(table => '{t}')"},
    "ARCHIVE": {"RUN": "CALL archive_commits(table => '{t}')", "SHOW": "CALL show_archived_commits(table => '{t}')"},
    "ROLLBACK": {
        "RUN": "CALL rollback_to_instant(table => '{t}', instant_time => '...')",
        "SHOW": "CALL show_rollbacks(table => '{t}')",
    },
    "SAVEPOINT": {
        "RUN": "CALL create_savepoint(table => '{t}')",
        "CREATE": "CALL create_savepoint(table => '{t}')",
        "SHOW": "CALL show_savepoints(table => '{t}')",
    },
    "TTL": {"RUN": "CALL run_ttl(table => '{t}')"},
    "COMMITS": {"SHOW": "CALL show_commits(table => '{t}')"},
    "TIMELINE": {"SHOW": "FROM hudi_timeline('{t}')"},
    "FRESHNESS": {"SHOW": "FROM hudi_freshness('{t}')"},
    "ADVICE": {"SHOW": "FROM hudi_advice('{t}')"},
    "TBLPROPERTIES": {"SHOW": "SHOW TBLPROPERTIES {t}"},
}
"""What people run, schedule or show -> verb -> how that is written."""
_NOUNS = {"COMPACT": "COMPACTION", "CLUSTER": "CLUSTERING", "CLEANING": "CLEAN", "CLEANS": "CLEAN", "ARCHIVING": "ARCHIVE",
          "ARCHIVAL": "ARCHIVE", "PROPERTIES": "TBLPROPERTIES"}  # fmt: skip
_VERBS = {"EXEC": "RUN", "EXECUTE": "RUN", "START": "RUN", "LIST": "SHOW", "PLAN": "SCHEDULE"}
_BARE = {
    "COMPACT": "RUN COMPACTION ON {t}", "CLUSTER": "CALL run_clustering(table => '{t}')", "CLEAN": "CALL run_clean(table => '{t}')",
    "ARCHIVE": "CALL archive_commits(table => '{t}')", "OPTIMIZE": "CALL run_clustering(table => '{t}')",
    "ADVISE": "CALL advise(table => '{t}')", "DOCTOR": "CALL doctor(table => '{t}')",
    "RESTORE": "CALL rollback_to_instant(table => '{t}', instant_time => '...') or CALL rollback_to_savepoint(...)",
    "UPSERT": "MERGE INTO {t} ..., or SET hoodie.spark.sql.insert.into.operation = 'upsert' and INSERT INTO {t}",
    "REPLACE": "MERGE INTO {t} ..., or SET hoodie.spark.sql.insert.into.operation = 'upsert' and INSERT INTO {t}",
}  # fmt: skip
"""Words that are statements elsewhere -> how that is written here."""
_FILLERS = ("ON", "INTO", "FOR", "OF", "TABLE", "FROM", "IN")
_FATES = ("FATES", "FATE")
_EXPLAINED = ("MERGE", "UPDATE", "DELETE", "INSERT", "WITH")
_OURS_ALONE = ("TBLPROPERTIES", "LOCATION", "PARTITIONED")


_NO_FUNCTION = re.compile(r"Function with name (\w+) does not exist")


def misspelt(error: duckdb.Error, pieces: Sequence[Piece]) -> SQLError | None:
    """DuckDB's error as ours, when one of the statements is nearly one that lakesql has, or calls a procedure as a function."""
    said: str | None = None
    if isinstance(error, duckdb.ParserException):
        said = next(filter(None, (near_miss(piece.tokens) for piece in pieces)), None)
    elif isinstance(error, duckdb.CatalogException) and (found := _NO_FUNCTION.search(str(error))):
        from lakesql.procedures import PROCEDURES

        name = found[1].lower()
        said = f"{name} is a procedure: write CALL {name}(...)." if name in PROCEDURES else None
    return None if said is None else SQLError(said)


def near_miss(words: Sequence[Token]) -> str | None:
    """How a statement that DuckDB's parser does not know was to be written; None when it is like none of ours."""
    if not words:
        return None
    return _service(words) or _bare(words) or _explain(words) or _created(words) or _past(words)


def _service(words: Sequence[Token]) -> str | None:
    """RUN CLUSTERING ON t, SHOW SAVEPOINTS t, RUN COMPACTON ON t."""
    verb = _VERBS.get(words[0].word, words[0].word)
    verb = (get_close_matches(verb, ("RUN", "SCHEDULE", "SHOW", "CREATE"), 1, _NEAR) or [""])[0]
    if not verb or len(words) < 2:
        return None
    noun = _NOUNS.get(words[1].word, words[1].word)
    found = get_close_matches(noun, _SERVICES, 1, _NEAR)
    if not found:
        return None
    written = _SERVICES[found[0]].get(verb)
    said = f"{words[0].text} {words[1].text}"
    return (
        None if written is None else f"{said} is no statement like this. Write {written.format(t=_target(words, 2))}."
    )


def _bare(words: Sequence[Token]) -> str | None:
    """COMPACT t, UPSERT INTO t."""
    written = _BARE.get(words[0].word)
    return None if written is None else f"{words[0].text} is no statement. Write {written.format(t=_target(words, 1))}."


def _explain(words: Sequence[Token]) -> str | None:
    """EXPLAIN FATES MERGE ..., EXPLAIN (FATE) MERGE ..., EXPLAIN FATES OF ..."""
    if words[0].word != "EXPLAIN" or not any(t.word in _FATES for t in words[1:3]):
        return None
    verb = next((t.word for t in words[2:] if t.word in _EXPLAINED), "MERGE")
    return f"FATES stands in brackets: EXPLAIN (FATES) {verb} ..."


def _created(words: Sequence[Token]) -> str | None:
    """CREATE TABLE with clauses of Hudi's and without USING hudi, CREATE HUDI TABLE."""
    found = [t.word for t in words]
    if found[0] != "CREATE" or "TABLE" not in found[:5] or "USING" in found:
        return None
    if found[1] == "HUDI" or any(word in found for word in _OURS_ALONE):
        return (
            "A Hudi table is made by CREATE TABLE t (...) USING hudi [PARTITIONED BY (...)] [LOCATION '...'] "
            "[TBLPROPERTIES (...)]; without USING hudi the table is DuckDB's."
        )
    return None


def _past(words: Sequence[Token]) -> str | None:
    """t AS OF '2026-01-01', t FOR VERSION '...': time travel in other words."""
    found = [t.word for t in words]
    of = any(found[i : i + 2] == ["AS", "OF"] for i in range(len(found)))
    back = any(a == "FOR" and b in ("VERSION", "TIMESTAMP", "SYSTEM_TIME") for a, b in pairwise(found))
    if not of and not back:
        return None
    return (
        "The past of a Hudi table is FROM t TIMESTAMP AS OF '2026-01-31 12:00:00', or FROM t VERSION AS OF 'instant'."
    )


def _target(words: Sequence[Token], start: int) -> str:
    """The table that is named from there on; `t` when none is."""
    while start < len(words) and words[start].word in _FILLERS:
        start += 1
    named = start < len(words) and words[start].kind in IDENTIFIERS
    return words[start].name if named else "t"
