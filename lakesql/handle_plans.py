"""The part of `Table` that cuts a write for many workers: `plan_upsert` and its like, `run_task`, `commit`.

    plan = t.plan_upsert(rows)                        here: keys looked up, tasks made, the instant pending
    results = pool.map(t.run_task, plan)              anywhere that sees the table; any map will do
    t.commit(list(results))                           here again

There is no scheduler in here: who runs the tasks, and how often, is the caller's business (`lakesql.write.plans`).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import duckdb

from lakesql.errors import TableError
from lakesql.handle_rows import Rows
from lakesql.storage import Storage
from lakesql.table.interrupts import interrupts
from lakesql.table.known_settings import make_utc
from lakesql.table.state import TableState
from lakesql.write.result import WriteResult

if TYPE_CHECKING:
    from lakesql.write.plans import Plan
    from lakesql.write.tasks import Task, TaskResult


class PlannedWrites(ABC):
    """Writes in three steps. `Table` is one."""

    _storage: Storage
    _con: duckdb.DuckDBPyConnection
    _plans: "list[Plan]"

    def plan_upsert(self, data: Rows, **settings: str) -> "Plan":
        """As `upsert`, but the files are left to tasks, which `run_task` runs anywhere; then `commit` their results.

        Until then other writers are refused, as beside any writer that is at work; a plan without `commit` is given up with
        `plan.abandon()`. CommitConflict when another one is at work.
        """
        return self._plan(data, "upsert", settings)

    def plan_insert(self, data: Rows, **settings: str) -> "Plan":
        """As `insert`, in tasks."""
        return self._plan(data, "insert", settings)

    def plan_bulk_insert(self, data: Rows, **settings: str) -> "Plan":
        """As `bulk_insert`, in tasks; for first loads."""
        return self._plan(data, "bulk_insert", settings)

    def plan_delete(self, data: Rows, **settings: str) -> "Plan":
        """As `delete` by keys, in tasks."""
        return self._plan(data, "delete", settings)

    def run_task(self, task: "Task") -> "TaskResult":
        """Write the files of a task; any process that sees the table can, any number of times.

        CommitConflict when the task's plan is over.
        """
        from lakesql.write.tasks import Task, run_task

        if not isinstance(task, Task):
            raise TableError(f"{self._storage.uri}: run_task got {type(task).__name__}. Give it a task of a plan.")
        cur = self._con.cursor()
        make_utc(cur)
        with interrupts():
            return run_task(cur, self._storage, task)

    def commit(self, results: "Iterable[TaskResult]") -> WriteResult:
        """Make visible what the tasks of a plan have written: all of it, or nothing.

        TableError when results are missing or of another plan (it stays open), CommitConflict when another writer came
        between (it is over, and its files are taken back).
        """
        from lakesql.write.plans import plan_of

        if not isinstance(results, Iterable):
            raise TableError(
                f"commit got {type(results).__name__}; give the results of run_task. Nothing was committed."
            )
        given = list(results)
        plan = plan_of(self._storage.uri, self._plans, given)
        result = plan.commit(given)
        self._plans.remove(plan)
        return self._maintained(result, plan.settings)

    def _plan(self, data: Rows, operation: str, settings: Mapping[str, str]) -> "Plan":
        from lakesql.write.plans import plan_write

        with self._given(data, operation, settings) as (cur, now, rows):
            plan = plan_write(cur, now, rows, operation=operation, settings=settings)
        self._plans = [*(p for p in self._plans if p.is_open), plan]
        return plan

    @abstractmethod
    def _given(
        self, data: Rows, operation: str, settings: Mapping[str, str]
    ) -> AbstractContextManager[tuple[duckdb.DuckDBPyConnection, TableState, str]]:
        """Within: a cursor, the table as it is now, and a relation of the cursor with the rows."""

    @abstractmethod
    def _maintained(self, result: WriteResult, settings: Mapping[str, str]) -> WriteResult:
        """The result after the services that are due."""
