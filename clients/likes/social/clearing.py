"""Deletes all there is: a seed beside another one would be none that a plain model has."""

from alexandra.keyspace import between, delete
from cassandra_thrift.ttypes import ColumnParent, KeyRange

from .design import COLUMNS


def clear(keyspace):
    """Deletes every row of every column family, a page at a time."""
    for family in keyspace.client.describe_keyspace(keyspace.name):
        start, parent = "", ColumnParent(family)
        while True:
            page = keyspace.client.get_range_slices(
                keyspace.name, parent, between(count=1),
                KeyRange(start_key=start, end_key="", count=COLUMNS), keyspace.consistency)
            stamp = keyspace.timestamp()
            # A row that was deleted before has no columns.
            gone = {row.key: {family: [delete(stamp)]} for row in page if row.columns}
            if gone:
                keyspace.mutate(gone)
            if len(page) < COLUMNS:
                break
            # It begins the next page, and has no columns any more.
            start = page[-1].key
