"""Stock DuckDB shells at a `lakesql serve`: what they read, write, may not do, and what happens when it stops."""

import signal
import threading
import time
from pathlib import Path

import pytest

import lakesql
from tests.quack.conftest import ROOT, TOKEN

CREATE = (
    "CREATE TABLE trips (id INT, city STRING, fare DOUBLE) USING hudi TBLPROPERTIES (type = 'mor', primaryKey = 'id')"
)
INSERT = "INSERT INTO trips VALUES (1, 'oslo', 9.5), (2, 'rome', 4.0)"
MERGE = (
    "MERGE INTO trips USING (VALUES (2, 'rome', 6.0), (3, 'bonn', 1.5)) s(id, city, fare) ON trips.id = s.id "
    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
)


@pytest.fixture(autouse=True)
def trips(tmp_path: Path) -> Path:
    with lakesql.connect(warehouse=str(tmp_path / "warehouse")) as con:
        con.execute(CREATE)
        con.execute(INSERT)
        con.execute("UPDATE trips SET fare = 5.0 WHERE id = 2")
    return tmp_path


def test_shell_reads_tables_views_and_functions_and_nothing_changes(serve, trips):
    served = serve()
    done = served.shell(
        served.attach
        + "SELECT id, city, fare FROM lake.trips ORDER BY id; SELECT fare FROM lake.trips_ro WHERE id = 2;"
    )
    assert (done.stdout, done.stderr) == ("1,oslo,9.5\n2,rome,5.0\n4.0\n", "")
    assert served.ask(
        "SELECT operation FROM hudi_timeline('trips') ORDER BY instant",
        "SELECT count(*) FROM trips TIMESTAMP AS OF now()",
        "SELECT action FROM (SHOW TABLES) RIGHT JOIN (SELECT 'none' AS action) ON false",
        "CALL show_commits(table => 'trips', limit => 1)",
    )[:4] == ["INSERT", "UPSERT", "2", "none"]
    refused = {
        MERGE: "MERGE is refused: this server only reads; whoever runs it allows changes with: lakesql serve --write.",
        "CALL run_compaction(op => 'run', table => 'trips')": "A change is refused: this server only reads",
        f"COPY trips TO '{trips}/x.csv'": "COPY is refused",
        "EXPLAIN ANALYZE CREATE TABLE x AS SELECT 1": "CREATE is refused",
        "SELECT 1; CREATE TABLE x (a INT)": "CREATE is refused",
        "SET threads = 1": "SET threads is refused",
        f"FROM quack_stop('quack:localhost:{served.port}')": "quack_stop(...) is refused",
        "LOAD json": "LOAD is refused",
    }
    done = served.shell(served.attach + "".join(f"FROM lake.query($q${query}$q$);\n" for query in refused))
    for text in refused.values():
        assert text in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    done = served.shell(served.attach + "CREATE TABLE lake.x (a INT);\nINSERT INTO lake.trips VALUES (1);")
    assert "CREATE is refused" in done.stderr
    assert "is not an table" in done.stderr  # the shell's own words
    assert served.stop() == (0, AnyGreeting)
    assert not (trips / "x.csv").exists()


class _AnyGreeting:
    """Equal to what a server prints that is started and stopped; the token is nowhere in it."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and other.endswith("Stopping.\nStopped.\n") and TOKEN not in other

    __hash__ = None  # type: ignore[assignment]


AnyGreeting = _AnyGreeting()


def test_shell_with_the_client_file_merges_its_own_rows_once(serve, trips):
    served = serve("--write")
    client = trips / "serve.sql"
    client.write_text(
        (ROOT / "sql/serve.sql").read_text().replace("quack:localhost:9494", f"quack:localhost:{served.port}")
    )
    text = f"""
        FROM hudi('{MERGE.replace("'", "''")}');
        EXPLAIN FROM hudi_once('load-1', 'INSERT INTO trips VALUES (4, ''wien'', 7.0)');
        CREATE VIEW w AS FROM hudi_once('load-1', 'INSERT INTO trips VALUES (4, ''wien'', 7.0)');
        SELECT rows_inserted FROM w;
        FROM hudi_once('load-1', 'INSERT INTO trips VALUES (5, ''wien'', 7.0)');
        CREATE TABLE mine AS SELECT 9 AS id, 'kyiv' AS city, 3.0::DOUBLE AS fare;
        CREATE TABLE lake.staging AS FROM mine;
        INSERT INTO lake.staging VALUES (10, 'lviv', 2.0);
        FROM hudi('MERGE INTO trips USING staging s ON trips.id = s.id WHEN NOT MATCHED THEN INSERT * RETURNING id, {{''fare'': fare}}');
        FROM hudi('INSERT INTO trips SELECT * FROM nope');
        SELECT id, fare FROM lake.trips ORDER BY id;
        SELECT count(*) FROM hudi_scan('trips', as_of := '2000-01-01');
        FROM hudi('BEGIN');
        FROM hudi('DELETE FROM trips');
        FROM hudi('ROLLBACK');
    """
    done = served.shell(text, "-init", str(client), "-csv", "-noheader")
    lines = done.stdout.splitlines()
    assert ",upsert,1,1,0,0," in done.stdout
    assert [line for line in lines if line.startswith(("9,", "10,"))][:2] == [
        "9,\"{'fare': 3.0}\"",
        "10,\"{'fare': 2.0}\"",
    ]
    assert [line for line in lines if line[:1].isdigit() and line.count(",") == 1 and "{" not in line] == [
        "1,9.5", "2,6.0", "3,1.5", "4,7.0", "9,3.0", "10,2.0",
    ]  # fmt: skip
    assert "token 'load-1' belongs to another statement; nothing was run" in done.stderr
    assert "Table with name nope does not exist" in done.stderr
    assert "DELETE inside a transaction" in done.stderr
    assert "Traceback" not in done.stderr


def test_wrong_token_and_wrong_arguments_say_so(serve):
    served = serve()
    done = served.shell(served.attach.replace(TOKEN, "another token"))
    assert "Authentication failed" in done.stderr
    assert TOKEN not in done.stderr
    assert "Authentication failed" in served.shell(served.attach.replace(TOKEN, "naïve")).stderr
    with pytest.raises(
        pytest.fail.Exception, match=f"Error: port {served.port} of localhost is taken: .*another --port"
    ):
        serve(port=served.port)
    assert served.stop(signal.SIGINT) == (0, AnyGreeting)


def test_eight_shells_read_and_write_at_once(serve):
    served = serve("--write")
    failed: list[str] = []

    def write(number: int) -> None:
        statements = [f"INSERT INTO trips VALUES ({number * 100 + n}, 'shell {number}', {n})" for n in range(3)]
        queries = [f"FROM lake.query($q${s}$q$); SELECT count(*) > 0 FROM lake.trips;" for s in statements]
        done = served.shell(
            served.attach + "FROM lake.query('SET hoodie.write.lock.client.num_retries = 30');" + "".join(queries)
        )
        if done.stderr or done.stdout.count("insert") != 3:
            failed.append(f"{number}: {done.stderr}{done.stdout}")

    threads = [threading.Thread(target=write, args=(n,)) for n in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    rows = served.ask("SELECT id, city, fare FROM trips WHERE id > 99 ORDER BY id")
    assert rows == [f"{s * 100 + n},shell {s},{n}.0" for s in range(1, 9) for n in range(3)]
    assert served.stop() == (0, AnyGreeting)


def test_stopping_lets_a_running_read_end(serve):
    served = serve("--grace", "60")
    with served.start() as shell:
        assert shell.stdin is not None
        slow = "SELECT count(*) FROM range(30000) a, range(20000) b WHERE (a.range * b.range) % 7 = 3"
        shell.stdin.write(served.attach + f"FROM lake.query($q$ {slow} $q$);\n")
        shell.stdin.flush()
        time.sleep(1)
        served.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert served.process.poll() is None  # it waits
        out, err = shell.communicate(timeout=60)
        served.process.communicate(timeout=30)
    assert served.process.returncode == 0
    assert err == ""
    assert int(out) > 0


def test_stopping_interrupts_a_long_change_which_rolls_back(serve, trips):
    served = serve("--write")
    slow = "INSERT INTO trips SELECT 1000 + (range % 7)::INT, 'x', sum(a.range) FROM range(100000000) a, range(1000) b(n) GROUP BY ALL"
    with served.start() as shell:
        assert shell.stdin is not None
        shell.stdin.write(served.attach + f"FROM lake.query($q${slow}$q$);\n")
        shell.stdin.flush()
        time.sleep(1)  # were the statement not there yet, it would be refused: also an error, also nothing written
        served.process.send_signal(signal.SIGTERM)
        served.process.send_signal(signal.SIGINT)
        out, _ = served.process.communicate(timeout=30)
        assert (served.process.returncode, out) == (0, AnyGreeting)
        _, err = shell.communicate(timeout=30)
    assert "Error" in err
    with lakesql.connect(warehouse=str(trips / "warehouse")) as con:
        assert con.execute("SELECT count(*) FROM trips").fetchall() == [(2,)]
