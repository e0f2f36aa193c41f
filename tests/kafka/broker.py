"""Apache Kafka for tests: `Broker(folder)` is one node, broker and controller, on free ports of this machine.

Needs Java 17 and the jars that `make kafka` fetches. Starts in about eight seconds, so a test run shares one (fixture
`kafka_broker`). The process ends with its owner, even when that one is killed.
"""

import random
import shutil
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.kafka import tls

ROOT = Path(__file__).resolve().parents[2]
JARS = ROOT / ".kafka" / "lib"
START_S, STOP_S = 90.0, 20.0
JVM = ("-Xms96m", "-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
CLUSTER = "bGFrZXNxbC1icm9rZXItMQ"  # any sixteen bytes
USER, PASSWORD = "reader", "open-sesame"
READY = "Kafka Server started"

PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{sasl},SSL://127.0.0.1:{ssl},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{sasl},SSL://127.0.0.1:{ssl}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
  user_{user}="{password}";
listener.name.ssl.ssl.client.auth=required
listener.name.ssl.ssl.keystore.type=PEM
listener.name.ssl.ssl.keystore.location={keys}
listener.name.ssl.ssl.truststore.type=PEM
listener.name.ssl.ssl.truststore.location={trusted}
log.dirs={data}
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=500
num.partitions=1
num.network.threads=2
num.io.threads=2
background.threads=2
log.cleaner.dedupe.buffer.size=2097152
log.cleaner.backoff.ms=500
log.retention.check.interval.ms=500
log.initial.task.delay.ms=500
log.segment.bytes=1048576
log.segment.delete.delay.ms=500
"""


def missing() -> str | None:
    """What the broker lacks on this machine; None when it can run."""
    if shutil.which("java") is None:
        return "no java on the path"
    if not any(JARS.glob("kafka_2.13-*.jar")):
        return f"{JARS.relative_to(ROOT)} has no Kafka (make kafka)"
    return tls.missing()


class Broker:
    """A running broker; a context manager. `brokers` is its bootstrap list, `log` what it printed.

    The bootstrap list `guarded` wants a login (SASL PLAIN, `USER` and `PASSWORD`), `encrypted` speaks TLS and wants the
    certificate of a client that `authority` has signed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "kafka.log"
        port, sasl, ssl, controller = _free_ports(4)
        self.brokers = f"127.0.0.1:{port}"
        self.guarded = f"127.0.0.1:{sasl}"
        self.encrypted = f"127.0.0.1:{ssl}"
        self.authority = tls.Authority(folder / "tls")
        certificate, key = self.authority.sign("server")
        keys = folder / "tls" / "server.pem"
        keys.write_bytes(key.read_bytes() + certificate.read_bytes())
        self._properties = folder / "server.properties"
        data = folder / "data"
        text = PROPERTIES.format(port=port, sasl=sasl, ssl=ssl, controller=controller, data=data, user=USER,
                                 password=PASSWORD, keys=keys, trusted=self.authority.certificate)  # fmt: skip
        self._properties.write_text(text)
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._format()
        self.start()

    def _format(self) -> None:
        command = [*_java(), "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(self._properties)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the broker's folder could not be formatted: {done.stdout}{done.stderr}")

    def start(self) -> None:
        """Start and wait until it serves; after `stop` with the same data and ports."""
        begun = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            command = [*_java(), "kafka.Kafka", str(self._properties)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        # When this process goes, however it goes, its end of the pipe closes and the guard ends the broker.
        self._guard = subprocess.Popen(
            ["sh", "-c", f"read -r _; kill -9 {self._process.pid}"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + START_S
        while READY not in self._said(begun):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop(kill=True)
                raise RuntimeError(f"the broker did not start: {self._said(begun)[-4000:]}")
            time.sleep(0.05)

    def _said(self, begun: int) -> str:
        with self.log.open("rb") as log:
            log.seek(begun)
            return log.read().decode(errors="replace")

    def stop(self, *, kill: bool = False) -> None:
        """End it: in order, or `kill` as a crash would. Its data stays."""
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
            self._guard = None
        if self._process is not None:
            if kill:
                self._process.kill()
            else:
                self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def restart(self, *, kill: bool = False) -> None:
        self.stop(kill=kill)
        self.start()

    def admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.brokers, "log_level": "3"})

    def create(self, topic: str, partitions: int = 1, **config: str) -> str:
        """Make a topic and wait for it; `config` under Kafka's names with underscores for dots. Its name comes back."""
        from confluent_kafka.admin import NewTopic

        settings = {name.replace("_", "."): value for name, value in config.items()}
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=settings)
        admin = self.admin()  # must outlive its answer
        admin.create_topics([new])[topic].result(30)
        self._await(admin, topic, partitions)
        return topic

    def delete(self, topic: str) -> None:
        """Delete a topic; made again it has another id."""
        admin = self.admin()  # must outlive its answer
        admin.delete_topics([topic])[topic].result(30)
        self._await(admin, topic, 0)

    def grow(self, topic: str, partitions: int) -> None:
        """Add partitions until there are so many."""
        from confluent_kafka.admin import NewPartitions

        admin = self.admin()  # must outlive its answer
        admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)
        self._await(admin, topic, partitions)

    @staticmethod
    def _await(admin: Any, topic: str, partitions: int) -> None:
        """Wait until the broker itself has heard of it from the controller: so many partitions have a leader."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            found = admin.list_topics(timeout=10).topics.get(topic)
            led = [one for one in found.partitions.values() if one.leader >= 0] if found else []
            if len(led) == partitions:
                return
            time.sleep(0.02)
        raise RuntimeError(f"{topic} has not come to {partitions} partitions within half a minute")

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete what lies before this offset, as retention does."""
        from confluent_kafka import TopicPartition

        at = TopicPartition(topic, partition, before)
        admin = self.admin()
        for done in admin.delete_records([at]).values():
            done.result(30)

    def __enter__(self) -> "Broker":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(kill=True)


def _java() -> list[str]:
    log = "-Dorg.slf4j.simpleLogger.defaultLogLevel=info"
    return [shutil.which("java") or "java", *JVM, log, "-cp", f"{JARS}/*"]


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now, below those that the system gives to connections."""
    found: list[int] = []
    for port in random.sample(range(15_000, 32_000), 1000):
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) != 0:
                found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError("no free ports for the broker")
