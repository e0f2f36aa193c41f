"""Schema registries over HTTP: Confluent's protocol (R39, R40) and LinkedIn's (R38), with a cache.

An id that the registry does not know is a fact about a record (`UnknownSchema`, asked for three times, a second apart,
since a registry may lag behind); a registry that cannot be reached or answers nonsense is an outage: retried with
back-off, then IngestError. The two are never mixed, or a restart of the registry would drop good records (D3).
One client is shared by all tasks of a run: each id is asked for once, whoever needs it first. Credentials and TLS come
from settings under Confluent's names and never get into a text. Not done: schemas other than Avro and JSON.
"""

import base64
import http.client
import json
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from lakesql.errors import IngestError, JobError, LastingError
from lakesql.ingest.metrics import current

_PIECE = 64 << 10
_ANSWER_MAX = 64 << 20
UNKNOWN_TRIES = 3
UNKNOWN_WAIT_S = 1.0
_OUTAGE_TRIES = 5
_OUTAGE_WAIT_S = 0.5  # doubles
_OUTAGE_WAIT_MAX_S = 10.0
_UNKNOWN_CODES = {40401, 40402, 40403}  # of Confluent: subject, version, schema not found
_PREFIX = "schema.registry."


@dataclass(frozen=True, slots=True)
class Schema:
    """A registered schema: its id as text, its kind ('AVRO' or 'JSON'), and parsed JSON in which no name is open."""

    id: str
    kind: str
    json: Any


class UnknownSchemaError(Exception):
    """The registry answers, and does not know this id."""


class _Outage(Exception):
    """The registry could not be asked."""


class Registry:
    """Schemas by id and the latest of a topic.

    settings  `kafka.schema.registry.*` of the cache; `basic.auth.*`, `bearer.auth.*`, `ssl.*`, `request.timeout.ms`
              and `retries`, each behind `schema.registry.` (the auth ones also without)
    """

    def __init__(
        self,
        url: str,
        protocol: str,
        settings: Mapping[str, str] | None = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if protocol not in ("confluent", "linkedin"):
            raise JobError(f"wire format {protocol!r} has no schema registry. Use 'confluent' or 'linkedin'.")
        settings = settings or {}
        self._protocol = protocol
        self._sleep, self._clock = sleep, clock
        self._bases, user_info = _bases(url)
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json, */*"}
        self._headers |= _authorization(settings, user_info)
        self._opener = _opener(settings, self._bases)
        self._timeout_s = _number(settings, _PREFIX + "request.timeout.ms", 30_000) / 1000
        self._tries = max(1, int(_number(settings, _PREFIX + "retries", _OUTAGE_TRIES)))
        self._room = max(1, int(_number(settings, "kafka.schema.registry.max.cache.size", 1000)))
        self._expire_s = _number(settings, "kafka.schema.registry.cache.expire.after.write.min", 10) * 60
        self._known: OrderedDict[str, tuple[float, Schema | None]] = OrderedDict()
        self._failed: OrderedDict[str, tuple[float, int]] = OrderedDict()  # id: last try, tries
        self._lock = threading.Lock()
        self._asking: dict[str, threading.Lock] = {}

    @property
    def url(self) -> str:
        """Where it is, without credentials."""
        return ",".join(self._bases)

    def schemas(self, ids: Iterable[str]) -> dict[str, Schema | None]:
        """The schemas of these ids; None for those that the registry does not know."""
        out: dict[str, Schema | None] = {}
        rest = list(dict.fromkeys(ids))
        while rest:
            again, wait_s = [], 0.0
            for one in rest:
                try:
                    out[one] = self._cached(one, lambda one=one: self._by_id(one))  # type: ignore[misc]
                except UnknownSchemaError:
                    if (due := self._due_in(one)) is None:
                        out[one] = None
                    else:
                        again.append(one)
                        wait_s = max(wait_s, due)
            if again:
                self._say(f"it does not know the schema {again[0]}. Asked again in {wait_s:.1f} s.")
                self._sleep(wait_s)
            rest = again
        return out

    def latest(self, topic: str, part: str = "value") -> Schema | None:
        """The newest schema of a topic's values or keys; None when it has none, as LinkedIn's keys never have."""
        if self._protocol == "linkedin" and part != "value":
            return None
        if self._protocol == "linkedin":
            path, key = f"latest_with_type={quote(topic, safe='')}", f"latest {topic}"
            ask: Callable[[], Schema] = lambda: self._linkedin(path, "")  # noqa: E731
        else:
            subject = quote(f"{topic}-{part}", safe="")
            path, key = f"subjects/{subject}/versions/latest", f"latest {topic}-{part}"
            ask = lambda: self._confluent(path, "")  # noqa: E731
        try:
            return self._cached(key, ask)
        except UnknownSchemaError:
            return None

    # ------------------------------------------------------------ cache
    def _cached(self, key: str, ask: Callable[[], Schema]) -> Schema:
        with self._lock:
            mine = self._asking.setdefault(key, threading.Lock())
        with mine:
            with self._lock:
                found = self._known.get(key)
                if found and self._clock() - found[0] < self._expire_s:
                    self._known.move_to_end(key)
                    assert found[1] is not None
                    return found[1]
                at, tries = self._failed.get(key, (-self._expire_s, 0))
                if tries and self._clock() - at >= self._expire_s:
                    tries = 0
                if tries >= UNKNOWN_TRIES or (tries and self._clock() - at < UNKNOWN_WAIT_S):
                    raise UnknownSchemaError(key)
            try:
                schema = ask()
            except UnknownSchemaError:
                with self._lock:
                    self._kept(self._failed, key, (self._clock(), tries + 1))
                raise
            with self._lock:
                self._kept(self._known, key, (self._clock(), schema))
                self._failed.pop(key, None)
            return schema

    def _kept(self, cache: OrderedDict[str, Any], key: str, value: Any) -> None:
        cache[key] = value
        cache.move_to_end(key)
        while len(cache) > self._room:
            old, _ = cache.popitem(last=False)
            self._asking.pop(old, None)

    def _due_in(self, key: str) -> float | None:
        """Seconds until the id may be asked for again; None: not any more."""
        with self._lock:
            at, tries = self._failed.get(key, (0.0, UNKNOWN_TRIES))
        return None if tries >= UNKNOWN_TRIES else max(0.0, UNKNOWN_WAIT_S - (self._clock() - at))

    # ------------------------------------------------------------ protocols
    def _by_id(self, one: str) -> Schema:
        if self._protocol == "linkedin":
            return self._linkedin(f"id={one}", one)
        return self._confluent(f"schemas/guids/{one}" if "-" in one else f"schemas/ids/{one}", one)

    def _linkedin(self, path: str, one: str) -> Schema:
        found: Schema = self._get(path, lambda text: Schema(one, "AVRO", _object(text)))
        return found

    def _confluent(self, path: str, one: str) -> Schema:
        def read(text: str) -> tuple[str, str, str, list[Any]]:
            body = _object(text)
            if not isinstance(body.get("schema"), str):
                raise _Outage("an answer without a schema")
            return (
                one or str(body.get("id", "")),
                str(body.get("schemaType") or "AVRO"),
                body["schema"],
                list(body.get("references") or ()),
            )

        number, kind, text, references = self._get(path, read)
        try:
            parsed = json.loads(text)
        except ValueError:
            parsed = text.strip()  # a bare name such as string
        if kind == "AVRO" and references:
            parsed = _closed(parsed, "", self._referenced(references, 0))
        return Schema(number, kind, parsed)

    def _referenced(self, references: list[Any], depth: int) -> dict[str, Any]:
        """Definitions of the named types that a schema takes from other subjects, by full name."""
        if depth > 20:
            raise LastingError(f"schema registry {self.url}: references of schemas go in circles. Correct them there.")
        found: dict[str, Any] = {}
        for one in references:
            path = f"subjects/{quote(str(one['subject']), safe='')}/versions/{int(one['version'])}"
            text, more = self._get(path, lambda t: (lambda b: (b["schema"], b.get("references") or []))(_object(t)))
            found |= self._referenced(list(more), depth + 1)
            _definitions(json.loads(text), "", found)
        return found

    # ------------------------------------------------------------ requests
    def _get(self, path: str, read: Callable[[str], Any]) -> Any:
        wait_s, reason = _OUTAGE_WAIT_S, ""
        for number in range(self._tries):
            if number:
                self._say(f"{reason}. Asked again in {wait_s:g} s, try {number + 1} of {self._tries}.")
                self._sleep(wait_s)
                wait_s = min(2 * wait_s, _OUTAGE_WAIT_MAX_S)
            for base in self._bases:
                try:
                    return read(self._ask(f"{base}/{path}"))
                except _Outage as error:
                    reason = f"{base}/{path}: {error}"
        raise IngestError(
            f"schema registry: no usable answer in {self._tries} tries; the last one: {reason}. No record was dropped; "
            "the next run goes on where this one stopped. Check that the registry runs and that its URL is right."
        )

    def _say(self, what: str) -> None:
        current().event("RegistryRetry", about=self.url, text=f"Schema registry {self.url}: {what}")

    def _ask(self, url: str) -> str:
        request = urllib.request.Request(url, headers=self._headers)
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                return self._whole(answer).decode()
        except urllib.error.HTTPError as error:
            self._refused(url, error)
        except UnicodeDecodeError:
            raise _Outage("an answer that is not UTF-8") from None
        except (OSError, http.client.HTTPException) as error:
            raise _Outage(str(getattr(error, "reason", error)) or type(error).__name__) from None
        raise AssertionError  # _refused never returns

    def _whole(self, answer: http.client.HTTPResponse) -> bytes:
        """The body. The timeout of a socket is one for each piece; here it holds for all, and the size is bounded."""
        end, found = time.monotonic() + self._timeout_s, bytearray()
        while piece := answer.read1(_PIECE):
            found += piece
            if len(found) > _ANSWER_MAX:
                raise _Outage(f"an answer of more than {_ANSWER_MAX >> 20} MB")
            if time.monotonic() > end:
                raise _Outage(f"an answer that is not complete after {self._timeout_s:g} s")
        return bytes(found)

    def _refused(self, url: str, error: urllib.error.HTTPError) -> None:
        try:
            text = error.read(2000).decode(errors="replace")
            if (told := self._headers.get("Authorization")) is not None:  # what echoes requests must not show it
                text = text.replace(told, "***").replace(told.rpartition(" ")[2], "***")
        except (OSError, http.client.HTTPException):
            text = ""
        finally:
            error.close()
        if error.code == 404:
            if self._protocol == "linkedin" or _code(text) in _UNKNOWN_CODES:
                raise UnknownSchemaError(url)
            raise LastingError(
                f"schema registry: {url} is not found, and the answer is not that of a registry. "
                "Check kafka.schema.registry.url."
            )
        if error.code in (401, 403):
            raise LastingError(
                f"schema registry: {url} answers {error.code}: not allowed. Check schema.registry.basic.auth.user.info "
                "or schema.registry.bearer.auth.token."
            )
        if error.code in (408, 425, 429) or error.code >= 500:
            raise _Outage(f"HTTP {error.code}")
        raise LastingError(
            f"schema registry: {url} answers HTTP {error.code}: {text[:200]!r}. Check its URL and version."
        )


def _code(text: str) -> int | None:
    try:
        return int(json.loads(text)["error_code"])
    except (ValueError, TypeError, KeyError):
        return None


def _object(text: str) -> Any:
    try:
        found = json.loads(text) if text.lstrip().startswith("{") else None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise _Outage(f"expected a JSON object, found {text[:60]!r}")
    return found


# ---------------------------------------------------------------- references between schemas
_NAMED = ("record", "error", "enum", "fixed")


def _full(name: str, namespace: str) -> str:
    return f"{namespace}.{name}" if namespace and "." not in name else name


def _definitions(schema: Any, namespace: str, found: dict[str, Any]) -> None:
    """Collect the named types that a schema defines at its top."""
    for one in schema if isinstance(schema, list) else [schema]:
        if isinstance(one, dict) and one.get("type") in _NAMED:
            space = one.get("namespace", namespace) or ""
            name = _full(str(one["name"]), space)
            found[name] = _closed({**one, "name": name}, space, dict(found))


def _closed(schema: Any, namespace: str, open_names: dict[str, Any]) -> Any:
    """The schema with the first use of each name of `open_names` replaced by its definition; the names are used up."""
    if isinstance(schema, str):
        return open_names.pop(_full(schema, namespace), None) or open_names.pop(schema, None) or schema
    if isinstance(schema, list):
        return [_closed(one, namespace, open_names) for one in schema]
    if not isinstance(schema, dict):
        return schema
    out = dict(schema)
    if isinstance(out.get("name"), str):
        namespace = out.get("namespace", namespace) or ""
        if "." in out["name"]:
            namespace = out["name"].rpartition(".")[0]
    for key in ("items", "values"):
        if key in out:
            out[key] = _closed(out[key], namespace, open_names)
    if not isinstance(out.get("type"), str) or out["type"] not in _NAMED:
        out["type"] = _closed(out.get("type"), namespace, open_names)
    if isinstance(out.get("fields"), list):
        out["fields"] = [{**f, "type": _closed(f.get("type"), namespace, open_names)} for f in out["fields"]]
    return out


# ---------------------------------------------------------------- settings
def _number(settings: Mapping[str, str], name: str, default: float) -> float:
    text = settings.get(name)
    try:
        return default if text is None else float(text)
    except ValueError:
        raise JobError(f"{name}={text!r}: expected a number.") from None


def _bases(url: str) -> tuple[list[str], str | None]:
    """The base URLs of a comma list without credentials, and the credentials that one of them had."""
    bases, user_info = [], None
    for one in url.split(","):
        parts = urlsplit(one.strip())
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise JobError("kafka.schema.registry.url: expected http://host:port or https://host:port.")
        if "@" in parts.netloc:
            user_info = unquote(parts.netloc.rpartition("@")[0])
        host = parts.netloc.rpartition("@")[2]
        bases.append(urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", "")))
    return bases, user_info


def _setting(settings: Mapping[str, str], name: str) -> str | None:
    return settings.get(_PREFIX + name) or (settings.get(name) if "auth" in name else None)


def _authorization(settings: Mapping[str, str], url_user_info: str | None) -> dict[str, str]:
    token = _setting(settings, "bearer.auth.token")
    if source := _setting(settings, "bearer.auth.credentials.source"):
        if source.upper() != "STATIC_TOKEN":
            raise JobError(f"schema.registry.bearer.auth.credentials.source={source}: only STATIC_TOKEN is done.")
        if not token:
            raise JobError("schema.registry.bearer.auth.token is missing, and STATIC_TOKEN asks for it.")
    if token:
        return {"Authorization": f"Bearer {token}"}
    source = (_setting(settings, "basic.auth.credentials.source") or "").upper()
    user_info = _setting(settings, "basic.auth.user.info")
    if source not in ("", "USER_INFO", "URL", "SASL_INHERIT"):
        raise JobError(f"schema.registry.basic.auth.credentials.source={source}: use USER_INFO, URL or SASL_INHERIT.")
    if source == "SASL_INHERIT":
        user_info = f"{settings.get('sasl.username', '')}:{settings.get('sasl.password', '')}"
    elif source == "URL" or user_info is None:
        user_info = url_user_info
    if not user_info:
        return {}
    return {"Authorization": "Basic " + base64.b64encode(user_info.encode()).decode()}


def _opener(settings: Mapping[str, str], bases: list[str]) -> urllib.request.OpenerDirector:
    handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
    if any(base.startswith("https:") for base in bases):
        handlers.append(urllib.request.HTTPSHandler(context=_tls(settings)))
    return urllib.request.build_opener(*handlers)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Credentials do not follow a redirect to another host."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if urlsplit(newurl).netloc != urlsplit(req.full_url).netloc:
            raise LastingError(f"schema registry: {req.full_url} redirects to another host. Set the URL of that one.")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _tls(settings: Mapping[str, str]) -> ssl.SSLContext:
    ca = settings.get(_PREFIX + "ssl.ca.location")
    for store in ("truststore", "keystore"):
        location = settings.get(f"{_PREFIX}ssl.{store}.location")
        if not location:
            continue
        if settings.get(f"{_PREFIX}ssl.{store}.type", "").upper() != "PEM" and not location.endswith(".pem"):
            raise JobError(
                f"schema.registry.ssl.{store}.location: Java key stores are not read. Export it as PEM and set "
                "schema.registry.ssl.ca.location, .certificate.location and .key.location."
            )
    ca = ca or settings.get(_PREFIX + "ssl.truststore.location")
    certificate = settings.get(_PREFIX + "ssl.certificate.location") or settings.get(_PREFIX + "ssl.keystore.location")
    try:
        context = ssl.create_default_context(cafile=ca)
        if certificate:
            key = settings.get(_PREFIX + "ssl.key.location")
            context.load_cert_chain(certificate, key, settings.get(_PREFIX + "ssl.key.password"))
    except (OSError, ssl.SSLError) as error:
        raise JobError(
            f"schema registry: certificates cannot be loaded: {error}. Check schema.registry.ssl.*."
        ) from None
    return context
