"""Faults of three nodes, each with the alerts that it fires."""

import contextlib
import resource
import shutil
import signal
import socket
import subprocess
import threading

import load
from ring import configure, wait_for


class Fault:
    """A fault: what it is, its alerts, and the context in which it lasts."""

    def __init__(self, text, alerts, during, needs=()):
        self.text, self.alerts, self.during, self.needs = text, alerts, during, needs

    def lacking(self):
        """Programs that it needs and that are not here."""
        return [program for program in self.needs if not shutil.which(program)]


@contextlib.contextmanager
def killed(nodes):
    """Requests need a dead node, and more writes wait for it than hints may hold."""
    nodes[2].end(signal.SIGKILL)
    load.insert_many(nodes[0], 40, 64 << 10)
    load.insert_at_once(nodes[0], 4, 5)
    yield
    nodes[2].start()


@contextlib.contextmanager
def paused(nodes):
    """Requests wait for a node that stands still, and more of them than can be sent to it."""
    nodes[2].send(signal.SIGSTOP)
    load.insert_at_once(nodes[0], 20, 8, 128 << 10)
    nodes[2].send(signal.SIGCONT)
    yield


@contextlib.contextmanager
def damaged(nodes):
    """A compaction meets a block whose checksum is wrong."""
    node = nodes[1]
    for first in (0, 100):
        load.insert_many(node, 100, 1000, first=first, family="Standard1")
        node.nodetool("flush", load.KEYSPACE, "Standard1")
    node.end()
    for table in (node.directory / "data" / load.KEYSPACE).glob("Standard1*.sst"):
        with open(table, "r+b") as file:
            file.seek(16)
            file.write(b"\xa5" * 64)
    node.start()
    node.nodetool("compact", load.KEYSPACE, "Standard1")
    yield


@contextlib.contextmanager
def few_files(nodes):
    """Clients need more files than may be open, and idle connections give way."""
    node, limit = nodes[0], 1600
    # The node keeps 256 files for itself, so that clients fill more than 80 % of this limit.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    subprocess.run(["prlimit", "--pid", str(node.pid), f"--nofile={limit}:"], check=True)
    address = (node.address, node.ports.thrift)
    with contextlib.ExitStack() as connections:
        for _ in range(limit):
            with contextlib.suppress(OSError):
                connections.enter_context(socket.create_connection(address, timeout=5))
        yield
    subprocess.run(["prlimit", "--pid", str(node.pid), f"--nofile={4 * limit}:"], check=True)


@contextlib.contextmanager
def different(nodes):
    """A node has a column family of its own, and a clock that is ahead."""
    node = nodes[2]
    before = node.config.read_text()
    family = '<ColumnFamily Name="Own" CompareWith="BytesType"/>'
    node.end()
    node.config.write_text(before.replace("</Keyspace>", family + "</Keyspace>", 1))
    node.start("faketime", "-f", "+30s")
    yield
    node.end()
    node.config.write_text(before)
    node.start()


@contextlib.contextmanager
def old_certificate(nodes):
    """A port has TLS, and its certificate ends soon."""
    node = nodes[1]
    before = node.config.read_text()
    certificate, key = (node.directory / name for name in ("node.pem", "node.key"))
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "7",
         "-subj", "/CN=node", "-out", certificate, "-keyout", key],
        check=True, capture_output=True,
    )
    settings = {"TlsCertificateFile": certificate, "TlsKeyFile": key, "CqlTls": "optional"}
    node.end()
    node.config.write_text(configure(before, settings))
    node.start()
    yield
    node.end()
    node.config.write_text(before)
    node.start()


@contextlib.contextmanager
def slow_disk(nodes):
    """Each sync takes 700 ms longer."""
    delayed = "fsync,fdatasync"
    tracer = subprocess.Popen(
        ["strace", "-f", "-q", "-p", str(nodes[0].pid), "-e", f"trace={delayed}",
         "-e", f"inject={delayed}:delay_exit=700000"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    yield
    tracer.terminate()
    tracer.wait()


@contextlib.contextmanager
def full_disk(nodes):
    """A file system of a node fills up: no room for the commit log, nor for compactions."""
    node = nodes[2]
    node.end()
    kept = node.directory.with_name("kept")
    node.directory.rename(kept)
    node.directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=160m", "tmpfs", node.directory], check=True)
    try:
        shutil.copytree(kept, node.directory, dirs_exist_ok=True)
        node.start()
        # Compactions are off until there is no room for them.
        node.nodetool("setcompactionthreshold", "4", "0")
        for _ in range(10):
            for family in ("Standard1", "Standard2"):
                load.insert_many(node, 100, 4000, family=family)
            node.nodetool("flush", load.KEYSPACE)
        with _kept_full(node.directory):
            node.nodetool("setcompactionthreshold", "2", "2")
            # What room there is goes to writes, until they are refused for want of more.
            with _repeated(lambda: load.insert_many(node, 100, 4000)):
                yield
        wait_for("the node has recovered", node.serves)
    finally:
        node.end()
        subprocess.run(["umount", node.directory], check=True)
        node.directory.rmdir()
        kept.rename(node.directory)


@contextlib.contextmanager
def _kept_full(directory):
    """Fills a file system but for a little, and fills what is freed."""
    path = directory / "filler"
    with open(path, "wb", buffering=0) as filler:

        def fill():
            while shutil.disk_usage(directory).free > 100 << 10:
                filler.write(bytes(32 << 10))

        try:
            with _repeated(fill):
                wait_for("the disk is full", lambda: shutil.disk_usage(directory).free < 200 << 10)
                yield
        finally:
            path.unlink()


@contextlib.contextmanager
def _repeated(work):
    """Does something again and again meanwhile, whether or not it fails."""
    end = threading.Event()

    def run():
        while not end.wait(0.01):
            with contextlib.suppress(*load.FAILURES):
                work()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


FAULTS = [
    Fault("a node is killed", [
        "AlexandraNodeDown", "AlexandraNodeUnreachable", "AlexandraHintsWait",
        "AlexandraHintsLost", "AlexandraRequestsFail",
    ], killed),
    Fault("a node stands still for some seconds",
          ["AlexandraRequestsSlow", "AlexandraMessagesDropped"], paused),
    Fault("an SSTable is damaged", ["AlexandraDamagedData", "AlexandraCompactionsFail"], damaged),
    Fault("few files may be opened",
          ["AlexandraTooManyOpenFiles", "AlexandraClientsTurnedAway"], few_files, ["prlimit"]),
    Fault("a node has another schema and another time",
          ["AlexandraSchemasDiffer", "AlexandraClockWrong"], different, ["faketime"]),
    Fault("a certificate ends soon", ["AlexandraCertificateEnds"], old_certificate, ["openssl"]),
    Fault("syncs take long", ["AlexandraCommitLogSlow"], slow_disk, ["strace"]),
    Fault("a disk fills up", [
        "AlexandraDiskNearlyFull", "AlexandraTrouble", "AlexandraCompactionsBehind",
    ], full_disk, ["mount"]),
]
