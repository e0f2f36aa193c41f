"""lakesql in notebooks and in IPython: what `%load_ext lakesql` brings.

    magic      `%lakesql` and `%%lakesql`: statements in cells, results into variables, charts, plans
    answer     what a statement gave, as the value of its cell
    grid       results as HTML: small ones as a plain table, others as an interactive one
    bar        progress of a statement, without widgets
    complete   completion of names and keywords in such cells
    problems   errors as their text

IPython is imported here and nowhere else in lakesql.
"""

from typing import Any

from lakesql.notebook import answer, complete, grid, problems
from lakesql.notebook.magic import LakeMagics


def load_ipython_extension(shell: Any) -> None:
    """Called by `%load_ext lakesql`."""
    magics = LakeMagics(shell=shell)
    shell.register_magics(magics)
    answer.show_relations(shell, magics)
    complete.add(shell, magics)
    problems.add(shell)
    if magics.interactive and hasattr(shell, "kernel"):
        grid.prepare()


def unload_ipython_extension(shell: Any) -> None:
    """Called by `%unload_ext lakesql`."""
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("lakesql", None)
    answer.forget_relations(shell)
    complete.remove(shell)
    problems.remove(shell)
