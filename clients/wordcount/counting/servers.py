"""The servers of the ring: one connection to each that is asked, until it fails."""

import time
from dataclasses import dataclass

from alexandra.bindings import ttypes
from alexandra.connection import Connection
from thrift.Thrift import TApplicationException
from thrift.transport.TTransport import TTransportException

# After one of these another replica may know better. OSError: a connection that breaks in the
# middle of a request.
FAILURES = (
    TTransportException,
    OSError,
    EOFError,
    TApplicationException,
    ttypes.UnavailableException,
    ttypes.TimedOutException,
)

# All that can be asked is asked again for so long, with such a pause.
PATIENCE_S = 30
PAUSE_S = 0.5


def insist(write):
    """Makes a write again as long as replicas are slow or down.

    It has its timestamps already, so that it does not matter if it was made twice.
    """
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return write()
        except (ttypes.UnavailableException, ttypes.TimedOutException):
            if time.monotonic() > until:
                raise
        time.sleep(PAUSE_S)


@dataclass(frozen=True)
class Address:
    """How to reach the ring: the server that is asked first, and the port of all."""

    host: str = "127.0.0.1"
    port: int = 9160
    framed: bool = False


class Servers:
    """Connections to servers by their host. Use it in a `with` statement."""

    def __init__(self, address):
        self.address = address
        self._open = {}
        # Of connections that are closed already.
        self._calls = self._received = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for host in list(self._open):
            self.drop(host)

    def client(self, host):
        """The calls of one server. Raises TTransportException when nobody listens there."""
        if host not in self._open:
            self._open[host] = Connection(host, self.address.port, self.address.framed)
        return self._open[host].client

    def first(self):
        """The calls of the server that was named."""
        return self.client(self.address.host)

    def drop(self, host):
        """Closes the connection: after a failure nobody knows what comes next on it."""
        connection = self._open.pop(host, None)
        if connection is not None:
            self._calls += connection.traffic.calls
            self._received += connection.traffic.received
            connection.close()

    def traffic(self):
        """Calls that were made, and bytes that came."""
        traffic = [connection.traffic for connection in self._open.values()]
        calls = self._calls + sum(each.calls for each in traffic)
        return calls, self._received + sum(each.received for each in traffic)
