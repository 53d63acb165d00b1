"""One split, read a page at a time from one replica, and from another one when that fails."""

import time
from dataclasses import dataclass

from alexandra.bindings import ttypes  # This one finds the generated package.
from cassandra_thrift.ttypes import ColumnParent, ConsistencyLevel, KeyRange, SlicePredicate

from .ring import ScanError, token_function
from .servers import FAILURES, PATIENCE_S, PAUSE_S

PAGE_SIZE = 1000


@dataclass(frozen=True)
class Question:
    """What is read of which rows."""

    keyspace: str
    family: str
    # One name: what is not asked for need not be sent, and above all not be decoded.
    column: bytes
    page_size: int = PAGE_SIZE
    consistency: int = ConsistencyLevel.ONE


class Scanner:
    """Reads splits over connections of its own."""

    def __init__(self, servers, question):
        self._servers = servers
        self._question = question
        self._token_of = None
        # How often another replica had to be asked.
        self.changes = 0

    def pages(self, split):
        """Yields the rows of a split as lists of KeySlice, each row once.

        A row without columns is one that was deleted, or has none of that name.
        """
        # The server that was named reads on behalf of the replicas when none of them can be
        # reached from here.
        hosts = list(dict.fromkeys([*split.hosts, self._servers.address.host]))
        token = split.start
        while True:
            page = self._page(hosts, token, split.end)
            yield page
            if len(page) < self._question.page_size:
                return
            token = self._token_of(page[-1].key)
            if token == split.end:
                # From a token to itself would be once around the ring.
                return

    def _page(self, hosts, start, end):
        """The rows behind a token. Leaves the host that has answered in front."""
        until = None
        for attempt in range(1, 1_000_000):
            try:
                return self._ask(self._servers.client(hosts[0]), start, end)
            except FAILURES as error:
                failure = error
            self._servers.drop(hosts[0])
            hosts.append(hosts.pop(0))
            self.changes += 1
            if attempt % len(hosts) == 0:
                # A node that has died keeps its place in the ring for seconds.
                until = until or time.monotonic() + PATIENCE_S
                if time.monotonic() > until:
                    break
                time.sleep(PAUSE_S)
        raise ScanError(f"none of {', '.join(hosts)} answers: {failure!r}")

    def _ask(self, client, start, end):
        ask = self._question
        if self._token_of is None:
            self._token_of = token_function(client)
        try:
            return client.get_range_slices(
                ask.keyspace,
                ColumnParent(ask.family),
                SlicePredicate(column_names=[ask.column]),
                KeyRange(start_token=start, end_token=end, count=ask.page_size),
                ask.consistency,
            )
        except ttypes.InvalidRequestException as refusal:
            # All replicas would say the same. Exceptions of Thrift cannot pass from a worker to
            # the process that has started it.
            raise ScanError(f"the server refuses: {refusal.why}") from None
