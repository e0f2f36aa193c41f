"""Partition paths of the TIMESTAMP key generator (hudi-format 6.4) as SQL: a number or a text, formatted as a time.

What Hudi does, measured with 1.2.0 (tests/golden/keys): times have milliseconds, cut towards zero; `timezone` goes
before `input.timezone` and `output.timezone`; without a zone for the output, a text keeps the zone it was given in,
its own offset included, and a number is shown in UTC; a null number counts as 1, a null text as the epoch written in
the first input pattern. Columns of a timestamp or date type count as the numbers that are stored.
"""

import datetime
import re
from collections.abc import Callable, Mapping
from zoneinfo import ZoneInfo

import pyarrow as pa

from lakesql.errors import Unsupported
from lakesql.table.names import literal

Option = Callable[[str], str | None]

_PREFIXES = (
    "hoodie.keygen.timebased.",
    "hoodie.deltastreamer.keygen.timebased.",
    "hoodie.streamer.keygen.timebased.",
)
_TO_MILLIS = {
    "NANOSECONDS": "// 1000000",
    "MICROSECONDS": "// 1000",
    "MILLISECONDS": "* 1",
    "SECONDS": "* 1000",
    "MINUTES": "* 60000",
    "HOURS": "* 3600000",
    "DAYS": "* 86400000",
}
_KINDS = {"UNIX_TIMESTAMP": "SECONDS", "EPOCHMILLISECONDS": "MILLISECONDS", "EPOCHMICROSECONDS": "MICROSECONDS"}
_PATTERN = {
    "yyyy": "%Y", "YYYY": "%Y", "y": "%Y", "yy": "%y", "xxxx": "%G", "ww": "%V", "e": "%u",
    "MM": "%m", "M": "%-m", "MMM": "%b", "MMMM": "%B", "dd": "%d", "d": "%-d", "DDD": "%j", "D": "%-j",
    "HH": "%H", "H": "%-H", "hh": "%I", "h": "%-I", "mm": "%M", "m": "%-M", "ss": "%S", "s": "%-S",
    "SSS": "%g", "SSSSSS": "%f", "a": "%p", "E": "%a", "EEE": "%a", "EEEE": "%A",
    "Z": "%z", "ZZ": "%z", "X": "%z", "XXX": "%z",
}  # fmt: skip
_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")
# Short names mean what Joda-Time takes them for: EST has daylight saving time.
_SHORT_ZONES = {
    "PST": "America/Los_Angeles", "MST": "America/Denver", "CST": "America/Chicago", "EST": "America/New_York",
    "HST": "Pacific/Honolulu", "IST": "Asia/Kolkata", "JST": "Asia/Tokyo", "CTT": "Asia/Shanghai",
    "AET": "Australia/Sydney", "NST": "Pacific/Auckland",
}  # fmt: skip
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def timestamp_path_sql(column: str, kind: pa.DataType, given: Mapping[str, str], where: str) -> str:
    """SQL text of the formatted time of a column; Unsupported, naming the option, for what cannot be computed."""

    def option(suffix: str) -> str | None:
        return next((given[p + suffix] for p in _PREFIXES if given.get(p + suffix)), None)

    output = option("output.dateformat")
    type_ = (option("timestamp.type") or ("SCALAR" if option("timestamp.scalar.time.unit") else "")).upper()
    if not output or not type_:
        missing = "output.dateformat" if not output else "timestamp.type"
        raise Unsupported(
            f"{where}: the TIMESTAMP key generator needs hoodie.keygen.timebased.{missing}, which this table does not "
            "store. Set it as the other writers of the table do."
        )
    shown = option("timezone") or option("output.timezone")
    zone = zone_named(shown, where) if shown else None
    if pa.types.is_string(kind) and type_ in ("DATE_STRING", "MIXED"):
        local = _parsed(column, option, zone, where)
    else:
        local = local_time(_scalar(column, kind, option, type_, where), zone)
    formatted = strftime_pattern(output, where)
    if "%z" in formatted:
        raise Unsupported(f"{where}: an output pattern with a zone ('{output}') is not supported.")
    return f"strftime({local}, {literal(formatted)})"


def strftime_pattern(pattern: str, where: str) -> str:
    """A Joda or Java time pattern as DuckDB's strftime and strptime spell it; Unsupported for a token without twin."""
    translated = []
    for match in _TOKEN.finditer(pattern):
        token = match[0]
        if match[1] is not None:
            translated.append((match[1].replace("''", "'") or "'").replace("%", "%%"))
        elif token[0].isalpha():
            if token not in _PATTERN:
                raise Unsupported(
                    f"{where}: the time pattern '{pattern}' has the token '{token}', which lakesql cannot translate."
                )
            translated.append(_PATTERN[token])
        else:
            translated.append(token.replace("%", "%%"))
    return "".join(translated)


def zone_named(name: str, where: str) -> datetime.tzinfo:
    """A zone by the name that Joda-Time takes; Unsupported for one that nobody knows."""
    if name in ("UTC", "GMT", "Z"):
        return datetime.UTC
    fixed = re.fullmatch(r"GMT([+-])(\d{1,2})(?::?([0-5]\d))?", name)
    if fixed:
        offset = datetime.timedelta(hours=int(fixed[2]), minutes=int(fixed[3] or 0))
        return datetime.timezone(offset if fixed[1] == "+" else -offset)
    try:
        return ZoneInfo(_SHORT_ZONES.get(name, name))
    except (ValueError, KeyError, OSError) as error:
        raise Unsupported(
            f"{where}: time zone '{name}' is not known: {error}. Use a region name such as Europe/Berlin, or an offset "
            "such as GMT+2:00; Hudi takes any other name for GMT without a word."
        ) from error


def local_time(moment: str, zone: datetime.tzinfo | None) -> str:
    """The wall clock of a zone (None: UTC) at a moment, which is a naive UTC timestamp."""
    if zone is None or zone is datetime.UTC:
        return moment
    if isinstance(zone, ZoneInfo):
        return f"timezone({literal(zone.key)}, timezone('UTC', {moment}))"
    return f"({moment} + INTERVAL ({_minutes(zone)}) MINUTE)"


def _moment(local: str, zone: datetime.tzinfo | None) -> str:
    """The opposite of `_local`."""
    if zone is None or zone is datetime.UTC:
        return local
    if isinstance(zone, ZoneInfo):
        return f"timezone('UTC', timezone({literal(zone.key)}, {local}))"
    return f"({local} - INTERVAL ({_minutes(zone)}) MINUTE)"


def _minutes(zone: datetime.tzinfo) -> int:
    offset = zone.utcoffset(_EPOCH)
    assert offset is not None
    return int(offset.total_seconds() // 60)


def _scalar(column: str, kind: pa.DataType, option: Option, type_: str, where: str) -> str:
    """Naive UTC timestamp of a number; NULL counts as the value 1."""
    unit = _KINDS.get(type_)
    if type_ == "SCALAR":
        unit = (option("timestamp.scalar.time.unit") or "SECONDS").upper()
    if unit not in _TO_MILLIS:
        raise Unsupported(f"{where}: timestamp.type {type_} with unit {unit} does not fit a column of type {kind}.")
    if pa.types.is_timestamp(kind):
        number = f"{'epoch_ms' if kind.unit == 'ms' else 'epoch_us'}({column})"
    elif pa.types.is_date(kind):
        number = f"datediff('day', DATE '1970-01-01', {column})"
    elif pa.types.is_integer(kind) or pa.types.is_string(kind):
        # Spark reads such a column as text and writes it back as text, after which the table holds numbers as texts.
        number = f"CAST({column} AS BIGINT)"
    elif pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        number = f"CAST(trunc({column}) AS BIGINT)"
    else:
        raise Unsupported(f"{where}: the TIMESTAMP key generator cannot use a column of type {kind}.")
    return f"make_timestamp_ms(coalesce({number}, 1) {_TO_MILLIS[unit]})"


def _parsed(column: str, option: Option, output: datetime.tzinfo | None, where: str) -> str:
    """Wall clock to show for a text, by the first input pattern that fits."""
    patterns = option("input.dateformat")
    if not patterns:
        raise Unsupported(
            f"{where} holds text, and the TIMESTAMP key generator needs hoodie.keygen.timebased.input.dateformat, which "
            "this table does not store. Set it as the other writers of the table do."
        )
    delimiter = option("input.dateformat.list.delimiter.regex")
    chosen = [p.strip() for p in (re.split(delimiter, patterns) if delimiter is not None else patterns.split(","))]
    given = option("timezone") or option("input.timezone")
    zone = zone_named(given, where) if given else None
    translated = [strftime_pattern(pattern, where) for pattern in chosen]
    text = f"coalesce({column}, {_epoch_text(translated[0], zone)})"
    tries = [_try(text, pattern, zone, output, where) for pattern in translated]
    failed = f"CAST(error({literal(where + ': no input pattern of ' + patterns + ' fits ')} || {column}) AS TIMESTAMP)"
    return f"coalesce({', '.join(tries)}, {failed})"


def _epoch_text(pattern: str, zone: datetime.tzinfo | None) -> str:
    local = _EPOCH.astimezone(zone or datetime.UTC)
    return f"strftime(TIMESTAMP '{local:%Y-%m-%d %H:%M:%S}', {literal(pattern.replace('%z', f'{local:%z}'))})"


def _try(text: str, pattern: str, zone: datetime.tzinfo | None, output: datetime.tzinfo | None, where: str) -> str:
    if "%z" not in pattern:
        local = f"try_strptime({text}, {literal(pattern)})"
        return local if output is None else local_time(_moment(local, zone), output)
    # strptime knows offsets only, Joda also writes Z.
    parsed = f"try_strptime(regexp_replace({text}, 'Z$', '+0000'), {literal(pattern)})"
    if zone is not None or output is not None:
        return local_time(f"timezone('UTC', {parsed})", output or zone)
    if not pattern.endswith("%z"):
        raise Unsupported(f"{where}: an input pattern with a zone that is not its end is not supported.")
    bare = f"regexp_replace({text}, '(Z|[+-][0-9]{{2}}:?[0-9]{{2}})$', '')"
    return f"CASE WHEN {parsed} IS NOT NULL THEN try_strptime({bare}, {literal(pattern.removesuffix('%z'))}) END"
