"""Time travel on names and tables by path become calls of hudi_scan; nothing else changes."""

import pytest

from lakesql.sql.rewrite import rewrite


def resolve(name):
    if len(name) == 2 and name[0].lower() == "hudi":
        return name[1]
    return "/w/trips" if name[-1].lower() == "trips" and name[:-1] in ((), ("main",)) else None


TRIPS = "hudi_scan('/w/trips', as_of := ({}))"


@pytest.mark.parametrize(
    ("text", "result"),
    [
        (
            "FROM trips TIMESTAMP AS OF '2024-01-01' WHERE x",
            f'FROM {TRIPS.format(chr(39) + "2024-01-01" + chr(39))} AS "trips" WHERE x',
        ),
        ("FROM trips VERSION AS OF 20240101000000000", f'FROM {TRIPS.format("20240101000000000")} AS "trips"'),
        (
            "FROM trips FOR SYSTEM_TIME AS OF now() - INTERVAL 1 DAY t",
            f"FROM {TRIPS.format('now() - INTERVAL 1 DAY')} t",
        ),
        ("FROM main.trips timestamp as of ?::DATE AS t, b", f"FROM {TRIPS.format('?::DATE')} AS t, b"),
        (
            "FROM trips AT (TIMESTAMP => now() - INTERVAL '1' DAY)",
            f'FROM {TRIPS.format("now() - INTERVAL " + chr(39) + "1" + chr(39) + " DAY")} AS "trips"',
        ),
        (
            "FROM trips a AT (VERSION => '1') JOIN b USING (id)",
            f'FROM {TRIPS.format(chr(39) + "1" + chr(39))} AS "a" JOIN b USING (id)',
        ),
        ("FROM trips AS a AT (VERSION => 5)", f'FROM {TRIPS.format("5")} AS "a"'),
        ("(SELECT * FROM trips VERSION AS OF (1 + 1)) x", f'(SELECT * FROM {TRIPS.format("(1 + 1)")} AS "trips") x'),
        (
            'SELECT * FROM hudi.`/d/x` t JOIN hudi."/e" ON 1',
            "SELECT * FROM hudi_scan('/d/x') t JOIN hudi_scan('/e') ON 1",
        ),
        (
            "CREATE VIEW v AS FROM trips VERSION AS OF '1'",
            f'CREATE VIEW v AS FROM {TRIPS.format(chr(39) + "1" + chr(39))} AS "trips"',
        ),
    ],
)
def test_time_travel_is_rewritten(text, result):
    assert rewrite(text, resolve) == result


def test_two_references_are_rewritten_each():
    text = "FROM trips VERSION AS OF 1 a JOIN trips VERSION AS OF 2 b ON true"
    assert rewrite(text, resolve) == f"FROM {TRIPS.format('1')} a JOIN {TRIPS.format('2')} b ON true"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM other TIMESTAMP AS OF '2024'",
        "SELECT * FROM other AT (VERSION => 3)",
        "SELECT 'trips TIMESTAMP AS OF 1' -- trips VERSION AS OF 2",
        "SELECT timestamp AS of FROM trips",
        "SELECT x AT TIME ZONE 'utc' FROM trips",
        "SELECT hudi.x FROM hudi",
        "SELECT * FROM elsewhere.trips VERSION AS OF 1",
    ],
)
def test_everything_else_is_the_same_text(text):
    assert rewrite(text, resolve) == text
