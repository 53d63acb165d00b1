"""One keyspace over one Thrift client: the calls that applications make most, in short.

Row keys are text; names and values of columns are bytes. What is not here is a call of
`Keyspace.client`.
"""

import time

from .bindings import ttypes  # This one finds the generated package.
from cassandra_thrift.ttypes import (
    Column,
    ColumnOrSuperColumn,
    ColumnParent,
    ColumnPath,
    ConsistencyLevel,
    Deletion,
    Mutation,
    SlicePredicate,
    SliceRange,
    SuperColumn,
)

# As many columns as a slice returns if it is not told otherwise.
WHOLE_ROW = 100


class Keyspace:
    """Reads and writes the rows of one keyspace at one consistency level."""

    def __init__(self, client, name, consistency=ConsistencyLevel.ONE):
        self.client = client
        self.name = name
        self.consistency = consistency
        self._last_timestamp = 0

    def timestamp(self):
        """Microseconds; never the same twice, so that of two changes the later one wins."""
        self._last_timestamp = max(int(time.time() * 1_000_000), self._last_timestamp + 1)
        return self._last_timestamp

    def mutate(self, changes):
        """Writes and deletes in several rows: `{key: {column family: [mutation]}}`.

        `put`, `put_super` and `delete` below make mutations. All of one row are seen at once or
        not at all; several rows are never one step.
        """
        self.client.batch_mutate(self.name, changes, self.consistency)

    def get(self, key, family, name, super_column=None):
        """The value of one column; None where there is none."""
        path = ColumnPath(family, super_column=super_column, column=name)
        try:
            return self.client.get(self.name, key, path, self.consistency).column.value
        except ttypes.NotFoundException:
            return None

    def slice(self, key, family, super_column=None, **bounds):
        """Columns of one row, or of one of its super columns, in their order.

        They are Column, or SuperColumn where the family has such and none is named. The bounds
        are those of `between`.
        """
        parent = ColumnParent(family, super_column=super_column)
        found = self.client.get_slice(self.name, key, parent, between(**bounds), self.consistency)
        return [_either(each) for each in found]

    def slices(self, keys, family, super_column=None, **bounds):
        """The same for several rows in one call; an empty list for a key that has no row."""
        if not keys:
            return {}
        parent = ColumnParent(family, super_column=super_column)
        found = self.client.multiget_slice(
            self.name, sorted(set(keys)), parent, between(**bounds), self.consistency
        )
        return {key: [_either(each) for each in columns] for key, columns in found.items()}

    def each(self, key, family, start=b"", page=WHOLE_ROW, **bounds):
        """Yields the columns of a row of any width, and reads them a page at a time."""
        while True:
            # A page starts with the first column that the one before left, or where that was.
            found = self.slice(key, family, start=start, count=page + 1, **bounds)
            yield from found[:page]
            if len(found) <= page:
                return
            start = found[page].name

    def count(self, key, family, super_column=None):
        """How many columns a row has. The server reads them all to count them."""
        parent = ColumnParent(family, super_column=super_column)
        return self.client.get_count(self.name, key, parent, self.consistency)

    def remove(self, key, family, column=None, super_column=None):
        """Deletes a row, one of its super columns, or one column."""
        path = ColumnPath(family, super_column=super_column, column=column)
        self.client.remove(self.name, key, path, self.timestamp(), self.consistency)


def between(start=b"", finish=b"", reversed=False, count=WHOLE_ROW):
    """The predicate of a slice: both bounds belong to it, and an empty one is an open end.

    A reversed slice begins with its greatest name, so `start` is the greater bound.
    """
    slice_range = SliceRange(start=start, finish=finish, reversed=reversed, count=count)
    return SlicePredicate(slice_range=slice_range)


def put(name, value, timestamp):
    """The mutation that writes one column."""
    column = Column(name, value, timestamp)
    return Mutation(column_or_supercolumn=ColumnOrSuperColumn(column=column))


def put_super(name, columns, timestamp):
    """The mutation that writes columns, `{name: value}`, into one super column."""
    inner = [Column(each, value, timestamp) for each, value in columns.items()]
    written = ColumnOrSuperColumn(super_column=SuperColumn(name, inner))
    return Mutation(column_or_supercolumn=written)


def delete(timestamp, names=None, super_column=None):
    """The mutation that deletes what is as old or older: a row, a super column, or the named."""
    named = None if names is None else SlicePredicate(column_names=names)
    deletion = Deletion(timestamp=timestamp, super_column=super_column, predicate=named)
    return Mutation(deletion=deletion)


def _either(found):
    return found.column if found.column is not None else found.super_column
