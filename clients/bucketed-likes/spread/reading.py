"""Reads the likes of a post from all of its rows at a time."""

import heapq
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from alexandra.keyspace import Keyspace

from .post import KEYSPACE, Likes

WORKERS = 8
# Columns in one call. Two such pages of each row are held at most: the one that is being
# consumed, and the next one.
PAGE = 200
# The first page of each row: who wants only the first few likes of all should not pay for more.
FIRST_PAGE = 10


class Liker(NamedTuple):
    """A user who likes a post, and since when, in microseconds of Unix time."""

    user: str
    at: int


class Reader:
    """Reads posts over connections of its own, one for each of its workers.

    `open_connection` opens one. Nothing is opened before something is read, and everything is
    closed when the generator is: at its end, or when its consumer stops. `calls` counts.
    """

    def __init__(self, open_connection, workers=WORKERS, page=PAGE):
        self.open = open_connection
        self.workers = workers
        self._page = page
        self.calls = 0

    def likers(self, post):
        """Yields the likers in the order of their ids.

        It reads a little ahead of the consumer and no further, and takes the rows as they are
        when their turn comes: likes that are made meanwhile may be in it or not.
        """
        with _Pool(self) as pool:
            rows = self._rows(pool, pool.layout(post), FIRST_PAGE)
            for column in heapq.merge(*rows, key=lambda column: column.name):
                yield Liker(column.name.decode(), int.from_bytes(column.value, "big"))

    def count(self, post):
        """How many likes a post has, counted in all rows at a time."""
        return sum(self.counts(post))

    def counts(self, post):
        """How many likes are in each row."""
        with _Pool(self) as pool:
            layout = pool.layout(post)
            if layout.former:
                # The server would count the copies that are still to be swept.
                return [sum(1 for _ in row) for row in self._rows(pool, layout, self._page)]
            return pool.map(lambda keyspace, row: keyspace.count(row, "Likes"), layout.rows())

    def _rows(self, pool, layout, first):
        """A generator of columns for each row, with the first page of each on its way."""
        first = min(first, self._page)
        asked = [pool.ask(row, b"", first) for row in layout.rows()]
        return [self._row(pool, layout, bucket, first, page) for bucket, page in enumerate(asked)]

    def _row(self, pool, layout, bucket, size, asked):
        """Yields the columns of one row; the next page is asked for when this one is begun."""
        while asked:
            columns = asked.result()
            # One more than the size was asked for: there the next page begins.
            following = columns[size].name if len(columns) > size else None
            del columns[size:]
            asked = None
            for number, column in enumerate(columns):
                if layout.reads(bucket, column.name.decode()):
                    yield column
                if number == 0 and following:
                    size = self._page
                    asked = pool.ask(layout.row(bucket), following, size)


class _Pool:
    """Threads with a connection each, for as long as one reading takes.

    A class, not a generator with `contextmanager`: that one sets the traceback of an exception
    that passes through, which those of the Thrift library do not allow.
    """

    def __init__(self, reader):
        self._reader = reader
        self._local = threading.local()
        self._connections = []
        self._threads = ThreadPoolExecutor(reader.workers)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # Drops what nobody waits for, and ends the calls under way.
        self._threads.shutdown(cancel_futures=True)
        for connection in self._connections:
            connection.close()
            self._reader.calls += connection.traffic.calls

    def layout(self, post):
        """Where the likes of a post are now."""
        return self._threads.submit(self._layout, post).result()

    def ask(self, row, start, size):
        """Asks for a page of a row, and for one column more; the answer comes later."""
        return self._threads.submit(self._slice, row, start, size + 1)

    def map(self, work, rows):
        """What work(keyspace, row) gives for each row."""
        return list(self._threads.map(lambda row: work(self._keyspace(), row), rows))

    def _layout(self, post):
        return Likes(self._keyspace().client).layout(post)

    def _slice(self, row, start, count):
        return self._keyspace().slice(row, "Likes", start=start, count=count)

    def _keyspace(self):
        """The keyspace over the connection of this thread."""
        if not hasattr(self._local, "keyspace"):
            connection = self._reader.open()
            self._connections.append(connection)
            self._local.keyspace = Keyspace(connection.client, KEYSPACE)
        return self._local.keyspace
