#!/usr/bin/python3
"""Users who like items, in five designs of one keyspace. See `likes.py --help`."""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

try:
    from alexandra import program
    from alexandra.connection import Connection
    from alexandra.keyspace import Keyspace
    from social import DESIGNS, KEYSPACE, clear, seeded
    from social.measure import Measure
except ImportError as missing:
    sys.exit(f"likes.py: {missing}")


# The seed is made in memory.
MOST_LIKES = 10_000_000


class LikesError(Exception):
    """It cannot be done; the text says why."""


def main():
    """Runs one command; the exit code is 1 when it could not be done."""
    options = _parser().parse_args()

    def work():
        connection = Connection(options.host, options.port, options.framed)
        with connection as client:
            keyspace = Keyspace(client, KEYSPACE)
            designs = {key: design(keyspace) for key, design in DESIGNS.items()}
            options.connection, options.keyspace = connection, keyspace
            options.run(designs, options)

    program.run(options, "likes.py", work, [LikesError])


def _parser():
    parser = program.parser("likes.py", "Users who like items, in five designs of one keyspace.")
    parser.add_argument("--design", choices=list(DESIGNS), default="timed",
                        help="which one answers; changes are made in all of them")
    command = program.commands(parser)

    fill = command("fill", _fill,
                   "delete all there is, and write users, items and likes from a seed")
    command("user", _user, "a user", "user")
    command("item", _item, "an item", "item")
    liked = command("liked", _liked, "the items that a user likes, newest first", "user")
    likers = command("likers", _likers, "the users who like an item, newest first", "item")
    command("like", _like, "a user likes an item", "user", "item")
    command("unlike", _unlike, "a user likes an item no more", "user", "item")
    command("rename", _rename, "give an item another title", "item", "title")
    measure = command("measure", _measure,
                      "fill, and print what each query costs in each design")
    for sub in (fill, measure):
        sub.add_argument("--likes", type=program.number(1, MOST_LIKES), default=10_000)
        sub.add_argument("--seed", type=program.number(0), default=1)
    for sub in (liked, likers):
        sub.add_argument("--newest", type=program.number(1), metavar="COUNT", help="only so many")
    measure.add_argument("--queries", type=program.number(1), default=500,
                         help="of each kind in each design")
    measure.add_argument("--seconds", type=program.number(0.001, 86_400, float), default=10,
                         help="no more for each of them")
    return parser


def _fill(designs, options):
    memory = seeded(options.likes, options.seed)
    clear(options.keyspace)
    for design in designs.values():
        started = time.perf_counter()
        design.fill(memory)
        print(f"{design.name}: {time.perf_counter() - started:.1f} s")
    users, items, likes = len(memory.users), len(memory.items), len(memory.likes())
    print(f"{users} users like {items} items {likes} times")


def _user(designs, options):
    _show(_known(designs[options.design].user(options.user), options.user))


def _item(designs, options):
    _show(_known(designs[options.design].item(options.item), options.item))


def _liked(designs, options):
    _known(designs[options.design].user(options.user), options.user)
    _list(designs[options.design].liked_by(options.user, options.newest))


def _likers(designs, options):
    _known(designs[options.design].item(options.item), options.item)
    _list(designs[options.design].likers_of(options.item, options.newest))


def _like(designs, options):
    _known(designs["ids"].user(options.user), options.user)
    _known(designs["ids"].item(options.item), options.item)
    at = time.time_ns() // 1000
    for design in designs.values():
        design.like(options.user, options.item, at)


def _unlike(designs, options):
    _known(designs["ids"].user(options.user), options.user)
    _known(designs["ids"].item(options.item), options.item)
    liked = False
    for design in designs.values():
        # All are asked: a like that was interrupted is in some of them only.
        liked |= any(like.id == options.item for like in design.liked_by(options.user))
        design.unlike(options.user, options.item)
    if not liked:
        raise LikesError(f"{options.user} does not like {options.item}")


def _rename(designs, options):
    _known(designs["ids"].item(options.item), options.item)
    for design in designs.values():
        design.rename_item(options.item, options.title)


def _measure(designs, options):
    _fill(designs, options)
    memory = seeded(options.likes, options.seed)
    measure = Measure(options.connection, list(designs.values()), memory,
                      options.queries, options.seconds)
    print("\n".join(measure.lines()))


def _known(attributes, id):
    if not attributes:
        raise LikesError(f"there is no {id}")
    return attributes


def _show(attributes):
    for name, value in sorted(attributes.items()):
        print(f"{name}: {value}")


def _list(likes):
    program.show(f"{_moment(like.at)}  {like.id}  {like.label}" for like in likes)


def _moment(at):
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at // 1_000_000))


if __name__ == "__main__":
    main()
