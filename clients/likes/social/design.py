"""What every design answers, and what most of them share: users and items as rows of their own."""

from alexandra.keyspace import put

from .memory import Like, newest_first

# Rows in one call: enough that the way there and back does not count, and still small messages.
ROWS = 500
COLUMNS = 1000


class Design:
    """One way to keep users, items and likes in a keyspace.

    Answers are those of `memory.Memory`. A like again is a like at another time.
    """

    name = about = ""

    def __init__(self, keyspace):
        self._keyspace = keyspace

    def user(self, user):
        """The attributes of a user; none of one who is not known."""
        return attributes_of(self._keyspace.slice(user, "User"))

    def item(self, item):
        """The attributes of an item; none of one that is not known."""
        return attributes_of(self._keyspace.slice(item, "Item"))

    def liked_by(self, user, count=None):
        """The items that a user likes, newest first: all of them, or so many."""
        raise NotImplementedError

    def likers_of(self, item, count=None):
        """The users who like an item, newest first: all of them, or so many."""
        raise NotImplementedError

    def like(self, user, item, at):
        """A user likes an item, or likes it again."""
        raise NotImplementedError

    def unlike(self, user, item):
        """A user likes an item no more. Nothing happens where it was not liked."""
        raise NotImplementedError

    def rename_item(self, item, title):
        """An item gets another title, wherever that is written."""
        self._keyspace.mutate({item: {"Item": attribute_columns({"title": title}, self._now())}})

    def fill(self, memory):
        """Writes everything of a memory."""
        for family, entities in (("User", memory.users), ("Item", memory.items)):
            stamp = self._now()
            self._write((key, family, attribute_columns(attributes, stamp))
                        for key, attributes in entities.items())

    # What the designs build on.

    def _now(self):
        return self._keyspace.timestamp()

    def _write(self, rows):
        """Writes rows, (key, column family, mutations) each, in large batches."""
        batch, mutations = {}, 0
        for key, family, columns in rows:
            batch.setdefault(key, {}).setdefault(family, []).extend(columns)
            mutations += len(columns)
            if mutations >= COLUMNS:
                self._keyspace.mutate(batch)
                batch, mutations = {}, 0
        if batch:
            self._keyspace.mutate(batch)

    def _one(self, key, family, name):
        """One attribute; empty for an entity that is not known."""
        return (self._keyspace.get(key, family, name.encode()) or b"").decode()

    def _labelled(self, times, family, name, count):
        """Likes of these ids and times, newest first, with labels from rows of their own."""
        newest = newest_first(Like(id, "", at) for id, at in times.items())[:count]
        labels = {}
        for first in range(0, len(newest), ROWS):
            keys = [like.id for like in newest[first : first + ROWS]]
            bounds = {"start": name.encode(), "finish": name.encode()}
            labels |= self._keyspace.slices(keys, family, **bounds)
        return [like._replace(label=column.value.decode())
                for like in newest for column in labels[like.id]]


def moment(at):
    """A time as the bytes of a value."""
    return at.to_bytes(8, "big")


def moment_of(value):
    """The time that a value begins with."""
    return int.from_bytes(value[:8], "big")


def value(at, label):
    """A time and what the other side is called."""
    return moment(at) + label.encode()


def like_of(column):
    """The like of a column whose name is an id and whose value is one of `value`."""
    return Like(column.name.decode(), column.value[8:].decode(), moment_of(column.value))


def attribute_columns(attributes, stamp):
    """The mutations that write attributes."""
    return [put(name.encode(), text.encode(), stamp) for name, text in attributes.items()]


def attributes_of(columns):
    """The attributes that columns hold."""
    return {each.name.decode(): each.value.decode() for each in columns}
