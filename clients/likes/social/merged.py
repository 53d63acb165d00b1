"""Option 4: the attributes of an entity and what it likes, or who likes it, in one row."""

from alexandra.keyspace import delete, put

from .design import COLUMNS, Design, attribute_columns, attributes_of, like_of, value
from .memory import newest_first

_USERS, _ITEMS = "User_With_Items", "Item_With_Users"
# Begins the name of a like. It is behind all letters, so that the attributes come first.
_LIKE = "~"


class Merged(Design):
    """Two column families instead of four; a row has two kinds of columns."""

    name = "4 merged"
    about = "an entity and its index in one row"

    def user(self, user):
        return attributes_of(self._keyspace.slice(user, _USERS, finish=_LIKE.encode()))

    def item(self, item):
        return attributes_of(self._keyspace.slice(item, _ITEMS, finish=_LIKE.encode()))

    def liked_by(self, user, count=None):
        return self._likes(user, _USERS)[:count]

    def likers_of(self, item, count=None):
        return self._likes(item, _ITEMS)[:count]

    def like(self, user, item, at):
        labels = self._one(item, _ITEMS, "title"), self._one(user, _USERS, "name")
        self._write(_entries(user, item, at, self._now(), *labels))

    def unlike(self, user, item):
        stamp = self._now()
        self._write([
            (user, _USERS, [delete(stamp, [_name(item)])]),
            (item, _ITEMS, [delete(stamp, [_name(user)])]),
        ])

    def rename_item(self, item, title):
        # From before the likers are read, so that an unlike meanwhile is newer than its copy.
        stamp = self._now()
        self._write([(item, _ITEMS, attribute_columns({"title": title}, stamp))])
        self._write((liker.id, _USERS, [put(_name(item), value(liker.at, title), stamp)])
                    for liker in self._likes(item, _ITEMS))

    def fill(self, memory):
        for family, entities in ((_USERS, memory.users), (_ITEMS, memory.items)):
            stamp = self._now()
            self._write((key, family, attribute_columns(attributes, stamp))
                        for key, attributes in entities.items())
        stamp = self._now()
        self._write(entry for user, item, at in memory.likes()
                    for entry in _entries(user, item, at, stamp, memory.items[item]["title"],
                                          memory.users[user]["name"]))

    def _likes(self, key, family):
        columns = self._keyspace.each(key, family, start=_LIKE.encode(), page=COLUMNS)
        found = [like_of(each) for each in columns]
        return newest_first(like._replace(id=like.id[len(_LIKE) :]) for like in found)


def _entries(user, item, at, stamp, title, name):
    yield user, _USERS, [put(_name(item), value(at, title), stamp)]
    yield item, _ITEMS, [put(_name(user), value(at, name), stamp)]


def _name(id):
    return f"{_LIKE}{id}".encode()
