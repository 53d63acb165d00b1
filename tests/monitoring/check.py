#!/usr/bin/python3
"""Checks metrics, dashboard and alert rules with a real Prometheus that scrapes three nodes.

Every query of the dashboard has to return numbers, every metric of an alert has to be there, and
each alert has to fire by a fault of its own. See docs/metrics.md.
"""

import argparse
import contextlib
import json
import math
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from faults import FAULTS
from load import Load, reaches_all
from ring import (
    NODES, ROOT, DevCluster, Failed, Node, Ports, Prometheus, is_root, say, wait_for,
)

DASHBOARD = ROOT / "contrib/grafana/alexandra.json"
RULES = ROOT / "contrib/prometheus/alerts.yml"


def main():
    """Runs the check; the exit code is 1 if something does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=Path, help="the program `alexandra`")
    parser.add_argument("--keep", action="store_true", help="keep logs and data")
    parser.add_argument("--fault", help="only faults whose description has this word")
    options = parser.parse_args()
    if not shutil.which("prometheus"):
        sys.exit("there is no Prometheus here: run tests/setup.sh --all")
    # Nodes must not outlive the check.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    directory = Path(tempfile.mkdtemp(prefix="alexandra-monitoring-"))
    try:
        check(str(options.program.resolve()), directory, options.fault or "")
    except Failed as failure:
        say(f"failed: {failure}\nlogs are in {directory}")
        sys.exit(1)
    if not options.keep:
        shutil.rmtree(directory)


def check(program, directory, chosen):
    """The story: a healthy ring, then one fault after the other."""
    ports = Ports()
    for command in ("config", "rules"):
        file = RULES if command == "rules" else RULES.with_name("prometheus.yml")
        subprocess.run(["promtool", "check", command, str(file)], check=True)
    nodes = [Node(program, directory, ports, number + 1) for number in range(NODES)]
    cluster = DevCluster(program, directory, ports)
    prometheus = Prometheus(directory, ports)
    loads = []
    try:
        wait_for("all nodes serve", lambda: all(node.serves() for node in nodes))
        wait_for("Prometheus has scraped all nodes", prometheus.has_all_nodes)
        loads = [Load(node) for node in nodes]
        check_dashboard(prometheus)
        check_rules(prometheus)
        wait_for("no alert fires", lambda: not prometheus.firing())
        say("no alert fires while all is well")
        cluster.stop()
        cluster = None
        for node in nodes:
            node.start()
        cause_faults(prometheus, nodes, chosen)
    finally:
        for load in loads:
            load.stop()
        for node in nodes:
            node.end()
        if cluster:
            cluster.stop()
        prometheus.stop()


def check_dashboard(prometheus):
    """Fails unless every query of the dashboard returns numbers, for all nodes."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    queries = [(it["title"], target["expr"]) for it in panels for target in it.get("targets", [])]

    def without_data():
        every = [(title, query, node) for title, query in queries for node in prometheus.nodes]
        return [one for one in every if not has_numbers(prometheus, *one[1:])]

    try:
        wait_for("queries return numbers", lambda: not without_data())
    except Failed:
        lacking = "\n".join(f"  {title} of {node}: {query}" for title, query, node in without_data())
        raise Failed(f"queries of the dashboard return nothing:\n{lacking}") from None
    say(f"all {len(queries)} queries of the dashboard return numbers")


def has_numbers(prometheus, query, node):
    """Whether a query as Grafana would send it returns a number for a node."""
    query = query.replace("$node", re.escape(node).replace("\\", "\\\\"))
    query = query.replace("$__rate_interval", "5m")
    return any(not math.isnan(value) for value in prometheus.values(query))


def check_rules(prometheus):
    """Fails unless all metrics of the alert rules are there."""
    expressions = re.findall(r"expr: ((?:.|\n)*?)\n +(?:for|labels):", RULES.read_text())
    names = set(re.findall(r"\b(?:alexandra|process)_[a-z_]+|\bup\b", " ".join(expressions)))
    # Nodes have a certificate in a fault alone.
    for name in sorted(names - {"alexandra_tls_certificate_end_seconds"}):
        if not prometheus.values(f"count({name})"):
            raise Failed(f"there is no metric {name}, which an alert names")
    say(f"all {len(names)} metrics of the {len(expressions)} alerts are there")


def cause_faults(prometheus, nodes, chosen):
    """Fails unless each fault fires its alerts, and all alerts have a fault."""
    names = set(re.findall(r"alert: (\w+)", RULES.read_text()))
    unknown = names.symmetric_difference(alert for fault in FAULTS for alert in fault.alerts)
    if unknown:
        raise Failed(f"alerts without a fault, or faults without an alert: {sorted(unknown)}")
    silent = set()
    for fault in FAULTS:
        if chosen not in fault.text:
            continue
        lacking = fault.lacking()
        if lacking or ("mount" in fault.needs and not is_root()):
            say(f"not tried, for want of {', '.join(lacking) or 'root'}: {fault.text}")
            continue
        missing = set(fault.alerts)
        wait_for("writes reach all nodes", lambda: reaches_all(nodes[0]))

        def all_have_fired():
            missing.difference_update(prometheus.firing())
            return not missing

        with fault.during(nodes), contextlib.suppress(Failed):
            wait_for("alerts fire", all_have_fired)
        fired = [alert for alert in fault.alerts if alert not in missing]
        say(f"{fault.text}: {', '.join(fired) or 'nothing'} fired")
        silent |= missing
    if silent:
        raise Failed(f"alerts that did not fire: {sorted(silent)}")


if __name__ == "__main__":
    main()
