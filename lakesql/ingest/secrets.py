"""Texts without secrets: nothing that an ingestion prints or raises holds a password.

What a secret is, is decided here alone: by the name of its setting, by a `password=` inside of a longer value (sasl.jaas.config), and as the user's
part of an address. References like ${env:NAME} are no secrets: they say where one is.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from lakesql.errors import LakeError
from lakesql.ingest.setting_keys import KEYS, OLDER

MASK = "***"
_SECRET = re.compile(
    r"passw|passphrase|secret|token(?!\.endpoint)|credentials?$|jaas|user\.?info|private\.key\.pem|key\.pem|keystore\.key$"
    r"|api\.?key|access\.?key|oauthbearer\.config",
    re.IGNORECASE,
)
_INSIDE = re.compile(
    r"""(\b[\w.]*(?:password|passwd|secret|token)["']?\s*[=:]+\s*)("[^"]*"?|'[^']*'?|[^\s'",;)]+)""", re.IGNORECASE
)
_USER = re.compile(r"(\w+://)([^/@\s'\"]+)(?=@)")
_NO_PORT = re.compile(r"""(\w+://[^/@\s'":]+:)([^\s'"/@\d$][^\s'"/@]*)""")
REFERENCE = re.compile(r"\$\{[^}]*\}")


def is_secret(key: str) -> bool:
    """Whether the value of a setting of this name is never shown."""
    return _SECRET.search(key) is not None


def is_plain(key: str, value: str) -> bool:
    """Whether a secret is written out, rather than referred to."""
    return bool(secrets_of({key: value})) and not REFERENCE.fullmatch(value.strip())


def may_be_shown(key: str) -> bool:
    """Whether the text of a statement may be printed with the value of this key, before anybody knows what it means."""
    return not is_secret(key) and ("." not in key or key in KEYS or key in OLDER or key.startswith("hoodie."))


def shown(key: str, value: str) -> str:
    """The value of a setting as it may be printed."""
    if is_secret(key):
        return value if REFERENCE.fullmatch(value.strip()) else MASK
    return without_secrets(value)


def without_secrets(text: str) -> str:
    """A text without passwords that are written in it, in their usual forms."""
    return _NO_PORT.sub(rf"\g<1>{MASK}", _USER.sub(rf"\g<1>{MASK}", _INSIDE.sub(_masked, text)))


def spans(text: str) -> list[tuple[int, int]]:
    """Where such passwords stand in a text."""
    return [m.span(2) for pattern in (_INSIDE, _USER, _NO_PORT) for m in pattern.finditer(text)]


def _masked(match: "re.Match[str]") -> str:
    return match[0] if REFERENCE.fullmatch(match[2].strip("'\"")) else match[1] + MASK


def masked(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings as they may be printed."""
    return {key: shown(key, value) for key, value in settings.items()}


def secrets_of(settings: Mapping[str, str]) -> frozenset[str]:
    """The texts among the values of settings that must not be seen."""
    found = set()
    for key, value in settings.items():
        if is_secret(key):
            found.add(value)
        found |= {m[2].strip("'\"") for m in _INSIDE.finditer(value)} | {m[2] for m in _USER.finditer(value)}
    return frozenset(text for text in found if text.strip() and not REFERENCE.fullmatch(text.strip()))


def hide(text: str, secrets: Iterable[str]) -> str:
    """The text with each of the secrets, and what looks like one, masked."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return without_secrets(text)


@contextmanager
def hidden(settings: Mapping[str, str]) -> Iterator[None]:
    """Within, the text of an error of ours does not hold a secret of these settings."""
    try:
        yield
    except LakeError as error:
        secrets = secrets_of(settings)
        text = hide(str(error), secrets)
        if text == str(error):
            raise
        raise type(error)(text) from None


class Settings(dict[str, str]):
    """Settings by name, with the place where each was written (file and line), shown without secrets."""

    def __init__(self, values: Mapping[str, str] | None = None, places: Mapping[str, str] | None = None) -> None:
        super().__init__(values or {})
        self.places: dict[str, str] = dict(places if places is not None else getattr(values, "places", {}))

    def __repr__(self) -> str:
        return repr({key: shown(key, value) for key, value in self.items()})

    __str__ = __repr__

    def __reduce__(self) -> tuple[type["Settings"], tuple[dict[str, str], dict[str, str]]]:
        return Settings, (dict(self), self.places)
