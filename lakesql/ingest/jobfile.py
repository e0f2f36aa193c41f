"""Job files as users of Gobblin have them: `.pull`, `.job`, `.properties` by the rules of Commons Configuration, and HOCON.

A properties file in the folder of the job, and in each folder above it up to the job root, gives defaults; nearer ones win.
Three mends let the well-known sample load as printed (kafka-ingestion 2.9): values are trimmed; a tail ` #...` is cut off where
the value is a number, a word of a list or true/false; a value that begins with `#` counts as missing. All are noted.
What the settings mean is not known here, beyond that.
"""

import json
import logging
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from types import TracebackType
from typing import Any

from lakesql.errors import JobError
from lakesql.ingest.secrets import Settings, without_secrets
from lakesql.ingest.setting_keys import KEYS, OLDER

PROPERTIES = (".pull", ".job", ".properties")
HOCON = (".conf", ".json")
_INCLUDES = ("include", "includeoptional")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_DEEPEST = 50
"""Files that include each other, and references within references."""
_MOST = 10_000
"""Files that are included, and references that are filled in one value: what grows beyond that was not written by hand."""
_REFERENCE = re.compile(r"\$\{([^${}]*)\}")
_KEY_END = re.compile(r"(?<!\\)(?:\\\\)*(\s*[=:]\s*|\s+)")


def read_job_file(
    path: str | os.PathLike[str], root: str | os.PathLike[str] | None = None
) -> tuple[Settings, tuple[str, ...]]:
    """The settings of a job file, each with its file and line, and what was noted on the way.

    `root`: the topmost folder whose properties are defaults; None: the folder of the file alone.
    JobError names the file and the line.
    """
    file = Path(path)
    kind = file.suffix.lower()
    if kind not in PROPERTIES + HOCON:
        raise JobError(f"{file}: a job file ends in {', '.join(PROPERTIES + HOCON)}. Rename it.")
    if not file.is_file():
        raise JobError(f"{file}: there is no such job file. Check the path.")
    loader = _Loader()
    for defaults in _defaults(file, Path(root) if root is not None else file.parent):
        loader.notes.append(f"Defaults are taken from {defaults}.")
        loader.properties(defaults)
    if kind in HOCON:
        loader.hocon(file)
    else:
        loader.properties(file)
    return loader.resolved(), tuple(loader.notes)


def _defaults(file: Path, root: Path) -> list[Path]:
    """The properties file of each folder from the root down to the job's; at most one in each."""
    folder, root = file.resolve().parent, root.resolve()
    if folder != root and root not in folder.parents:
        raise JobError(f"{file}: the job root {root} is not a folder above it. Name one that is.")
    found = []
    for place in (folder, *folder.parents):
        here = sorted(place.glob("*.properties"))
        if place == folder and file.suffix.lower() == ".properties":
            here = []
        if len(here) > 1:
            names = ", ".join(one.name for one in here)
            raise JobError(
                f"{place}: more than one file of default properties ({names}). Keep one of them, or move the job file."
            )
        found += here
        if place == root:
            break
    return found[::-1]


class _Loader:
    """Files in the order in which they count; later ones win."""

    def __init__(self) -> None:
        self.values = Settings()
        self.notes: list[str] = []
        self._included = self._filled_in = 0

    # ------------------------------------------------------------ properties

    def properties(self, file: Path, within: tuple[Path, ...] = ()) -> None:
        seen: dict[str, str] = {}
        for number, line in _logical_lines(_text(file)):
            place = f"{file}, line {number}"
            key, value = self._split(line, place)
            if key.lower() in _INCLUDES:
                self._include(file, value, place, within, optional=key.lower() == "includeoptional")
            elif key in seen:
                self._again(key, value, place, seen[key])
                seen[key] = place
            else:
                seen[key] = place
                self._set(key, value, place)

    def _split(self, line: str, place: str) -> tuple[str, str]:
        end = _KEY_END.search(line)
        key, value = (line[: end.start(1)], line[end.end() :]) if end else (line, "")
        if not key:
            raise JobError(f"{place}: there is no name before the = sign. Write key=value, or # before a comment.")
        return self._unescaped(key, place, quiet=True), self._unescaped(value.strip(), place)

    def _unescaped(self, text: str, place: str, quiet: bool = False) -> str:
        """Java's escapes; a backslash before any other character goes, as it does in Java."""

        def plain(match: re.Match[str]) -> str:
            found = match[1]
            if found[0] == "u" and len(found) == 5:
                return chr(int(found[1:], 16))
            if found == "u":
                raise JobError(
                    f"{place}: \\u must be followed by four hexadecimal digits. Write \\\\u for a backslash and a u."
                )
            if found.isalnum() and found not in _ESCAPES and not quiet:
                self.notes.append(f"{place}: \\{found} is read as {found}; a backslash is written \\\\.")
            return _ESCAPES.get(found, found)

        return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", plain, text, flags=re.DOTALL)

    def _include(self, file: Path, name: str, place: str, within: tuple[Path, ...], optional: bool) -> None:
        for part in (p.strip() for p in name.split(",")):
            target = (file.parent / self._filled(part, place)).resolve()
            if target in within or target == file.resolve():
                raise JobError(f"{place}: {target} includes itself. Remove one of the includes.")
            self._included += 1
            if len(within) >= _DEEPEST or self._included > _MOST:
                raise JobError(
                    f"{place}: files include each other more than {_DEEPEST} deep or {_MOST:,} times. Put the settings into fewer."
                )
            if target.is_file():
                self.properties(target, (*within, file.resolve()))
            elif not optional:
                raise JobError(
                    f"{place}: the included file {target} is not there. Correct the path, or write includeoptional."
                )

    def _again(self, key: str, value: str, place: str, before: str) -> None:
        """A key for the second time in one file: more elements of a list; of anything else the last one holds."""
        known = KEYS.get(OLDER.get(key, key))
        if known is not None and known.listed and self.values.get(key):
            self.notes.append(f"{key} is set on two lines of {place.rpartition(',')[0]}; both belong to the list.")
            self._set(key, f"{self.values[key]},{value}", place)
        else:
            self.notes.append(f"{key} is set twice: {place} holds, {before} does not.")
            self._set(key, value, place)

    def _set(self, key: str, value: str, place: str) -> None:
        known = KEYS.get(OLDER.get(key, key))
        if value.startswith("#"):
            self.notes.append(
                f"{key} ({place}): the value begins with #, which starts a comment only at the start of a line. It counts as missing."
            )
            self.values.pop(key, None)
            self.values.places[key] = f"{place}: the value there begins with #"
            return
        if known is not None and known.closed and (tail := re.search(r"\s+#.*$", value)):
            self.notes.append(
                f"{key} ({place}): {tail[0].strip()!r} behind the value is left out; comments stand on lines of their own."
            )
            value = value[: tail.start()]
        self.values[key] = value
        self.values.places[key] = place

    # ------------------------------------------------------------ HOCON

    def hocon(self, file: Path) -> None:
        try:
            from pyhocon import ConfigFactory
            from pyhocon.exceptions import ConfigException
            from pyparsing import ParseBaseException
        except ImportError as error:
            raise JobError(f"{file}: reading HOCON needs pyhocon. Run pip install 'lakesql[kafka]'.") from error
        _text(file)
        try:
            with _Unreached() as unreached:
                tree = ConfigFactory.parse_file(str(file), required=True)
        except ParseBaseException as error:
            raise JobError(
                f"{file}, line {error.lineno}: this is not HOCON ({error.msg}). Correct the line."
            ) from error
        except RecursionError as error:
            raise JobError(f"{file}: it includes itself, or is nested too deeply. Correct the file.") from error
        except (ConfigException, HTTPException, OSError, ValueError, TypeError, AttributeError, ImportError) as error:
            raise JobError(f"{file}: this is not readable as HOCON ({error}). Correct the file.") from error
        if unreached.urls:
            raise JobError(
                f"{file}: what it includes from {', '.join(unreached.urls)} cannot be reached, and without it the settings are"
                " not the job's. Correct the address, or save a copy and include that file."
            )
        if not isinstance(tree, Mapping):
            raise JobError(f"{file}: the outermost value must be an object. Write key = value, or {{...}}.")
        for key, value in _flattened(tree, ()):
            self._set(key, value.strip(), str(file))

    # ------------------------------------------------------------ references

    def resolved(self) -> Settings:
        """All references replaced; what cannot be is left as written and noted."""
        left: dict[str, list[str]] = {}
        for key in list(self.values):
            self._filled_in = 0
            self.values[key] = self._filled(self.values[key], f"{key} ({self.values.places.get(key, '')})")
            for reference in _REFERENCE.findall(self.values[key]):
                left.setdefault(reference, []).append(key)
        self.notes += [
            f"${{{name}}} is not set; it is left as written in {', '.join(keys)}." for name, keys in left.items()
        ]
        return self.values

    def _filled(self, value: str, where: str, within: tuple[str, ...] = ()) -> str:
        def found(match: re.Match[str]) -> str:
            name = match[1].strip()
            if name in within:
                raise JobError(f"{where}: ${{{name}}} refers to itself. Write its value out.")
            self._filled_in += 1
            if len(within) >= _DEEPEST or self._filled_in > _MOST:
                raise JobError(
                    f"{where}: references within references, more than {_DEEPEST} deep or {_MOST:,} in all. Write the value out."
                )
            if name.startswith("env:"):
                return os.environ.get(name[4:], match[0])
            if name in self.values:
                return self._filled(self.values[name], where, (*within, name))
            return match[0]

        return _REFERENCE.sub(found, value)


class _Unreached(logging.Handler):
    """Within, the URLs that pyhocon could not include in this thread. It reads them as empty and says so in its log only."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.urls: list[str] = []
        self._thread = threading.get_ident()
        self._log = logging.getLogger("pyhocon.config_parser")

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread and str(record.msg).startswith("Cannot include url"):
            self.urls.append(without_secrets(str((record.args or ("",))[0])))  # type: ignore[index]

    def __enter__(self) -> "_Unreached":
        if not self._log.isEnabledFor(logging.WARNING):
            self._log.setLevel(logging.WARNING)
        self._log.addHandler(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._log.removeHandler(self)


# ---------------------------------------------------------------- text


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise JobError(f"{file}, line {line}: this is not UTF-8. Save the file as UTF-8.") from error
    except OSError as error:
        raise JobError(f"{file}: the file cannot be read ({error.strerror}). Check its permissions.") from error


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """(number, line) without comments and empty lines; lines that a backslash ends are joined with the next."""
    begun, at = "", 0
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.lstrip()
        if not line or line[0] in "#!":  # also between the lines of a joined one
            continue
        at = at if begun else number
        backslashes = len(raw.rstrip()) - len(raw.rstrip().rstrip("\\"))
        if backslashes % 2:
            begun += line.rstrip()[:-1]
            continue
        yield at, (begun + line).rstrip()
        begun = ""
    if begun:
        yield at, begun.rstrip()


def _flattened(tree: Mapping[str, Any], above: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The leaves of a HOCON tree under dotted keys; lists become texts with commas."""
    for name, value in tree.items():
        path = (*above, str(name).strip('"'))
        key = ".".join(path)
        if isinstance(value, Mapping):
            yield from _flattened(value, path)
        elif isinstance(value, Sequence) and not isinstance(value, str):
            yield key, _listed(value)
        elif value is not None:
            yield key, str(value).lower() if isinstance(value, bool) else str(value)


def _listed(values: Sequence[Any]) -> str:
    """A list as a text: JSON where it holds objects (dataset.specific.props), else with commas."""
    if any(isinstance(value, Mapping) for value in values):
        return json.dumps([dict(_flattened(value, ())) for value in values])
    return ",".join(str(value) for value in values)
