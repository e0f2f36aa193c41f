"""Who may, and where: endpoint, region and credentials of a bucket, from secrets, settings, the environment and profiles.

In this order, the first that says something counts: a secret of the connection whose scope the address begins with (the
longest one), settings `lakesql.store.*`, the environment, the profile files of AWS, what the machine or container is given
by its platform. The client reads the environment and asks the platform itself; profile files are read here.
Values of secrets are in no text: not in an error, a repr or the name of a client.

A `Stores` belongs to a DuckDB database; `chosen` says, for what runs within, whose it is.
"""

import configparser
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lakesql.errors import TableError

PREFIX = "lakesql.store."
ENDPOINT, REGION, PROFILE = f"{PREFIX}endpoint", f"{PREFIX}region", f"{PREFIX}profile"
VIRTUAL_HOSTED, ANONYMOUS = f"{PREFIX}virtual_hosted", f"{PREFIX}anonymous"
TIMEOUT, PROXY = f"{PREFIX}timeout", f"{PREFIX}proxy"


def _boolean(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ValueError("it is true or false")
    return text.strip().lower() == "true"


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 < number < 86_400:
        raise ValueError("it is a number of seconds above 0")
    return number


def _address(text: str) -> str:
    scheme, sign, host = text.strip().partition("://")
    if scheme not in ("http", "https") or not sign or not host or "@" in host:
        raise ValueError("it is an address as https://host:port, without credentials")
    return text.strip().rstrip("/")


SETTINGS: Mapping[str, Callable[[str], Any]] = {
    ENDPOINT: _address,
    REGION: str.strip,
    PROFILE: str.strip,
    VIRTUAL_HOSTED: _boolean,
    ANONYMOUS: _boolean,
    TIMEOUT: _seconds,
    PROXY: _address,
}
"""Every setting of this module, and what reads its value; ValueError says what it should be."""


@dataclass(frozen=True, slots=True)
class Secret:
    """What CREATE SECRET gave."""

    name: str
    kind: str  # s3, r2, gcs or azure
    scope: tuple[str, ...]
    values: Mapping[str, str] = field(repr=False)  # by upper-case name


@dataclass(slots=True)
class Stores:
    """What a database knows of stores."""

    settings: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, Secret] = field(default_factory=dict)

    def secret_for(self, uri: str, kinds: tuple[str, ...]) -> Secret | None:
        """The secret with the longest scope that the address begins with; the newest of several."""
        found = [
            (len(scope), number, one)
            for number, one in enumerate(self.secrets.values())
            if one.kind in kinds
            for scope in one.scope or ("",)
            if uri.startswith(scope) or f"{uri}/" == scope
        ]
        return max(found, key=lambda f: f[:2])[2] if found else None


@dataclass(frozen=True, slots=True)
class Access:
    """How a client is made; equal ones have one `identity`, which tells nothing of the values."""

    config: Mapping[str, Any] = field(repr=False)
    options: Mapping[str, Any] = field(repr=False)
    provider: Any = field(default=None, repr=False)
    identity: str = ""


_AROUND = ("AWS_", "GOOGLE_", "AZURE_")

_chosen: ContextVar[Stores | None] = ContextVar("lakesql_stores", default=None)


@contextmanager
def chosen(stores: Stores | None) -> Iterator[None]:
    """Within, storages are opened with these settings and secrets."""
    token = _chosen.set(stores)
    try:
        yield
    finally:
        _chosen.reset(token)


def access(scheme: str, bucket: str, uri: str, account: str = "") -> Access:
    """How to reach a bucket now."""
    stores = _chosen.get() or Stores()
    settings = {key: _read(key, value) for key, value in stores.settings.items() if key.startswith(PREFIX)}
    options: dict[str, Any] = {}
    if TIMEOUT in settings:
        options["timeout"] = f"{settings[TIMEOUT] * 1000:.0f}ms"
    if PROXY in settings:
        options["proxy_url"] = settings[PROXY]
    config: dict[str, Any] = {}
    provider = None
    if scheme == "s3":
        secret = stores.secret_for(uri, ("s3", "r2"))
        config, provider = _s3(settings, secret)
        endpoint = str(
            config.get("endpoint") or os.environ.get("AWS_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT", "")
        )
        if endpoint.startswith("http://"):
            options["allow_http"] = True
    elif scheme == "gs":
        if stores.secret_for(uri, ("gcs",)) is not None:
            raise TableError(
                f"{uri}: a secret of the type gcs holds a key for the other, S3-like interface of Google Cloud Storage, "
                "which has no conditional writes. Drop it for this bucket and use GOOGLE_APPLICATION_CREDENTIALS, or "
                "gcloud auth application-default login."
            )
        if settings.get(ANONYMOUS):
            config["skip_signature"] = True
    elif scheme == "az":
        config = _azure(settings, stores.secret_for(uri, ("azure",)), account)
        if str(config.get("endpoint", "")).startswith("http://"):
            options["allow_http"] = True
    around = {name: value for name, value in os.environ.items() if name.startswith(_AROUND)}  # the client reads these
    told = json.dumps([scheme, bucket, config, options, settings.get(PROFILE), around], sort_keys=True, default=str)
    return Access(config, options, provider, hashlib.sha256(told.encode()).hexdigest())


def _read(key: str, value: str) -> Any:
    try:
        return SETTINGS[key](value)
    except KeyError:
        known = ", ".join(SETTINGS)
        raise TableError(f"setting {key} is unknown; of object stores there are {known}.") from None
    except ValueError as error:
        raise TableError(f"setting {key}: {error}. Correct the value or RESET {key}.") from None


# ---------------------------------------------------------------- S3
def _s3(settings: Mapping[str, Any], secret: Secret | None) -> tuple[dict[str, Any], Any]:
    config: dict[str, Any] = {}
    if ENDPOINT in settings:
        config["endpoint"] = settings[ENDPOINT]
    if REGION in settings:
        config["region"] = settings[REGION]
    if VIRTUAL_HOSTED in settings:
        config["virtual_hosted_style_request"] = settings[VIRTUAL_HOSTED]
    if settings.get(ANONYMOUS):
        config["skip_signature"] = True
    profile = settings.get(PROFILE)
    if secret is not None:
        config |= _of_s3_secret(secret)
        profile = secret.values.get("PROFILE", profile)
    provider = None
    known = config.get("skip_signature") or "access_key_id" in config
    if not known and (profile or not _environment_tells()):
        found, provider = _profile(profile)
        config = found | config
    return config, provider


def _of_s3_secret(secret: Secret) -> dict[str, Any]:
    values, config = secret.values, dict[str, Any]()
    names = {
        "KEY_ID": "access_key_id",
        "SECRET": "secret_access_key",
        "SESSION_TOKEN": "session_token",
        "REGION": "region",
    }
    config.update({theirs: values[ours] for ours, theirs in names.items() if values.get(ours)})
    endpoint = values.get("ENDPOINT", "")
    if secret.kind == "r2" and not endpoint and values.get("ACCOUNT_ID"):
        endpoint = f"{values['ACCOUNT_ID']}.r2.cloudflarestorage.com"
        config.setdefault("region", "auto")
    if endpoint:
        plain = values.get("USE_SSL", "true").lower() in ("false", "0")
        config["endpoint"] = endpoint if "://" in endpoint else f"{'http' if plain else 'https'}://{endpoint}"
    if values.get("URL_STYLE"):
        config["virtual_hosted_style_request"] = values["URL_STYLE"].lower() == "vhost"
    return config


_ENVIRONMENT = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_SKIP_SIGNATURE",
)


def _environment_tells() -> bool:
    return any(os.environ.get(name) for name in _ENVIRONMENT)


def _profile(name: str | None) -> tuple[dict[str, Any], Any]:
    """(configuration, provider of credentials) of a profile of the AWS files; nothing when there is none by default."""
    wanted = name or os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE") or "default"
    stored: dict[str, str] = {}
    for variable, file, section in (
        ("AWS_CONFIG_FILE", "config", wanted if wanted == "default" else f"profile {wanted}"),
        ("AWS_SHARED_CREDENTIALS_FILE", "credentials", wanted),
    ):
        parser = configparser.RawConfigParser()
        try:
            parser.read(Path(os.environ.get(variable) or f"~/.aws/{file}").expanduser(), encoding="utf-8")
        except (configparser.Error, OSError, UnicodeDecodeError):
            raise TableError(f"The AWS file {file} cannot be understood. Correct it, or set the environment.") from None
        if parser.has_section(section):
            stored |= dict(parser.items(section))
    if not stored:
        if name or os.environ.get("AWS_PROFILE"):
            raise TableError(f"There is no profile {wanted} in the AWS files. Correct {PROFILE} or AWS_PROFILE.")
        return {}, None
    config: dict[str, Any] = {}
    if "region" in stored and not (os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")):
        config["region"] = stored["region"]
    endpoint = stored.get("endpoint_url")
    if endpoint and not (os.environ.get("AWS_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT")):
        config["endpoint"] = endpoint
    if "aws_access_key_id" in stored and "role_arn" not in stored:
        config |= {
            "access_key_id": stored["aws_access_key_id"],
            "secret_access_key": stored.get("aws_secret_access_key", ""),
        }
        if stored.get("aws_session_token"):
            config["session_token"] = stored["aws_session_token"]
        return config, None
    if any(key in stored for key in ("role_arn", "sso_session", "sso_start_url", "credential_process")):
        return config, _by_boto3(wanted)
    return config, None


def _by_boto3(profile: str) -> Any:
    """A provider for profiles that need more than keys."""
    try:
        import boto3
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        raise TableError(
            f"The AWS profile {profile} takes its credentials from a role, a sign-on or a program, which needs boto3. "
            "Install lakesql[aws], or put keys into the environment."
        ) from None
    return Boto3CredentialProvider(boto3.Session(profile_name=profile))


# ---------------------------------------------------------------- Azure
def _azure(settings: Mapping[str, Any], secret: Secret | None, account: str) -> dict[str, Any]:
    config: dict[str, Any] = {"account_name": account} if account else {}
    if ENDPOINT in settings:
        config["endpoint"] = settings[ENDPOINT]
    if settings.get(ANONYMOUS):
        config["skip_signature"] = True
    if secret is None:
        return config
    parts = dict(pair.split("=", 1) for pair in secret.values.get("CONNECTION_STRING", "").split(";") if "=" in pair)
    names = {
        "AccountName": "account_name",
        "AccountKey": "account_key",
        "SharedAccessSignature": "sas_token",
        "BlobEndpoint": "endpoint",
    }
    config |= {theirs: parts[ours] for ours, theirs in names.items() if parts.get(ours)}
    direct = {
        "ACCOUNT_NAME": "account_name",
        "TENANT_ID": "tenant_id",
        "CLIENT_ID": "client_id",
        "CLIENT_SECRET": "client_secret",
    }
    return config | {theirs: secret.values[ours] for ours, theirs in direct.items() if secret.values.get(ours)}
