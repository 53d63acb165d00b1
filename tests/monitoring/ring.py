"""Three nodes of a development cluster, and a Prometheus that scrapes them."""

import http.client
import json
import os
import random
import re
import signal
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
NODES = 3

# Seconds that a start, or an alert, may take on a busy machine.
PATIENCE = 120

# Short timeouts and small files, so that faults show soon.
SETTINGS = {
    "RpcTimeoutInMillis": 1000,
    "CommitLogSyncPeriodInMS": 500,
    "CommitLogRotationThresholdInMB": 1,
    "MemoryBudgetInMB": 128,
    "HintMaxSizeInMB": 1,
}

PROMETHEUS = """
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [alerts.yml]
scrape_configs:
  - job_name: alexandra
    static_configs: [{targets: [TARGETS]}]
"""


class Failed(Exception):
    """Something that the check asserts does not hold."""


def wait_for(what, condition, seconds=PATIENCE):
    """The first true result of a condition that is asked again and again."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.5)
    raise Failed(f"not within {seconds} seconds: {what}")


def configure(text, settings=SETTINGS):
    """A configuration with these settings."""
    for name, value in settings.items():
        element = f"<{name}>{value}</{name}>"
        text, found = re.subn(f"<{name}>[^<]*</{name}>", element, text)
        if not found:
            text = text.replace("</Storage>", f"{element}\n</Storage>")
    return text


class Ports:
    """Free ports and addresses of this machine."""

    def __init__(self):
        # Below those that connections get by themselves.
        first = random.randrange(20000, 32000, 8)
        self.thrift, self.cql, self.storage, self.admin, self.prometheus = range(first, first + 5)
        self.network = f"127.{random.randrange(1, 250)}.{random.randrange(1, 250)}"

    def address(self, number):
        """The address of a node, from 1."""
        return f"{self.network}.{number}"


class DevCluster:
    """The command `dev-cluster`, which writes the configurations of all nodes."""

    def __init__(self, program, directory, ports):
        config = directory / "storage-conf.xml"
        config.write_text(configure((ROOT / "storage-conf.xml").read_text(), SETTINGS))
        arguments = ["--directory", directory / "nodes", "--config", config]
        arguments += ["--replication-factor", NODES, "--first-address", ports.address(1)]
        for port in ("thrift", "cql", "storage", "admin"):
            arguments += [f"--{port}-port", getattr(ports, port)]
        self._log = open(directory / "dev-cluster.log", "wb")
        self._process = subprocess.Popen(
            [program, "dev-cluster", *map(str, arguments)], stdout=self._log, stderr=self._log
        )

    def stop(self):
        """Ends all nodes."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(PATIENCE)
        self._log.close()


class Node:
    """One node, as a process that can be stopped, killed and started."""

    def __init__(self, program, directory, ports, number):
        self.program, self.ports = program, ports
        self.address = ports.address(number)
        self.directory = directory / "nodes" / f"node{number}"
        self.config = self.directory / "storage-conf.xml"
        self._log = directory / f"node{number}.log"
        self._process = None

    def start(self, *wrapper):
        """Starts it, below another program where one is named."""
        with open(self._log, "ab") as log:
            command = [*wrapper, self.program, "serve", "--config", str(self.config)]
            # A group of its own, with the program that it is below.
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self.directory, start_new_session=True
            )
        wait_for(f"{self.address} serves", self.serves)

    def serves(self):
        """Whether it is healthy."""
        url = f"http://{self.address}:{self.ports.admin}/api/v1/health"
        try:
            return urllib.request.urlopen(url, timeout=5).status == 200
        except OSError:
            return False

    @property
    def pid(self):
        """Id of its process."""
        return self._process.pid

    def send(self, number):
        """Sends it a signal."""
        self._process.send_signal(number)

    def end(self, number=signal.SIGTERM):
        """Ends it, and waits for that."""
        if not self._process:
            return
        for signal_number in (signal.SIGCONT, number):
            self._signal_all(signal_number)
        try:
            wait_for("its end", lambda: not self._signal_all(0))
        except Failed:
            self._signal_all(signal.SIGKILL)
        self._process = None

    def _signal_all(self, number):
        """Sends a signal to the process and those below it; returns whether there are any."""
        self._process.poll()
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return False
        return True

    def nodetool(self, *arguments):
        """Runs nodetool on it; returns whether that succeeds."""
        place = ["-h", self.address, "-p", str(self.ports.admin)]
        command = [self.program, "nodetool", *place, *arguments]
        return subprocess.run(command, capture_output=True, timeout=PATIENCE).returncode == 0


class Prometheus:
    """A Prometheus with the alert rules of the repository, whose alerts need not last."""

    def __init__(self, directory, ports):
        rules = (ROOT / "contrib/prometheus/alerts.yml").read_text()
        (directory / "alerts.yml").write_text(re.sub(r"\n +for: .*", "", rules))
        self.nodes = [f"{ports.address(node)}:{ports.admin}" for node in range(1, NODES + 1)]
        targets = (f'"{node}"' for node in self.nodes)
        config = directory / "prometheus.yml"
        config.write_text(PROMETHEUS.replace("TARGETS", ", ".join(targets)))
        listen = f"127.0.0.1:{ports.prometheus}"
        self._url = f"http://{listen}/api/v1/"
        self._log = open(directory / "prometheus.log", "wb")
        self._process = subprocess.Popen(
            ["prometheus", f"--config.file={config}", f"--web.listen-address={listen}",
             f"--storage.tsdb.path={directory / 'tsdb'}"],
            stdout=self._log, stderr=self._log,
        )

    def stop(self):
        """Ends it."""
        self._process.terminate()
        self._process.wait(PATIENCE)
        self._log.close()

    def _get(self, path, **parameters):
        url = self._url + path + "?" + urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)["data"]

    def has_all_nodes(self):
        """Whether it has scraped all nodes."""
        try:
            targets = self._get("targets")["activeTargets"]
        except (OSError, http.client.HTTPException):
            return False
        return [target["health"] for target in targets] == ["up"] * NODES

    def values(self, expression):
        """The numbers that a query returns."""
        try:
            found = self._get("query", query=expression)["result"]
        except urllib.error.HTTPError as error:
            raise Failed(f"{expression}: {error.read().decode()}") from None
        return [float(sample["value"][1]) for sample in found]

    def firing(self):
        """The names of the alerts that fire."""
        alerts = self._get("alerts")["alerts"]
        return {it["labels"]["alertname"] for it in alerts if it["state"] == "firing"}


def say(text):
    """Prints a line at once."""
    print(text, flush=True)


def is_root():
    """Whether file systems may be mounted."""
    return os.geteuid() == 0
