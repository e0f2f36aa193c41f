"""docs/ingest/formats.md names every setting that the decoders read, and its function decodes."""

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import lakesql
from lakesql.ingest.decode import decoder_factory
from lakesql.ingest.model import Format
from tests.unit.ingest.messages import bad, batch, rows

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "ingest" / "formats.md").read_text()
CODE = ["registry", "decode_avro", "decode_json", "decode_python", "keys", "envelope"]


def test_every_setting_of_the_decoders_is_on_the_page() -> None:
    names: set[str] = set()
    for module in CODE:
        code = (ROOT / "lakesql" / "ingest" / f"{module}.py").read_text()
        names |= set(re.findall(r'"(lakesql\.[a-z.]*[a-z]|kafka\.schema\.registry\.[a-z.]*[a-z])"', code))
    assert len(names) > 12
    assert {n for n in names if n not in TEXT} == set()


def test_the_function_on_the_page_decodes() -> None:
    body = re.search(r"    def decode\(batch, metrics\):.*\n((?:        .*\n)+)", TEXT)
    assert body is not None
    code = "def decode(batch, metrics):\n" + body.group(1).replace("...", "pyarrow.nulls(len(size), pyarrow.string())")
    names: dict[str, object] = {"pyarrow": pa}
    assert pc is pa.compute
    exec(code, names)
    lakesql.register_decoder("page", names["decode"])  # type: ignore[arg-type]
    found = decoder_factory(Format("python", options={"lakesql.decoder": "page"}))().decode(batch(["a", "bcd"]))
    assert [r["size"] for r in rows(found.rows)] == [1, 3]
    assert bad(found) == {}
