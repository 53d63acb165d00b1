#!/usr/bin/python3
"""Fills a small keyspace and compares every answer of every design with plain dictionaries.

Exits with 1 at the first difference and says which. Each run has ids of its own, so it can be
repeated on a server that already holds data.
"""

import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

try:
    from alexandra import checking
    from alexandra.keyspace import Keyspace
    from social import DESIGNS, KEYSPACE, composite, seeded
except ImportError as missing:
    sys.exit(f"check.py: {missing}")

LIKES = 400
CHANGES = 40
# Calls that each query of the check takes at its size, where a page is more than a row.
CALLS = {
    "user": {"relational": 1, "ids": 1, "labels": 1, "merged": 1, "timed": 1},
    "item": {"relational": 1, "ids": 1, "labels": 1, "merged": 1, "timed": 1},
    "liked_by": {"ids": 2, "labels": 1, "merged": 1, "timed": 1},
    "likers_of": {"ids": 2, "labels": 1, "merged": 1, "timed": 1},
    "newest items": {"ids": 2, "labels": 1, "merged": 1, "timed": 1},
    "newest users": {"ids": 2, "labels": 1, "merged": 1, "timed": 1},
    "like": {"relational": 1, "ids": 1, "labels": 3, "merged": 3, "timed": 4},
    "unlike": {"ids": 1, "labels": 1, "merged": 1, "timed": 2},
    "rename_item": {"relational": 1, "ids": 1, "labels": 3, "merged": 3, "timed": 3},
}


class Run:
    """One pass over one connection: the designs, and the memory that knows what is due."""

    def __init__(self, connection, answers):
        self._answers = answers
        self._traffic = connection.traffic
        keyspace = Keyspace(connection.client, KEYSPACE)
        self.designs = {key: design(keyspace) for key, design in DESIGNS.items()}
        self.memory = seeded(LIKES, prefix=f"{time.time_ns():x}-")
        self.users, self.items = list(self.memory.users), list(self.memory.items)

    def fill(self):
        """Writes the seed into every design."""
        for design in self.designs.values():
            design.fill(self.memory)

    def ask(self, what, due, query):
        """Every design gives the answer that is due, with the calls that it should take."""
        for key, design in self.designs.items():
            before = self._traffic.calls
            got = query(design)
            self._answers.same(f"{what}, {design.name}", got, due)
            calls = CALLS.get(what.split(" of ")[0], {}).get(key)
            # An empty list has no labels to read.
            if calls and due != []:
                self._answers.same(f"calls for {what}, {design.name}",
                                   self._traffic.calls - before, calls)

    def change(self, what, change):
        """The memory and every design change; none answers anything."""
        change(self.memory)
        self.ask(what, None, change)

    def everything(self):
        """All that can be asked."""
        for user in [*self.users, "nobody"]:
            self.about_user(user)
        for item in [*self.items, "nothing"]:
            self.about_item(item)

    def about_user(self, user):
        """All that can be asked about a user."""
        memory = self.memory
        self.ask(f"user of {user}", memory.user(user), lambda it: it.user(user))
        self.ask(f"liked_by of {user}", memory.liked_by(user), lambda it: it.liked_by(user))
        due = memory.liked_by(user, 10)
        self.ask(f"newest items of {user}", due, lambda it: it.liked_by(user, 10))

    def about_item(self, item):
        """All that can be asked about an item."""
        memory = self.memory
        self.ask(f"item of {item}", memory.item(item), lambda it: it.item(item))
        self.ask(f"likers_of of {item}", memory.likers_of(item), lambda it: it.likers_of(item))
        due = memory.likers_of(item, 10)
        self.ask(f"newest users of {item}", due, lambda it: it.likers_of(item, 10))

    def changes(self):
        """Likes, likes again, unlikes and new titles in any order, each seen at once."""
        chance = random.Random(7)
        at = max(at for *_, at in self.memory.likes())
        for number in range(CHANGES):
            user, item = chance.choice(self.users), chance.choice(self.items)
            liked = [like.id for like in self.memory.liked_by(user)]
            # Half of the time with what is liked: likes again, and unlikes that find something.
            if liked and number % 2:
                item = chance.choice(liked)
            kind = chance.choice(["like", "like", "unlike", "rename_item"])
            if kind == "like":
                # Sometimes at the moment of the last one.
                at += chance.choice([0, 1, 1_000_000])
                self.change(f"like of {user}, {item}", lambda it: it.like(user, item, at))
            elif kind == "unlike":
                self.change(f"unlike of {user}, {item}", lambda it: it.unlike(user, item))
            elif self.memory.likers_of(item):
                title = f"größer {number}"
                self.change(f"rename_item of {item}", lambda it: it.rename_item(item, title))
            self.about_user(user)
            self.about_item(item)


def composite_names(answers):
    """Names are as the comparator documents them."""
    answers.same("a name", composite.name(258, "ab"), bytes.fromhex(
        "0008 0000000000000102 00" "0002 6162 00"))
    answers.same("back again", composite.parse(composite.name(2**62, "größer")), (2**62, "größer"))


def scenario(open_connection, answers):
    """Fill, ask everything, change, ask everything again."""
    composite_names(answers)
    with_client = open_connection()
    try:
        run = Run(with_client, answers)
        run.fill()
        run.everything()
        run.changes()
        run.everything()
    finally:
        with_client.close()


if __name__ == "__main__":
    checking.main(__doc__.split("\n")[0], scenario)
