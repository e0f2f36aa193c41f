"""Settings whose secrets do not show: neither in a repr, nor in what is built from one. The values themselves are kept."""

import re
from collections.abc import Mapping

_SECRET = re.compile(
    r"passw|passphrase|secret|token(?!\.endpoint)|credentials?$|jaas|user\.?info|private\.key\.pem|key\.pem|keystore\.key$"
    r"|api\.?key|access\.?key|oauthbearer\.config",
    re.IGNORECASE,
)
_USER = re.compile(r"(\w+://)[^/@\s]+@")
_INSIDE = re.compile(r"""(\w*(?:password|secret|token)["']?\s*[=:]\s*)("[^"]*"|'[^']*'|[^\s,;}]+)""", re.IGNORECASE)


def is_secret(key: str) -> bool:
    """Whether the value of a setting of this name is never shown."""
    return _SECRET.search(key) is not None


def shown(key: str, value: str) -> str:
    """The value as it may be printed: secrets, and those within a longer text or an address, are starred out."""
    if is_secret(key):
        return "***"
    return _INSIDE.sub(r"\1***", _USER.sub(r"\1***@", value))


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
