"""The parameter `options` of procedures: settings of one call as text."""

from lakesql.errors import SQLError
from lakesql.procedures.declare import Parameter
from lakesql.services.spelling import require_all_known

OPTIONS = Parameter("options", "VARCHAR", None, "settings of this call, key=value with commas between")


def options_of(text: str | None, procedure: str) -> dict[str, str]:
    """`key=value, key2=value2` as a mapping; a comma in a value is kept where no key follows it.

    SQLError for another text and for names that are almost known ones.
    """
    found: dict[str, str] = {}
    last = ""
    for piece in (text or "").split(","):
        key, equals, value = piece.partition("=")
        if equals:
            last = key.strip()
            found[last] = value.strip()
        elif last:
            found[last] += f",{piece}"
        elif piece.strip():
            raise SQLError(f"CALL {procedure}: options => {text!r}: write key=value, several with commas between.")
    require_all_known(found, f"CALL {procedure}: options: setting")
    return found
