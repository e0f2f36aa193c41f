"""What a table property means, in SQL and in the settings of a session: Hudi's keys, Spark's short names, typing errors.

Spark's short names are brought to Hudi's keys (`write.table_options`). `options_of` reads the properties of a CREATE TABLE
and, where they are silent, the session's settings that say how tables are made. Keys that nobody here knows:
`services.spelling`.
"""

from collections.abc import Mapping

from lakesql.errors import SQLError, TableError
from lakesql.services.maintenance import SETTINGS as OF_SERVICES
from lakesql.services.spelling import require_spelt
from lakesql.sql.nodes import CreateTable
from lakesql.sql.session import TABLE_PREFIXES
from lakesql.stores.calls import budget_of
from lakesql.stores.settings import SETTINGS as OF_STORES
from lakesql.write.names_of_settings import ABSENT, CHOICES, SYNONYMS
from lakesql.write.settings import parse_settings
from lakesql.write.table_options import Options, new_table_options


def check_value(key: str, value: str) -> None:
    """SQLError, TableError or Unsupported for a value that a known setting cannot have, naming both."""
    choices = CHOICES.get(key)
    if choices and value.lower() not in choices:
        raise SQLError(f"setting {key} = {value!r}: use one of {', '.join(choices)}.")
    parse_settings({key: value})
    budget_of({key: value})
    if parse := OF_STORES.get(key):
        try:
            parse(value)
        except ValueError as error:  # the value may be an address with a key in it
            raise TableError(f"setting {key}: {error}. Correct the value or RESET {key}.") from None
    if parse := OF_SERVICES.get(key):
        try:
            parse(value.strip())
        except ValueError as error:
            raise TableError(f"setting {key} = {value!r}: {error}. Correct the value or RESET {key}.") from error


def options_of(statement: CreateTable, name: str, settings: Mapping[str, str] | None = None) -> Options:
    """The properties in Hudi's terms; what they do not say is taken from the session's `settings`.

    SQLError for contradictions and unknown short names, Unsupported by name.
    """
    return new_table_options(
        statement.properties, statement.partitioned_by, name, _creating(settings or {}), require_spelt
    )


def _creating(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings that say how tables are made."""
    return {k: v for k, v in settings.items() if k in SYNONYMS or k in ABSENT or k.startswith(TABLE_PREFIXES)}
