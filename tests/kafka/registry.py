"""A schema registry for tests: both protocols on one port, on Python's own HTTP server (kafka-ingestion 6.3).

Confluent: `/schemas/ids/7`, `/schemas/guids/<guid>`, `/subjects/t-value/versions/latest`, POST of a schema. LinkedIn:
`/id=<md5>`, `/latest_with_type=t`, POST of a form field `schema`. `TestRegistry.fail` makes it answer with a status,
`slow_s` late, and `requests` holds what was asked for. Schemas are kept in memory; nothing is checked about them.
"""

import hashlib
import json
import threading
import time
import uuid
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, unquote


@dataclass
class Entry:
    """One registered schema."""

    number: int
    text: str
    kind: str = "AVRO"
    references: tuple[dict[str, Any], ...] = ()

    @property
    def md5(self) -> str:
        return hashlib.md5(self.text.encode(), usedforsecurity=False).hexdigest()

    @property
    def guid(self) -> str:
        return str(uuid.UUID(self.md5))


@dataclass
class TestRegistry:
    """Use as a context manager: `with TestRegistry() as registry: number = registry.register("t", schema)`.

    fail           status to answer every request with, None: answer truly
    fail_times     how many requests `fail` lasts; -1: until it is taken back
    slow_s         seconds before each answer
    authorization  value that the header of this name must have, else 401
    """

    __test__ = False

    fail: int | None = None
    fail_times: int = -1
    slow_s: float = 0.0
    authorization: str | None = None
    entries: dict[int, Entry] = field(default_factory=dict)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)

    def __enter__(self) -> "TestRegistry":
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def counts(self) -> Counter[str]:
        return Counter(self.requests)

    def register(
        self, topic: str, schema: Any, *, part: str = "value", kind: str = "AVRO", references: Any = ()
    ) -> int:
        """A schema (parsed JSON or its text) as the newest one of the topic; its number."""
        return self.add(f"{topic}-{part}", schema, kind, references).number

    def add(self, subject: str, schema: Any, kind: str = "AVRO", references: Any = ()) -> Entry:
        text = schema if isinstance(schema, str) and schema[:1] in '{["' else json.dumps(schema)
        same = [e for e in self.entries.values() if (e.text, e.kind) == (text, kind)]
        entry = same[0] if same else Entry(len(self.entries) + 1, text, kind, tuple(references))
        self.entries[entry.number] = entry
        versions = self.subjects.setdefault(subject, [])
        if entry.number not in versions:
            versions.append(entry.number)
        return entry

    def md5(self, number: int) -> str:
        """The LinkedIn id of a schema: 32 hexadecimal digits."""
        return self.entries[number].md5

    def guid(self, number: int) -> str:
        return self.entries[number].guid

    # ------------------------------------------------------------ answers
    def answer(self, path: str) -> tuple[int, dict[str, str], str]:
        parts = [unquote(p) for p in path.strip("/").split("/")]
        match parts:
            case [one] if one.startswith("id="):
                return self._linkedin([e for e in self.entries.values() if e.md5 == one[3:]])
            case [one] if one.startswith("latest_with_type="):
                return self._linkedin([self.entries[n] for n in self.subjects.get(f"{one[17:]}-value", [])[-1:]])
            case ["schemas", "ids", number]:
                return self._confluent([e for e in self.entries.values() if str(e.number) == number], 40403, {})
            case ["schemas", "guids", guid]:
                return self._confluent([e for e in self.entries.values() if e.guid == guid], 40403, {})
            case ["subjects", subject, "versions", version]:
                versions = self.subjects.get(subject, [])
                number = versions[-1:] if version == "latest" else versions[int(version) - 1 : int(version)]
                more = {"subject": subject, "version": len(versions) if version == "latest" else int(version)}
                return self._confluent([self.entries[n] for n in number], 40401, more)
        return 404, {}, json.dumps({"error_code": 404, "message": "no such path"})

    def _linkedin(self, found: list[Entry]) -> tuple[int, dict[str, str], str]:
        return (200, {}, found[0].text) if found else (404, {}, "unknown schema")

    def _confluent(self, found: list[Entry], code: int, more: dict[str, Any]) -> tuple[int, dict[str, str], str]:
        if not found:
            return 404, {}, json.dumps({"error_code": code, "message": "not found"})
        entry = found[0]
        body = {"schema": entry.text, "guid": entry.guid} | more | ({"id": entry.number} if more else {})
        if entry.kind != "AVRO":
            body["schemaType"] = entry.kind
        if entry.references:
            body["references"] = list(entry.references)
        return 200, {}, json.dumps(body)

    def post(self, path: str, body: str) -> tuple[int, dict[str, str], str]:
        parts = [unquote(p) for p in path.strip("/").split("/")]
        match parts:
            case ["subjects", subject, "versions"]:
                given = json.loads(body)
                entry = self.add(subject, given["schema"], given.get("schemaType", "AVRO"), given.get("references", ()))
                return 200, {}, json.dumps({"id": entry.number})
        schema = parse_qs(body).get("schema", [""])[0]
        if not schema.startswith("{"):
            return 400, {}, "a form field schema is missing"
        entry = self.add(f"{json.loads(schema)['name']}-value", schema)
        return 200, {"Location": f"/id={entry.md5}"}, ""


def _handler(registry: TestRegistry) -> type[BaseHTTPRequestHandler]:
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply(lambda: registry.answer(self.path))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            self._reply(lambda: registry.post(self.path, body))

        def _reply(self, answer: Any) -> None:
            with lock:
                registry.requests.append(self.path)
                failing = registry.fail if registry.fail_times else None
                if failing is not None and registry.fail_times > 0:
                    registry.fail_times -= 1
                allowed = registry.authorization in (None, self.headers.get("Authorization"))
            time.sleep(registry.slow_s)
            status, headers, text = (failing, {}, "failing") if failing is not None else answer()
            if not allowed:
                status, headers, text = 401, {}, "who are you"
            data = text.encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            with suppress(OSError):  # the client did not wait
                self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    return Handler
