"""One connection to a server."""

import logging

from thrift.protocol.TBinaryProtocol import TBinaryProtocol, TBinaryProtocolAccelerated
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TFramedTransport

from .bindings import Cassandra

TIMEOUT_MS = 20_000

# The library logs what it also raises; once is enough.
logging.getLogger("thrift").addHandler(logging.NullHandler())


class Connection:
    """An open connection; `client` has the calls. Use it in a `with` statement.

    Raises TTransportException when nobody listens there.
    """

    def __init__(self, host, port, framed=False, accelerated=True):
        socket = TSocket(host, port)
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
        self._transport.close()


def has_accelerator():
    """Whether the C part of the Thrift library is here."""
    try:
        from thrift.protocol import fastbinary  # noqa: F401
    except ImportError:
        return False
    return True
