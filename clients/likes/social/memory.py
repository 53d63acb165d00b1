"""Users, items and likes in plain dictionaries: where the seed comes from, and what is due.

It answers the same questions as the designs in the keyspace do.
"""

import random
from typing import NamedTuple

USERS_LIKE = 50
ITEMS_ARE_LIKED = 100
# The first moment of the seed, in microseconds of Unix time: 15 July 2012.
FIRST = 1_342_310_400_000_000

_ADJECTIVES = "antique blue broken carved golden large old painted rare red silver small".split()
_THINGS = "bicycle camera clock guitar lamp map mirror radio stamp table teapot watch".split()
_NAMES = "Ada Alan Barbara Donald Edsger Frances Grace Jürgen Ken Leslie Niklaus Zoë".split()


class Like(NamedTuple):
    """One end of a like as the other sees it: an item and its title, or a user and the name."""

    id: str
    label: str
    # When it was liked, in microseconds of Unix time.
    at: int


class Memory:
    """The model that every answer of a server is compared with."""

    def __init__(self):
        self.users = {}
        self.items = {}
        # Item and time by user, and user and time by item.
        self.by_user = {}
        self.by_item = {}

    def user(self, user):
        """The attributes of a user; none of one who is not known."""
        return self.users.get(user, {})

    def item(self, item):
        """The attributes of an item; none of one that is not known."""
        return self.items.get(item, {})

    def liked_by(self, user, count=None):
        """The items that a user likes, newest first."""
        liked = self.by_user.get(user, {})
        found = [Like(item, self.items[item]["title"], at) for item, at in liked.items()]
        return newest_first(found)[:count]

    def likers_of(self, item, count=None):
        """The users who like an item, newest first."""
        likers = self.by_item.get(item, {})
        found = [Like(user, self.users[user]["name"], at) for user, at in likers.items()]
        return newest_first(found)[:count]

    def like(self, user, item, at):
        """A user likes an item, or likes it again."""
        self.by_user.setdefault(user, {})[item] = at
        self.by_item.setdefault(item, {})[user] = at

    def unlike(self, user, item):
        """A user likes an item no more."""
        self.by_user.get(user, {}).pop(item, None)
        self.by_item.get(item, {}).pop(user, None)

    def rename_item(self, item, title):
        """An item gets another title."""
        self.items[item]["title"] = title

    def likes(self):
        """Every like: user, item, time."""
        return [(user, item, at) for user, liked in self.by_user.items()
                for item, at in liked.items()]


def newest_first(likes):
    """The order of every answer; of two likes at the same moment the lesser id comes first."""
    return sorted(likes, key=lambda like: (-like.at, like.id))


def seeded(likes, seed=1, prefix=""):
    """A memory with about so many likes, always the same for one seed; ids begin with `prefix`.

    A user likes some fifty items. A few items are liked by very many and most by few.
    """
    chance, made = random.Random(seed), Memory()
    users = [f"{prefix}user{number:06}" for number in range(max(2, likes // USERS_LIKE))]
    items = [f"{prefix}item{number:06}" for number in range(max(2, likes // ITEMS_ARE_LIKED))]
    for user in users:
        name = f"{chance.choice(_NAMES)} {chance.randrange(10_000)}"
        made.users[user] = {"name": name, "email": f"{user}@example.org"}
    for item in items:
        title = f"{chance.choice(_ADJECTIVES)} {chance.choice(_THINGS)} {chance.randrange(10_000)}"
        made.items[item] = {
            "title": title,
            "description": f"A {title}, as good as new. " * 4,
            "price": f"{chance.randrange(1, 500)}.00",
        }
    for number in range(likes):
        item = items[int(len(items) * chance.random() ** 2)]
        # Ten in a second, and some of them at the same moment.
        at = FIRST + (number // 2) * 200_000
        made.like(chance.choice(users), item, at)
    return made
