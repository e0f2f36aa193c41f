"""Typed values of settings out of the table of `setting_keys`, with errors that say which setting, where, and what is allowed."""

import difflib
import re
from collections.abc import Mapping
from typing import Any

from lakesql.errors import JobError
from lakesql.ingest.secrets import Settings, shown
from lakesql.ingest.setting_keys import KEYS, OLDER, Key
from lakesql.services.spelling import OURS

_AS_WRITTEN = ("simple.writer.delimiter",)


class Reading:
    """The settings of one job under their known names; what is odd about them is collected in `notes`."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        given = Settings(settings)
        self.notes: list[str] = []
        trimmed = {key: str(value) if key in _AS_WRITTEN else str(value).strip() for key, value in given.items()}
        self.settings = Settings(trimmed, given.places)
        for other in [key for key in self.settings if key in OLDER]:
            name = OLDER[other]
            if self.settings.setdefault(name, self.settings[other]) != self.settings[other]:
                self.notes.append(
                    f"{other} is another spelling of {name}, which is set too and holds; {other} is not used."
                )
            self.settings.places.setdefault(name, self.settings.places.get(other, ""))

    def given(self, name: str) -> bool:
        """Whether a setting has a value; an empty one has none."""
        return self.settings.get(name, "") != ""

    def text(self, name: str) -> str | None:
        """The value as written, or the default; refused when something in it is left open."""
        value = self.settings[name] if self.given(name) else KEYS[name].default
        if value is not None:
            self.check_closed(name, value)
        return value

    def __call__(self, name: str) -> Any:
        """The value, typed."""
        value = self.text(name)
        return None if value is None else self.parse(KEYS[name], value)

    def parse(self, key: Key, value: str, of: str = "") -> Any:
        try:
            return key.parse(value)
        except ValueError as error:
            raise self.wrong(key.name, f"{error}", "Correct the value, or leave the setting out.", of, value) from None

    def wrong(self, name: str, what: str, remedy: str, of: str = "", value: str | None = None) -> JobError:
        """The error about one setting: which, its value, where it is written, what is wrong, what to do."""
        value = self.settings.get(name) if value is None else value
        written = "" if value is None else f" = {shown(name, value)!r}"
        return JobError(f"setting {name}{written}{of}{self.place(name)}: {what}. {remedy}")

    def missing(self, name: str, remedy: str) -> JobError:
        others = KEYS[name].older
        spelt = f" (or {', '.join(others)})" if others else ""
        return JobError(f"setting {name}{spelt} is missing{self.place(name)}. {remedy}")

    def check_closed(self, name: str, value: str) -> None:
        """Refuse a value with an encrypted or unresolved part: it would be taken literally."""
        if re.match(r"ENC\(.*\)$", value):
            raise self.wrong(
                name, "encrypted values are not read", "Write ${env:NAME} and set that variable.", value="ENC(...)"
            )
        if reference := re.search(r"\$\{[^}]*\}", value):
            raise self.wrong(
                name,
                f"{reference[0]} is not set",
                "Set it in the job file or in the environment, or write its value here.",
            )

    def place(self, name: str) -> str:
        found = self.settings.places.get(name)
        return f" ({found})" if found else ""


def near(name: str) -> str:
    """A known setting that the name may be meant for; '' when none is near."""
    found = difflib.get_close_matches(name, [*KEYS, *OLDER, *OURS], n=1, cutoff=0.85)
    return found[0] if found else ""
