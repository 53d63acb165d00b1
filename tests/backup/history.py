"""Writes of one client in their order, and how many of them a server has."""

import os
import time

from load import KEYSPACE, ONE, ttypes

FAMILY = "Standard1"
ROWS = 500
COLUMNS = 8


class History:
    """Inserts and deletions that were acknowledged, one after the other."""

    def __init__(self, client):
        self._client = client
        self.writes = []

    def write(self, count):
        """Writes some more cells: every tenth time one is deleted."""
        for number in range(len(self.writes), len(self.writes) + count):
            key, name = f"row{number * 7 % ROWS}", b"%d" % (number % COLUMNS)
            path = ttypes.ColumnPath(column_family=FAMILY, column=name)
            value = None if number % 10 == 9 else b"%d " % number + os.urandom(2000)
            timestamp = time.time_ns() // 1000
            if value is None:
                self._client.remove(KEYSPACE, key, path, timestamp, ONE)
            else:
                self._client.insert(KEYSPACE, key, path, value, timestamp, ONE)
            self.writes.append(((key, name), value))

    def find(self, client, least, most):
        """The number of writes after which the cells were those of the server; None if never."""
        there = all_cells(client)
        cells = {}
        for number, (place, value) in enumerate(self.writes[:most], 1):
            if value is None:
                cells.pop(place, None)
            else:
                cells[place] = value
            if number >= least and cells == there:
                return number
        return None


def all_cells(client):
    """All cells of the column family, by key and name."""
    parent = ttypes.ColumnParent(column_family=FAMILY)
    every = ttypes.SlicePredicate(slice_range=ttypes.SliceRange(b"", b"", False, 2 * COLUMNS))
    keys = ttypes.KeyRange(start_key="", end_key="", count=2 * ROWS)
    rows = client.get_range_slices(KEYSPACE, parent, every, keys, ONE)
    return {(row.key, it.column.name): it.column.value for row in rows for it in row.columns}
