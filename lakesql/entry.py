"""The installed program `lakesql`: all commands where the extra [cli] is, else only those that run SQL."""

from importlib.util import find_spec

_NEEDED = ("prompt_toolkit", "pygments", "rich", "typer")
"""What the extra [cli] brings."""


def main() -> None:
    """The entry point of the command."""
    if all(map(find_spec, _NEEDED)):
        from lakesql.cli import main as command
    else:
        from lakesql.plain import main as command
    command()
