"""Log records of file slices merged by a plain mode (`merge.MODES`): which base rows die, which log records stay.

The result is one `Outcome` per slice, numbers alone; those found on disk (`outcomes`) are not looked for again. What is
left costs one join of the base files' keys with the log, and that is nearly all of a first read. When no key is twice
in a slice's log, the usual case, its records are the winners and nothing is grouped.
"""

from collections.abc import Sequence
from dataclasses import replace

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakesql.format.files import FileSlice
from lakesql.table import merge, outcomes
from lakesql.table.known_settings import known_settings
from lakesql.table.logfold import LOG, SLOT, View, base_rows_sql, taken_by
from lakesql.table.outcomes import Outcome

WINNERS = "__lakesql_winners"

Cursor = duckdb.DuckDBPyConnection


def decide(
    cur: Cursor,
    view: View,
    slices: Sequence[FileSlice],
    mode: merge.MergeMode,
    records: pa.Table,
    names: Sequence[str],
    keep: bool,
) -> list[Outcome]:
    """The outcome of each slice. `records` are as `table.merge` wants them, sorted by slot; `names` are those of the
    outcomes on disk, empty for a slice that has none; with `keep` those not found there are put there."""
    first = np.searchsorted(records["slot"].to_numpy(), np.arange(len(slices) + 1))
    found = [outcomes.find(name) if name else None for name in names]
    for slot, one in enumerate(found):
        if one is not None and one.records != first[slot + 1] - first[slot]:
            found[slot] = None
    missing = [slot for slot, one in enumerate(found) if one is None]
    if missing:
        with known_settings(cur):
            made = _decided(cur, view, slices, mode, records, missing, first)
        for slot, one in zip(missing, made, strict=True):
            found[slot] = one
            if keep and names[slot]:
                outcomes.keep(names[slot], one)
    return [one for one in found if one is not None]


def applied(
    found: Sequence[Outcome], records: pa.Table, rows: pa.Table
) -> tuple[pa.Table, pa.Table, pa.Table, pa.Array]:
    """dead, live and tombs of the slices as in `table.deltas`, tombs with further columns, and the slots in which a
    base row won."""
    first = np.cumsum([0, *(one.records for one in found)])
    kept = _joined([one.kept + start for one, start in zip(found, first[:-1], strict=True)])
    is_row = records["kind"].to_numpy()[kept] == merge.UPSERT
    live, gone = kept[is_row], kept[~is_row]
    slots = records["slot"].to_numpy()
    own = np.concatenate([np.zeros(0, np.bool_), *(one.own for one in found)])[~is_row]
    dead = pa.table(
        {
            "slot": pa.array(np.repeat(np.arange(len(found), dtype=np.int32), [len(one.dead) for one in found])),
            "row_no": pa.array(_joined([one.dead for one in found])),
            "seq": pa.array(_joined([one.by + start for one, start in zip(found, first[:-1], strict=True)])),
        }
    )
    dead = taken_by(dead, "seq", live, slots[live])
    shown = _taken(rows, records["row"].to_numpy(zero_copy_only=False)[live].astype(np.int64))
    shown = shown.add_column(0, pa.field(SLOT, pa.int32()), pa.array(slots[live], pa.int32()))
    tombs = records.take(pa.array(gone)).append_column("own", pa.array(own))
    return dead, shown, tombs, pa.array([slot for slot, one in enumerate(found) if one.beaten], pa.int32())


def _joined(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0, np.int64), *arrays])


def _taken(rows: pa.Table, places: np.ndarray) -> pa.Table:
    """The rows at ascending places; all of them, mostly."""
    if len(places) == rows.num_rows:
        return rows
    return rows.combine_chunks().take(pa.array(places))


def _decided(
    cur: Cursor,
    view: View,
    slices: Sequence[FileSlice],
    mode: merge.MergeMode,
    records: pa.Table,
    chosen: Sequence[int],
    first: np.ndarray,
) -> list[Outcome]:
    """The outcomes of the chosen slots, from one join with the base files."""
    n = len(view.ordering_types())
    asked = [s if slot in set(chosen) else replace(s, base=None) for slot, s in enumerate(slices)]
    repeated = _has_repeated_keys(records)
    same = f"{merge.ordering(n, 'b')} = {merge.ordering(n, 'w')}" if n else "false"
    cur.register(LOG, records)
    try:
        if repeated:
            voided = pc.any(pc.equal(records["kind"], merge.COMMIT_TIME_DELETE)).as_py()
            cur.execute(f"CREATE OR REPLACE TEMP TABLE {WINNERS} AS " + merge.winners_sql(mode, n, LOG, bool(voided)))
        matched = cur.sql(
            f"SELECT w.slot, b.row_no, w.seq, {mode.base_survives(n, 'b', 'w')} AS survives, {same} AS same "
            f"FROM ({base_rows_sql(view, asked, [])}) b JOIN {WINNERS if repeated else LOG} w "
            "ON b.key = w.key AND b.slot = w.slot"
        ).to_arrow_table()
        winners, logged = records["seq"].to_numpy(), np.zeros(0, np.int64)
        if repeated:
            table = cur.sql(f"SELECT seq, kind FROM {WINNERS} ORDER BY seq").to_arrow_table()
            winners = table["seq"].to_numpy()
            if n and pc.any(pc.equal(table["kind"], merge.DELETE)).as_py():
                logged = (
                    cur.sql(
                        f"SELECT DISTINCT w.seq FROM {WINNERS} w JOIN {LOG} b ON b.slot = w.slot AND b.key = w.key "
                        f"WHERE w.kind = {merge.DELETE} AND b.kind = {merge.UPSERT} AND {same}"
                    )
                    .to_arrow_table()["seq"]
                    .to_numpy()
                )
    finally:
        cur.execute(f"DROP TABLE IF EXISTS {WINNERS}")
        cur.unregister(LOG)
    return _split(_first_of_each(matched), winners, logged, chosen, first)


def _split(
    matched: pa.Table, winners: np.ndarray, logged: np.ndarray, chosen: Sequence[int], first: np.ndarray
) -> list[Outcome]:
    """Per chosen slot what belongs to it. `matched` is sorted by log record, `logged` are deletes whose ordering value
    is that of a row of the log."""
    seq, row = matched["seq"].to_numpy(), matched["row_no"].to_numpy()
    survives, same = (matched[c].to_numpy(zero_copy_only=False).astype(np.bool_) for c in ("survives", "same"))
    made = []
    for slot in chosen:
        start, end = first[slot], first[slot + 1]
        a, b = np.searchsorted(seq, [start, end])
        stays = survives[a:b]
        own = np.concatenate([seq[a:b][same[a:b]], logged])
        kept = winners[np.searchsorted(winners, start) : np.searchsorted(winners, end)]
        kept = kept[~np.isin(kept, seq[a:b][stays])]
        dead = row[a:b][~stays]
        order = np.argsort(dead, kind="stable")
        by = seq[a:b][~stays] - start
        made.append(
            Outcome(int(end - start), dead[order], by[order], kept - start, np.isin(kept, own), bool(stays.any()))
        )
    return made


def _has_repeated_keys(records: pa.Table) -> bool:
    """Whether a key may be twice in the log of a slice: keys of several partitions may look alike."""
    return bool(pc.count_distinct(records["key"]).as_py() < records.num_rows)


def _first_of_each(matched: pa.Table) -> pa.Table:
    """The first base row that each log record met, by log record; rarely is there more than one."""
    order = np.lexsort((matched["row_no"].to_numpy(), seq := matched["seq"].to_numpy()))
    repeated = np.flatnonzero(np.diff(seq[order]) == 0) + 1
    return matched.take(pa.array(np.delete(order, repeated)))
