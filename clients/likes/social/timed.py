"""Option 5, what it comes to: the indexes of option 3 in the order of time, the newest first."""

from alexandra.keyspace import delete, put

from . import composite
from .design import COLUMNS, Design, moment, moment_of
from .memory import Like

_ITEMS, _USERS, _WHEN = "Item_By_User_Timed", "User_By_Item_Timed", "Liked_At"


class Timed(Design):
    """The name of a column is (time, id): the newest ten are one slice of ten columns.

    A name that begins with the time cannot be found by the id alone. So `Liked_At` holds for each
    user when an item was liked, and a like or an unlike first reads one column of it.
    """

    name = "5 timed"
    about = "option 3 under names of (time, id), newest first"

    def liked_by(self, user, count=None):
        return self._likes(user, _ITEMS, count)

    def likers_of(self, item, count=None):
        return self._likes(item, _USERS, count)

    def like(self, user, item, at):
        title, name = self._one(item, "Item", "title"), self._one(user, "User", "name")
        stamp = self._now()
        # A deletion is as strong as a write of its time: never of the name that is written.
        before = [each for each in self._when(user, item) if each != at]
        self._write([*_without(user, item, before, stamp),
                     *_entries(user, item, at, stamp, title, name)])

    def unlike(self, user, item):
        stamp = self._now()
        before = self._when(user, item)
        self._write([*_without(user, item, before, stamp),
                     (user, _WHEN, [delete(stamp, [item.encode()])])])

    def rename_item(self, item, title):
        # From before the likers are read, so that an unlike meanwhile is newer than its copy.
        stamp = self._now()
        super().rename_item(item, title)
        self._write((liker.id, _ITEMS, [put(composite.name(liker.at, item), title.encode(), stamp)])
                    for liker in self._likes(item, _USERS))

    def fill(self, memory):
        super().fill(memory)
        stamp = self._now()
        self._write(entry for user, item, at in memory.likes()
                    for entry in _entries(user, item, at, stamp, memory.items[item]["title"],
                                          memory.users[user]["name"]))

    def _when(self, user, item):
        """The time of a like as a list, empty where there is none."""
        found = self._keyspace.get(user, _WHEN, item.encode())
        return [] if found is None else [moment_of(found)]

    def _likes(self, key, family, count=None):
        if count is None:
            columns = self._keyspace.each(key, family, page=COLUMNS)
        else:
            columns = self._keyspace.slice(key, family, count=count)
        found = []
        for each in columns:
            at, id = composite.parse(each.name)
            found.append(Like(id, each.value.decode(), at))
        return found


def _entries(user, item, at, stamp, title, name):
    yield user, _ITEMS, [put(composite.name(at, item), title.encode(), stamp)]
    yield item, _USERS, [put(composite.name(at, user), name.encode(), stamp)]
    yield user, _WHEN, [put(item.encode(), moment(at), stamp)]


def _without(user, item, times, stamp):
    for at in times:
        yield user, _ITEMS, [delete(stamp, [composite.name(at, item)])]
        yield item, _USERS, [delete(stamp, [composite.name(at, user)])]
