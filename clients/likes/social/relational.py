"""Option 1: the tables of a relational database, row by row."""

import uuid

from alexandra.keyspace import between, delete, put
from cassandra_thrift.ttypes import ColumnParent, KeyRange

from .design import COLUMNS, Design, moment, moment_of


class Relational(Design):
    """A like is a row of its own under an id of its own.

    Users and items are found by their ids. Whatever is asked about likes reads all of them: there
    is no join, and no index that a `where` could use.
    """

    name = "1 relational"
    about = "User, Item, and Like under ids of their own"

    def liked_by(self, user, count=None):
        times = self._others("user", user, "item")
        return self._labelled(times, "Item", "title", count)

    def likers_of(self, item, count=None):
        times = self._others("item", item, "user")
        return self._labelled(times, "User", "name", count)

    def like(self, user, item, at):
        # A like again is a second row: nothing here is unique but the id.
        self._write([self._row(user, item, at)])

    def unlike(self, user, item):
        stamp = self._now()
        pairs = ((key, like["user"], like["item"]) for key, like in self._all())
        due = [key for key, *pair in pairs if pair == [user.encode(), item.encode()]]
        self._write((key, "Like", [delete(stamp)]) for key in due)

    def fill(self, memory):
        super().fill(memory)
        self._write(self._row(*like) for like in memory.likes())

    def _row(self, user, item, at):
        stamp = self._now()
        columns = [
            put(b"user", user.encode(), stamp),
            put(b"item", item.encode(), stamp),
            put(b"time", moment(at), stamp),
        ]
        # Says nothing to who looks for a user or an item; a seed that is filled twice is one.
        id = uuid.uuid5(uuid.NAMESPACE_OID, f"{user} {item} {at}").hex
        return id, "Like", columns

    def _others(self, side, id, other):
        """Whom the likes of one side lead to, and since when."""
        times = {}
        for _, like in self._all():
            if like[side] == id.encode():
                found = like[other].decode()
                times[found] = max(times.get(found, 0), moment_of(like["time"]))
        return times

    def _all(self):
        """Every like there is, a page at a time, with the key of its row."""
        start = ""
        while True:
            page = self._keyspace.client.get_range_slices(
                self._keyspace.name, ColumnParent("Like"), between(),
                KeyRange(start_key=start, end_key="", count=COLUMNS), self._keyspace.consistency)
            for row in page:
                # The first row ended the page before; a row that was deleted has no columns.
                if row.key != start and row.columns:
                    columns = (each.column for each in row.columns)
                    yield row.key, {column.name.decode(): column.value for column in columns}
            if len(page) < COLUMNS:
                return
            start = page[-1].key
