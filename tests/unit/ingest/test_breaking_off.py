"""Ctrl-C and SIGTERM while threads sit in a call that does not end: the run ends at once and nothing is written."""

import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

import lakesql
from lakesql.ingest.run import run
from tests.kafka.produce import produce
from tests.unit.ingest.fakes import Broker, FakeClient, FakeDecoder, FakeSink, job, parts

PROMPT_S = 2.0
PROCESS_S = 5.0  # the interpreter's own end included, on a busy machine; the registry would be waited for 30 s


@pytest.fixture
def ctrl_c():
    """Presses the keys after so many seconds."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


class Hanging(FakeDecoder):
    """A registry that does not answer before `free` is set."""

    def __init__(self, free):
        super().__init__()
        self.free, self.left = free, threading.Event()

    def decode(self, batch):
        self.free.wait(20)
        self.left.set()
        return super().decode(batch)


@pytest.mark.parametrize("interval", [None, 0.05])
def test_a_thread_in_the_registry_is_left_and_writes_nothing_later(ctrl_c, interval):
    source, sink, free = Broker().fill("a", 0, 10), FakeSink(), threading.Event()
    decoder = Hanging(free)
    given = parts(FakeClient(source), sink)
    object.__setattr__(given, "decoder", lambda _: decoder)
    sink.faults.hit = lambda name: taken.append(name) if name == "take" else None
    taken = []
    ctrl_c(0.2)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run(job(commit_interval_s=interval), given)
    assert time.monotonic() - began < PROMPT_S
    assert sink.discarded == 1
    free.set()
    assert decoder.left.wait(5)
    for thread in threading.enumerate():
        if thread.name.startswith("lakesql-"):
            thread.join(5)
    assert (taken, sink.states, sink.all()) == ([], [], [])


def test_a_thread_in_a_call_of_the_broker_is_left(ctrl_c):
    free = threading.Event()
    client = FakeClient(Broker().fill("a", 0, 10), during=lambda: free.wait(20))
    sink = FakeSink()
    ctrl_c(0.2)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run(job(), parts(client, sink))
    assert time.monotonic() - began < PROMPT_S
    free.set()
    assert (sink.states, sink.all()) == ([], [])


def test_an_interrupt_within_duckdb_at_the_commit_is_no_failed_commit():
    class Query(FakeSink):
        def begin(self, before, run):
            load = super().begin(before, run)

            def interrupted(_):
                raise RuntimeError("Query interrupted")

            load.commit = interrupted
            return load

    with pytest.raises(KeyboardInterrupt):
        run(job(), parts(FakeClient(Broker().fill("a", 0, 3)), Query()))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_command_ends_while_the_registry_is_silent(number, code, mock_kafka, tmp_path):
    mock_kafka.create("t")
    produce(mock_kafka.brokers, "t", [b"\0\0\0\0\1x"])
    with socket.create_server(("127.0.0.1", 0)) as registry:
        (tmp_path / "job.pull").write_text(
            f"kafka.brokers={mock_kafka.brokers}\ntopic.whitelist=t\nbootstrap.with.offset=earliest\n"
            "lakesql.format=avro\nlakesql.wire=confluent\n"
            f"kafka.schema.registry.url=http://127.0.0.1:{registry.getsockname()[1]}\n"
        )
        command = [sys.executable, "-m", "lakesql", "ingest", "job.pull", "--into", "t"]
        with subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            asked, _ = registry.accept()
            began = time.monotonic()
            process.send_signal(number)
            _, err = process.communicate(timeout=20)
            took = time.monotonic() - began
            asked.close()
    assert (process.returncode, took < PROCESS_S, "Traceback" in err) == (code, True, False), (err, took)
    assert not (tmp_path / "warehouse" / "t").exists()


def test_ctrl_c_while_a_connection_is_made_is_an_interrupt(ctrl_c, tmp_path):
    lakesql.connect(warehouse=tmp_path).close()  # the first one imports
    began = time.perf_counter()
    lakesql.connect(warehouse=tmp_path).close()
    whole = time.perf_counter() - began
    interrupted = 0
    for part in range(1, 20):
        try:
            ctrl_c(whole * part / 20)
            con = lakesql.connect(warehouse=tmp_path)
            ctrl_c(0)
            con.close()
        except KeyboardInterrupt:
            interrupted += 1
    assert interrupted
