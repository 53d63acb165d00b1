"""CQL by the driver for Python: a session, and many statements under way at a time."""

import logging
from collections import deque
from contextlib import contextmanager

from . import checking, program

try:
    from cassandra import DriverException
    from cassandra.cluster import Cluster, NoHostAvailable
except ImportError as error:
    raise ImportError(
        f"no CQL driver for Python ({error}); run tests/setup.sh"
        " (on Debian: apt-get install python3-cassandra, and use /usr/bin/python3)"
    ) from None

PORT = 9042
# Statements that wait for their answer at a time.
UNDER_WAY = 32
# What the driver raises when something cannot be done; the text says why.
FAILURES = (DriverException, NoHostAvailable)

# The library logs what it also raises; once is enough.
logging.getLogger("cassandra").addHandler(logging.NullHandler())


@contextmanager
def connect(host, port=PORT):
    """A session with the ring of this node; closed at the end of the `with` statement."""
    cluster = Cluster([host], port=port, protocol_version=4)
    try:
        yield cluster.connect()
    finally:
        cluster.shutdown()


def ask_all(session, statements, under_way=UNDER_WAY):
    """Yields the result of each statement, in their order, and asks a bounded number ahead."""
    asked = deque()
    for statement in statements:
        if len(asked) == under_way:
            yield asked.popleft().result()
        asked.append(session.execute_async(statement))
    while asked:
        yield asked.popleft().result()


def run_all(session, statements):
    """Executes statements that return nothing, many at a time."""
    for _ in ask_all(session, statements):
        pass


def check(description, scenario):
    """The main program of a check that speaks both Thrift and CQL.

    `scenario(open_connection, session, answers)` is run as by `checking.main`.
    """
    arguments = checking.parser(description)
    arguments.add_argument("--cql-port", type=program.port, default=PORT)
    options = arguments.parse_args()

    def with_session(open_connection, answers):
        with connect(options.host, options.cql_port) as session:
            scenario(open_connection, session, answers)

    checking.run(options, with_session, FAILURES)
