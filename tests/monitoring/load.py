"""Requests of clients, by Thrift and by CQL."""

import os
import sys
import threading
import time

from ring import ROOT

sys.path.insert(0, str(ROOT / "clients/python"))

from alexandra import cql  # noqa: E402
from alexandra.bindings import ttypes  # noqa: E402
from alexandra.connection import Connection  # noqa: E402

KEYSPACE = "Keyspace1"
# Its keys are cached.
FAMILY = "Standard2"
ONE, QUORUM, ALL = (ttypes.ConsistencyLevel._NAMES_TO_VALUES[it] for it in ("ONE", "QUORUM", "ALL"))

# Errors are what the faults are for.
FAILURES = (Exception,)


def connect(node):
    """A connection by Thrift."""
    return Connection(node.address, node.ports.thrift)


def insert(client, key, value, level=ONE, family="Standard1"):
    """Writes one column."""
    path = ttypes.ColumnPath(column_family=family, column=b"name")
    client.insert(KEYSPACE, key, path, value, time.time_ns() // 1000, level)


def insert_many(node, count, size, level=ONE, family="Standard1", first=0):
    """Writes rows of random bytes, one after the other; returns how many were refused."""
    refused = 0
    with connect(node) as client:
        for key in range(first, first + count):
            try:
                insert(client, f"row{key}", os.urandom(size), level, family)
            except (ttypes.UnavailableException, ttypes.TimedOutException):
                refused += 1
    return refused


def reaches_all(node):
    """Whether a node finds all replicas of a row alive, and has their acknowledgements."""
    return not insert_many(node, 1, 100, ALL)


def insert_at_once(node, threads, seconds, size=100):
    """Writes rows of this size at level ALL, from several connections for some time.

    There are pauses in between: quick refusals, once a node seems dead, would be most requests.
    """
    end = time.monotonic() + seconds

    def work():
        while time.monotonic() < end:
            insert_many(node, 1, size, ALL)
            time.sleep(0.1)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


class Load:
    """A few requests of all kinds in each second, until it is stopped."""

    def __init__(self, node):
        self._node, self._end = node, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self):
        """Ends it."""
        self._end.set()
        self._thread.join()

    def _run(self):
        while not self._end.wait(1):
            try:
                with connect(self._node) as client, cql.connect(
                    self._node.address, self._node.ports.cql
                ) as session:
                    self._work(client, session)
            except FAILURES:
                pass

    def _work(self, client, session):
        session.execute(
            "CREATE KEYSPACE IF NOT EXISTS monitored WITH replication ="
            " {'class': 'SimpleStrategy', 'replication_factor': 3}"
        )
        session.execute("CREATE TABLE IF NOT EXISTS monitored.rows (k int PRIMARY KEY, v int)")
        parent = ttypes.ColumnParent(column_family=FAMILY)
        every = ttypes.SlicePredicate(slice_range=ttypes.SliceRange(b"", b"", False, 100))
        keys = ttypes.KeyRange(start_key="", end_key="", count=10)
        key = 0
        while not self._end.wait(0.05):
            key = (key + 1) % 60
            insert(client, f"row{key}", b"value", family=FAMILY)
            client.get_slice(KEYSPACE, f"row{key}", parent, every, QUORUM)
            session.execute(f"INSERT INTO monitored.rows (k, v) VALUES ({key}, 1)")
            session.execute(f"SELECT v FROM monitored.rows WHERE k = {key}")
            if key % 10 == 0:
                client.get_range_slices(KEYSPACE, parent, every, keys, ONE)
            if key % 30 == 0:
                self._node.nodetool("flush", KEYSPACE)
