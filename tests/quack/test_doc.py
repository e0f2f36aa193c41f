"""docs/serve.md: its SQL in the stock shell with sql/serve.sql, at a server that writes, gives the text that follows it."""

import re

from lakesql.serve import GRACE_S, PORT, TOKEN_MIN
from lakesql.sql.served import TOKENS_MAX
from tests.quack.conftest import ROOT

TEXT = (ROOT / "docs/serve.md").read_text()


def test_examples_give_what_the_text_says(serve, tmp_path):
    served = serve("--write", "--warehouse", "lake")
    client = tmp_path / "serve.sql"
    client.write_text((ROOT / "sql/serve.sql").read_text().replace(f"localhost:{PORT}", f"localhost:{served.port}"))
    wanted, script = "", ".mode list\n.separator '  '\n.headers off\n"
    for language, body in re.findall(r"```(\w+)\n(.*?)```", TEXT, re.S):
        if language == "sql":
            script += body
        elif language == "text":
            wanted += body
    done = served.shell(script, "-init", str(client))
    assert "Error" not in done.stderr, done.stderr
    out = re.sub(r" at /\S+/lake/trips\.", "", done.stdout)
    kept = [
        line for line in out.splitlines() if line and line not in ("true", "Success") and line[0] not in "┌│├└\x1b "
    ]
    assert kept == wanted.splitlines()


def test_numbers_are_those_of_the_code():
    assert f"at {PORT};" in TEXT
    assert f"have {GRACE_S:g} seconds" in TEXT
    assert f"last {TOKENS_MAX} tokens" in TEXT
    assert f"{TOKEN_MIN} characters or more" in TEXT
