"""One connection to a server."""

import logging

from thrift.protocol.TBinaryProtocol import TBinaryProtocol, TBinaryProtocolAccelerated
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TFramedTransport

from .bindings import Cassandra

TIMEOUT_MS = 20_000

# The library logs what it also raises; once is enough.
logging.getLogger("thrift").addHandler(logging.NullHandler())


class Traffic:
    """What a connection has carried so far: calls, and bytes either way."""

    def __init__(self):
        self.calls = 0
        self.sent = 0
        self.received = 0


class Connection:
    """An open connection; `client` has the calls, `traffic` counts. Use it in a `with` statement.

    Raises TTransportException when nobody listens there.
    """

    def __init__(self, host, port, framed=False, accelerated=True):
        self.traffic = Traffic()
        socket = _CountingSocket(host, port, self.traffic)
        socket.setTimeout(TIMEOUT_MS)
        self._transport = TFramedTransport(socket) if framed else TBufferedTransport(socket)
        if accelerated:
            # Falls back to plain Python where the library was built without its C part.
            protocol = TBinaryProtocolAccelerated(self._transport, fallback=True)
        else:
            protocol = TBinaryProtocol(self._transport)
        self.client = Cassandra.Client(protocol)
        self._transport.open()

    def __enter__(self):
        return self.client

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Closes it; the client cannot be used any more."""
        self._transport.close()


class _CountingSocket(TSocket):
    def __init__(self, host, port, traffic):
        super().__init__(host, port)
        self._traffic = traffic

    def read(self, size):
        read = super().read(size)
        self._traffic.received += len(read)
        return read

    def write(self, data):
        super().write(data)
        self._traffic.sent += len(data)

    def flush(self):
        # The transports flush once for each call.
        super().flush()
        self._traffic.calls += 1


def has_accelerator():
    """Whether the C part of the Thrift library is here."""
    try:
        from thrift.protocol import fastbinary  # noqa: F401
    except ImportError:
        return False
    return True
