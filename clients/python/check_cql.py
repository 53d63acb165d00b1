#!/usr/bin/python3
"""Writes the same rows by Thrift and by CQL, and compares what both show with a model.

Cells are set and deleted in random order, at few timestamps, so that many are equal. Exits with 1
at the first difference and says which. Each run has keys of its own, so it can be repeated on a
server that already holds data.
"""

import random
import struct
import sys
import time
from uuid import UUID

try:
    from alexandra import cql
    from bloggy.weblog import KEYSPACE
    from cassandra.query import dict_factory
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
except ImportError as missing:
    sys.exit(f"check_cql.py: {missing}")

CHANGES = 4000
# Changes between two comparisons.
STEP = 500
TIMESTAMPS = range(1000, 1200)
ONE = ConsistencyLevel.ONE
ALL = SlicePredicate(slice_range=SliceRange(b"", b"", False, 1000))
# Names that the configuration does not declare: CQL has them in `rest`.
UNDECLARED = [b"A", b"zz", b"\xff\0"]


class Model:
    """The newest cell of each place. Of one timestamp a deletion wins, then the greater value."""

    def __init__(self):
        self._newest = {}

    def write(self, place, timestamp, value):
        """Sets a cell, or deletes it where the value is None."""
        new = (timestamp, value is None, value or b"")
        self._newest[place] = max(self._newest.get(place, new), new)

    def row(self, table, key):
        """The live cells of a row: `{(super column, column): value}`."""
        return {
            cell: value
            for (of_table, of_key, cell), (_, is_deleted, value) in self._newest.items()
            if (of_table, of_key) == (table, key) and not is_deleted
        }


class Declared:
    """A column family with declared columns: a row for each row, or for each super column."""

    def __init__(self, name, key, columns, supers=()):
        self.name, self.key, self.columns = name, key, columns
        self.supers = [each.bytes for each in supers] or [b""]
        names = [each.encode() for each in columns] + UNDECLARED
        self.places = [(each, name) for each in self.supers for name in names]

    def change(self, chance, key, value):
        """A statement with its values, the places that it changes, and what they hold then."""
        above, name = chance.choice(self.places)
        where, bound = self._where(key, above)
        column = f'"{name.decode()}"' if name not in UNDECLARED else f"rest[0x{name.hex()}]"
        kind = chance.randrange(10)
        if kind < 5:
            # Values of `rest` are of the default type: text, or bytes of a super column.
            given = value.encode() if above and name in UNDECLARED else value
            text = f"UPDATE {{}} SET {column} = %s WHERE {where}"
            return text, [given, *bound], [(above, name)], value.encode()
        if kind < 7:
            return f"DELETE {column} FROM {{}} WHERE {where}", bound, [(above, name)], None
        if kind < 9 or not above:
            places = [place for place in self.places if place[0] == above]
            return f"DELETE FROM {{}} WHERE {where}", bound, places, None
        time_of = {each: UUID(bytes=each).time for each in self.supers}
        places = [place for place in self.places if time_of[place[0]] > time_of[above]]
        text = f"DELETE FROM {{}} WHERE {self.key} = %s AND comment_id > %s"
        return text, bound, places, None

    def _where(self, key, above):
        if not above:
            return f"{self.key} = %s", [key]
        return f"{self.key} = %s AND comment_id = %s", [key, UUID(bytes=above)]

    def cells(self, row):
        """The cells of a row that CQL shows."""
        above = row["comment_id"].bytes if "comment_id" in row else b""
        shown = {name.encode(): row[name] for name in self.columns}
        shown.update(row["rest"] or {})
        return {(above, name): _bytes(value) for name, value in shown.items() if value is not None}


class Made:
    """A table made over CQL: a super column for each row, with a marker for `INSERT`."""

    name, key = "written_by_both", "k"
    MARKER = b"\0"
    NUMBERS = [-7, 0, 1, 2, 1000]

    def __init__(self, session):
        session.execute(
            f'CREATE TABLE IF NOT EXISTS "{KEYSPACE}".{self.name}'
            " (k text, c int, v text, m map<text, text>, PRIMARY KEY (k, c))"
        )
        names = [self.MARKER, b"v", b"m\0p", b"m\0q"]
        self.places = [(self._above(each), name) for each in self.NUMBERS for name in names]

    @staticmethod
    def _above(number):
        return struct.pack(">Hib", 4, number, 0)

    def change(self, chance, key, value):
        """As `Declared.change`."""
        number, entry = chance.choice(self.NUMBERS), chance.choice("pq")
        above, kind = self._above(number), chance.randrange(10)
        row, bound = "k = %s AND c = %s", [key, number]
        if kind < 2:
            # A value would be a second place.
            return "INSERT INTO {} (k, c) VALUES (%s, %s)", bound, [(above, self.MARKER)], b""
        if kind < 4:
            text, places = f"UPDATE {{}} SET v = %s WHERE {row}", [(above, b"v")]
            return text, [value, *bound], places, value.encode()
        if kind < 6:
            places = [(above, b"m\0" + entry.encode())]
            text = f"UPDATE {{}} SET m[%s] = %s WHERE {row}"
            return text, [entry, value, *bound], places, value.encode()
        if kind == 6:
            places = [(above, b"m\0p"), (above, b"m\0q")]
            return f"DELETE m FROM {{}} WHERE {row}", bound, places, None
        if kind == 7:
            return f"DELETE v FROM {{}} WHERE {row}", bound, [(above, b"v")], None
        if kind == 8:
            places = [place for place in self.places if place[0] == above]
            return f"DELETE FROM {{}} WHERE {row}", bound, places, None
        within = [self._above(each) for each in self.NUMBERS if each >= number]
        places = [place for place in self.places if place[0] in within]
        return "DELETE FROM {} WHERE k = %s AND c >= %s", bound, places, None

    def cells(self, row):
        """The cells of a row that CQL shows: all but the marker."""
        above = self._above(row["c"])
        shown = {b"v": row["v"], **{b"m\0" + k.encode(): v for k, v in (row["m"] or {}).items()}}
        return {(above, name): _bytes(value) for name, value in shown.items() if value is not None}


def _bytes(value):
    return value.encode() if isinstance(value, str) else value


class Run:
    """Both clients, the model, and names that no other run has."""

    def __init__(self, client, session, answers):
        self.client, self.session, self.answers = client, session, answers
        self.model, self.chance = Model(), random.Random(1)
        comments = [UUID(fields=(7919 * at, 0, 0x11e0, 0x80, 1, at)) for at in range(6)]
        self.tables = [
            Declared("Authors", "name", ["numPosts", "twitter", "email", "bio"]),
            Declared("Comments", "post", ["commenter", "email", "comment"], comments),
            Made(session),
        ]
        self.keys = [f"{text} {time.time_ns():x}" for text in ("zoë", "b'", "上")]

    def change(self):
        """One change at a random timestamp, by one of the clients."""
        chance = self.chance
        table, key = chance.choice(self.tables), chance.choice(self.keys)
        timestamp = chance.choice(TIMESTAMPS)
        value = chance.choice("äxyz") * chance.randrange(1, 4)
        by = chance.choice([self._by_cql, self._by_thrift, self._by_batch])
        places, cell = by(table, key, timestamp, value)
        for place in places:
            self.model.write((table.name, key, place), timestamp, cell)

    def _by_cql(self, table, key, timestamp, value):
        text, bound, places, cell = table.change(self.chance, key, value)
        text = text.format(f'"{KEYSPACE}"."{table.name}"')
        using = f" USING TIMESTAMP {timestamp}"
        # It stands before SET and WHERE, and after VALUES.
        for word in (" SET ", " WHERE "):
            if word in text:
                text = text.replace(word, using + word, 1)
                break
        else:
            text += using
        self.session.execute(text, bound)
        return places, cell

    def _by_thrift(self, table, key, timestamp, value):
        (above, name), kind = self.chance.choice(table.places), self.chance.randrange(8)
        path = ColumnPath(table.name, super_column=above or None, column=name)
        if kind < 5:
            cell = b"" if name == Made.MARKER else value.encode()
            self.client.insert(KEYSPACE, key, path, cell, timestamp, ONE)
            return [(above, name)], cell
        places = [(above, name)]
        if kind == 6 and above:
            path.column, places = None, [place for place in table.places if place[0] == above]
        elif kind == 7:
            path, places = ColumnPath(table.name), table.places
        self.client.remove(KEYSPACE, key, path, timestamp, ONE)
        return places, None

    def _by_batch(self, table, key, timestamp, value):
        above, name = self.chance.choice(table.places)
        names = [each for of, each in table.places if of == above and each != Made.MARKER]
        if self.chance.randrange(3):
            cell = value.encode()
            columns = [Column(each, cell, timestamp) for each in names]
            if above:
                whole = [ColumnOrSuperColumn(super_column=SuperColumn(above, columns))]
            else:
                whole = [ColumnOrSuperColumn(column=column) for column in columns]
            mutations = [Mutation(each) for each in whole]
        else:
            cell, predicate = None, SlicePredicate(column_names=names)
            mutations = [Mutation(deletion=Deletion(timestamp, above or None, predicate))]
        self.client.batch_mutate(KEYSPACE, {key: {table.name: mutations}}, ONE)
        return [(above, each) for each in names], cell

    def compare(self):
        """All rows, by Thrift and by CQL."""
        for table in self.tables:
            for key in self.keys:
                what, due = f"{table.name} {key}", self.model.row(table.name, key)
                self.answers.same(f"{what} by Thrift", self._shown_by_thrift(table, key), due)
                rows = self._rows(table, key)
                found = {}
                for row in rows:
                    found.update(table.cells(row))
                without = {place: cell for place, cell in due.items() if place[1] != Made.MARKER}
                self.answers.same(f"{what} by CQL", found, without)
                # A marker alone makes a row, too.
                self.answers.same(f"rows of {what}", len(rows), len({above for above, _ in due}))

    def _shown_by_thrift(self, table, key):
        found = {}
        for each in self.client.get_slice(KEYSPACE, key, ColumnParent(table.name), ALL, ONE):
            above, columns = b"", [each.column]
            if each.super_column:
                above, columns = each.super_column.name, each.super_column.columns
            found.update({(above, column.name): column.value for column in columns})
        return found

    def _rows(self, table, key):
        text = f'SELECT * FROM "{KEYSPACE}"."{table.name}" WHERE {table.key} = %s'
        return list(self.session.execute(text, [key]))


def scenario(open_connection, session, answers):
    """Changes, and comparisons in between."""
    session.row_factory = dict_factory
    with open_connection() as client:
        run = Run(client, session, answers)
        for number in range(1, CHANGES + 1):
            run.change()
            if number % STEP == 0:
                run.compare()


if __name__ == "__main__":
    cql.check(__doc__.split("\n")[0], scenario)
