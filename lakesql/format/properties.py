r"""Java's properties text, both ways (hudi-format 1.1).

`hoodie.properties` and the partition metadata files are written by java.util.Properties: Latin-1 with `\uXXXX` for
everything else, backslashes before separators, long lines continued by a backslash at their end. Reading accepts all
of that class's syntax; writing gives `key=value` lines in the order of the mapping, escaped the way Java escapes.
Not here: what the keys mean (`config`).
"""

import re
from collections.abc import Mapping

from lakesql.errors import FormatError


def parse_properties(text: str, where: str = "hoodie.properties") -> dict[str, str]:
    r"""Keys and values of Java properties text (already decoded as Latin-1), in file order.

    Comments, continued lines, `=`, `:` or blanks as separator and `\uXXXX` are understood as by java.util.Properties.
    """
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        match = _KEY.match(line)
        assert match is not None, "every line starts with a key, if only an empty one"
        properties[_unescape(match[1], where)] = _unescape(line[match.end() :], where)
    return properties


def format_properties(properties: Mapping[str, str], header: str) -> str:
    """Properties text in Latin-1 range, one comment line per line of `header`, keys in the order given."""
    lines = [f"#{_escape(line, '')}" for line in header.splitlines()]
    for key, value in properties.items():
        # Blanks after the separator belong to nobody, so a leading one is escaped.
        start = "\\" if value.startswith(" ") else ""
        lines.append(f"{_escape(key, ' =:#!')}={start}{_escape(value, '=:#!')}")
    return "\n".join(lines) + "\n"


# A key ends at the first separator that is not escaped; one '=' or ':' and blanks around it belong to neither side.
_KEY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LETTER_OF = {character: letter for letter, character in _LETTERS.items()}


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    continued = False
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(" \t\f")
        if not continued and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if continued:
            lines[-1] += line[: len(line) - backslashes % 2]
        else:
            lines.append(line[: len(line) - backslashes % 2])
        continued = backslashes % 2 == 1
    return lines


def _unescape(text: str, where: str) -> str:
    if "\\" not in text:
        return text

    def one(match: re.Match[str]) -> str:
        found = match[1]
        if len(found) == 5:
            return chr(int(found[1:], 16))
        if found == "u":
            raise FormatError(f"{where}: '\\u' without four hexadecimal digits in '{text}'. Restore the file.")
        return _LETTERS.get(found, found)

    # Java writes a character beyond the basic plane as two escapes, a surrogate pair.
    units = _ESCAPE.sub(one, text).encode("utf-16-le", "surrogatepass")
    return units.decode("utf-16-le", "replace")


def _escape(text: str, special: str) -> str:
    if text.isascii() and text.isprintable() and "\\" not in text and not any(c in special for c in text):
        return text
    return "".join(_escaped(character, special) for character in text)


def _escaped(character: str, special: str) -> str:
    if character == "\\" or (special and character in special):
        return "\\" + character
    if character in _LETTER_OF:
        return "\\" + _LETTER_OF[character]
    if " " <= character <= "~":
        return character
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[i : i + 2].hex().upper()}" for i in range(0, len(units), 2))
