#!/usr/bin/python3
"""The likes of a post over many rows. See `bucketed-likes.py --help`."""

import sys
import time
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

try:
    from alexandra import program
    from alexandra.connection import Connection
    from spread import growing, work
    from spread.measure import Measure, distribution
    from spread.post import MOST_BUCKETS, Likes, LikesError
    from spread.reading import Reader
except ImportError as missing:
    sys.exit(f"bucketed-likes.py: {missing}")

NAME = "bucketed-likes.py"


def main():
    """Runs one command; the exit code is 1 when it could not be done."""
    options = _parser().parse_args()
    open_connection = partial(Connection, options.host, options.port, options.framed)
    program.run(options, NAME, lambda: options.run(open_connection, options), [LikesError])


def _parser():
    parser = program.parser(NAME, "The likes of a post over many rows.")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    buckets = program.number(1, MOST_BUCKETS)

    def command(name, run, about, *arguments):
        sub = commands.add_parser(name, help=about, description=about)
        sub.set_defaults(run=run)
        for argument in arguments:
            sub.add_argument(argument, type=buckets if argument == "buckets" else str)
        return sub

    command("begin", _begin, "a new post with so many buckets", "post", "buckets")
    fill = command("fill", _fill, "write likes from a seed into a post, which begins with it",
                   "post")
    command("like", _like, "a user likes a post", "post", "user")
    command("unlike", _unlike, "a user likes a post no more", "post", "user")
    command("liked", _liked, "whether a user likes a post, and since when", "post", "user")
    likers = command("likers", _likers, "who likes a post, in the order of ids", "post")
    command("count", _count, "how many like a post", "post")
    command("distribution", _distribution, "how evenly the likes are spread", "post")
    grow = command("grow", _grow, "give a post more buckets, and copy what moves",
                   "post", "buckets")
    sweep = command("sweep", _sweep, "delete what a growth left behind", "post")
    measure = command("measure", _measure, "fill two posts, one in a single row, and compare")
    likers.add_argument("--first", type=program.number(1), metavar="COUNT", help="only so many")
    for sub in (fill, measure):
        sub.add_argument("--likes", type=program.number(1), default=100_000)
        sub.add_argument("--buckets", type=buckets, default=256)
        sub.add_argument("--seed", type=program.number(0), default=1)
    for sub in (fill, grow, sweep, measure):
        sub.add_argument("--processes", type=program.number(1, program.MOST_PROCESSES), default=2)
    return parser


def _begin(open_connection, options):
    with open_connection() as client:
        Likes(client).begin(options.post, options.buckets)


def _fill(open_connection, options):
    _begin(open_connection, options)
    started = time.perf_counter()
    for done in work.fill(open_connection, options.post, options.likes, options.processes,
                          options.seed):
        program.progress(f"{done:,} likes")
    program.progress("")
    print(f"{options.likes:,} likes in {time.perf_counter() - started:.1f} s")


def _like(open_connection, options):
    with open_connection() as client:
        Likes(client).like(options.post, {options.user: time.time_ns() // 1000})


def _unlike(open_connection, options):
    with open_connection() as client:
        likes = Likes(client)
        at = likes.liked_at(options.post, options.user)
        likes.unlike(options.post, options.user)
    if at is None:
        raise LikesError(f"{options.user} does not like {options.post}")


def _liked(open_connection, options):
    with open_connection() as client:
        at = Likes(client).liked_at(options.post, options.user)
    if at is None:
        raise LikesError(f"{options.user} does not like {options.post}")
    print(program.moment(at))


def _likers(open_connection, options):
    with closing(Reader(open_connection).likers(options.post)) as likers:
        program.show(f"{program.moment(liker.at)}  {liker.user}"
                     for liker in islice(likers, options.first))


def _count(open_connection, options):
    print(Reader(open_connection).count(options.post))


def _distribution(open_connection, options):
    print("\n".join(distribution(open_connection, options.post)))


def _grow(open_connection, options):
    copied, likes = growing.grow(open_connection, options.post, options.buckets,
                                 options.processes)
    print(f"{copied:,} of {likes:,} likes copied; sweep when all who read now have ended")


def _sweep(open_connection, options):
    swept = growing.sweep(open_connection, options.post, options.processes)
    print(f"{swept:,} likes swept")


def _measure(open_connection, options):
    print("\n".join(["", *Measure(open_connection, options).lines()]))


if __name__ == "__main__":
    main()
