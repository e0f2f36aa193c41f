"""SET and RESET of hoodie.x and lakesql.x: a slip of the pen, or a value that a setting cannot have, is refused at once."""

from lakesql.errors import SQLError, Unsupported
from lakesql.services import freshness
from lakesql.services.spelling import require_known
from lakesql.sql.functions import variable
from lakesql.sql.merge_into import POLICIES
from lakesql.sql.nodes import ResetSetting, SetSetting
from lakesql.sql.options import check_value
from lakesql.sql.results import pairs_sql
from lakesql.sql.session import Session
from lakesql.stores import settings as store_settings
from lakesql.table.names import quote
from lakesql.table.outcomes import DISK_CACHE
from lakesql.write.names_of_settings import DUPLICATES, EVOLVE, INSERT_OPERATION

_OBSOLETE = ("hoodie.sql.insert.mode", "hoodie.sql.bulk.insert.enable")
_OF_ONE_TABLE = ("hoodie.table.name", "hoodie.table.create.schema", "hoodie.table.checksum")


def set_setting(session: Session, statement: SetSetting) -> str:
    """Remember a setting, or show it; the SQL of the result. SQLError, TableError or Unsupported as the module says."""
    key, value = statement.key, statement.value
    if value is None:
        return pairs_sql([(key, session.settings.get(key))])
    if key in _OBSOLETE:
        raise Unsupported(f"setting {key} is obsolete. SET {INSERT_OPERATION} = 'insert', 'upsert' or 'bulk_insert'.")
    if key in _OF_ONE_TABLE:
        raise SQLError(f"setting {key} belongs to one table and cannot be set for all; give it in TBLPROPERTIES.")
    require_known(key)
    if key == EVOLVE and value.lower() not in ("true", "false"):
        raise SQLError(f"setting {key} = {value!r}: use true or false.")
    if key == DUPLICATES and value.lower() not in POLICIES:
        raise SQLError(f"setting {key} = {value!r}: use one of {', '.join(POLICIES)}.")
    check_value(key, value)
    if key.startswith(store_settings.PREFIX):
        session.instance.stores.settings[key] = value
        session.instance.forget()
    session.settings[key] = value
    _tell_table_functions(session, key)
    return pairs_sql([(key, value)])


def reset_setting(session: Session, statement: ResetSetting) -> str:
    """Forget one setting or all; the SQL of the result."""
    gone = list(session.settings) if statement.key is None else [statement.key]
    for key in gone:
        session.settings.pop(key, None)
        if session.instance.stores.settings.pop(key, None) is not None:
            session.instance.forget()
        _tell_table_functions(session, key)
    return pairs_sql([(key, None) for key in gone])


def tell_table_functions(session: Session) -> None:
    """Let the table functions of a new connection know the settings that they follow."""
    for key in session.settings:
        _tell_table_functions(session, key)


def _tell_table_functions(session: Session, key: str) -> None:
    if key in freshness.SETTINGS or key == DISK_CACHE:
        name = quote(variable(key))
        if key in session.settings:
            session.con.execute(f"SET VARIABLE {name} = $1", [session.settings[key]])
        else:
            session.con.execute(f"RESET VARIABLE {name}")
