"""Options 2 and 3: each side of a like has a row that lists the other side."""

from alexandra.keyspace import delete, put

from .design import COLUMNS, Design, like_of, moment, moment_of, value
from .memory import newest_first


class Indexed(Design):
    """Ids on the other side, each with its time; attributes are read from their entities."""

    name = "2 ids"
    about = "custom indexes Item_By_User and User_By_Item: ids"
    _items, _users = "Item_By_User_Ids", "User_By_Item_Ids"

    def liked_by(self, user, count=None):
        return self._labelled(self._times(user, self._items), "Item", "title", count)

    def likers_of(self, item, count=None):
        return self._labelled(self._times(item, self._users), "User", "name", count)

    def like(self, user, item, at):
        self._write(self._entries(user, item, at, self._now()))

    def unlike(self, user, item):
        stamp = self._now()
        self._write([
            (user, self._items, [delete(stamp, [item.encode()])]),
            (item, self._users, [delete(stamp, [user.encode()])]),
        ])

    def fill(self, memory):
        super().fill(memory)
        stamp = self._now()
        self._write(entry for user, item, at in memory.likes()
                    for entry in self._entries(user, item, at, stamp,
                                               memory.items[item]["title"],
                                               memory.users[user]["name"]))

    def _entries(self, user, item, at, stamp, title="", name=""):
        """The rows that one like writes; here without what the other side is called."""
        yield user, self._items, [put(item.encode(), moment(at), stamp)]
        yield item, self._users, [put(user.encode(), moment(at), stamp)]

    def _times(self, key, family):
        # The index is in the order of ids: even for the newest ten it is read as a whole.
        columns = self._keyspace.each(key, family, page=COLUMNS)
        return {each.name.decode(): moment_of(each.value) for each in columns}


class Labelled(Indexed):
    """The same with the title or the name behind the time: a list is one row."""

    name = "3 labels"
    about = "the same indexes, with the title or the user's name in the value"
    _items, _users = "Item_By_User_Labels", "User_By_Item_Labels"

    def liked_by(self, user, count=None):
        return newest_first(self._likes(user, self._items))[:count]

    def likers_of(self, item, count=None):
        return newest_first(self._likes(item, self._users))[:count]

    def like(self, user, item, at):
        # A title that is changed after it was read here stays as it was in this copy.
        labels = self._one(item, "Item", "title"), self._one(user, "User", "name")
        self._write(self._entries(user, item, at, self._now(), *labels))

    def rename_item(self, item, title):
        # From before the likers are read, so that an unlike meanwhile is newer than its copy.
        stamp = self._now()
        super().rename_item(item, title)
        self._write((liker.id, self._items, [put(item.encode(), value(liker.at, title), stamp)])
                    for liker in self._likes(item, self._users))

    def _entries(self, user, item, at, stamp, title, name):
        yield user, self._items, [put(item.encode(), value(at, title), stamp)]
        yield item, self._users, [put(user.encode(), value(at, name), stamp)]

    def _likes(self, key, family):
        columns = self._keyspace.each(key, family, page=COLUMNS)
        return [like_of(each) for each in columns]
