"""What the statements of a cell gave: the value of `%lakesql`, as HTML in a notebook and as text in a terminal.

The rows that are seen were fetched when the statement ran; all of them come with `df` and its like, which run the
query again. DuckDB's own relations are shown in the same way.
"""

import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import duckdb

from lakesql import markup
from lakesql.errors import LakeError
from lakesql.notebook import grid
from lakesql.notebook.grid import Preview
from lakesql.table.damaged import damage

if TYPE_CHECKING:
    import pyarrow as pa

    from lakesql.notebook.magic import LakeMagics
    from lakesql.write import WriteResult

_PLANS = ["explain_key", "explain_value"]


class Answer:
    """The result of a cell: `df()`, `pl()`, `arrow()`, `fetchall()`, `relation`, and `written`, what its writes did."""

    def __init__(
        self,
        relation: duckdb.DuckDBPyRelation | None,
        shown: Preview | None,
        written: Sequence["WriteResult"] = (),
        notes: Sequence[str] = (),
        interactive: bool = True,
    ) -> None:
        self.relation = relation
        self.written = tuple(written)
        self._shown, self._notes, self._interactive = shown, tuple(notes), interactive

    def df(self) -> Any:
        """All rows as a pandas data frame."""
        return self._all().df()

    def pl(self) -> Any:
        """All rows as a polars data frame."""
        return self._all().pl()

    def arrow(self) -> "pa.Table":
        """All rows as an Arrow table."""
        return self._all().to_arrow_table()

    def to_arrow_table(self) -> "pa.Table":
        """As `arrow`."""
        return self.arrow()

    def fetchall(self) -> list[Any]:
        """All rows."""
        return self._all().fetchall()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.arrow().__arrow_c_stream__(requested_schema)

    def _all(self) -> duckdb.DuckDBPyRelation:
        if self.relation is None:
            raise LakeError("the statement of this cell gave no rows.")
        return self.relation

    def __repr__(self) -> str:
        parts = [line for result in self.written for line in (str(result), *result.notes)]
        if self._shown is not None:
            parts.append(_text(self._shown))
        return "\n".join([*parts, *self._notes]) or "done"

    def _repr_html_(self) -> str:
        parts = [result._repr_html_() for result in self.written]
        if self._shown is not None:
            parts.append(_html(self._shown, self._interactive, self._notes))
        elif self._notes:
            parts.append(markup.page(*map(markup.line, self._notes)))
        return "".join(parts) or markup.page(markup.line("done", quiet=True))


def fetched(relation: duckdb.DuckDBPyRelation, rows: int = grid.ROWS, meta: bool = False) -> Preview:
    """The first rows of a relation; a base file that cannot be read is an error of ours."""
    try:
        return grid.preview(relation, rows, meta)
    except duckdb.Error as error:
        if found := damage(error, ()):
            raise found from error
        raise


def _html(shown: Preview, interactive: bool, notes: Sequence[str] = ()) -> str:
    if list(shown.columns) == _PLANS:
        return markup.page(*(markup.code(row[1] or "") for row in shown.rows), *map(markup.line, notes))
    return grid.html(shown, interactive, notes)


def _text(shown: Preview) -> str:
    if list(shown.columns) == _PLANS:
        return "\n".join((row[1] or "").rstrip() for row in shown.rows)
    return grid.text(shown, shutil.get_terminal_size().columns)


def show_relations(shell: Any, magics: "LakeMagics") -> None:
    """From now on relations of DuckDB, which `con.sql` gives, are shown as the results of cells are."""

    def bundle(relation: duckdb.DuckDBPyRelation, **_: Any) -> dict[str, str]:
        try:
            shown = fetched(relation, magics.rows)
        except (LakeError, duckdb.Error) as error:
            return {"text/plain": f"{type(error).__name__}: {error}"}
        return {"text/html": _html(shown, magics.interactive), "text/plain": _text(shown)}

    shell.display_formatter.mimebundle_formatter.for_type(duckdb.DuckDBPyRelation, bundle)


def forget_relations(shell: Any) -> None:
    """Show them as DuckDB does."""
    shell.display_formatter.mimebundle_formatter.pop(duckdb.DuckDBPyRelation, None)
