#!/usr/bin/python3
"""The likes of a post over many rows, in CQL. See `bucketed-likes-cql.py --help`."""

import sys
import time
from contextlib import closing
from itertools import islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

try:
    from alexandra import cql, program
    from spread.cql import OwnTable, SharedRows
    from spread.post import LikesError
except ImportError as missing:
    sys.exit(f"bucketed-likes-cql.py: {missing}")

NAME = "bucketed-likes-cql.py"


def main():
    """Runs one command; the exit code is 1 when it could not be done."""
    options = _parser().parse_args()

    def work():
        with cql.connect(options.host, options.port) as session:
            likes = OwnTable(session) if options.own_table else SharedRows(session)
            options.run(likes, options)

    program.run(options, NAME, work, [LikesError, *cql.FAILURES])


def _parser():
    parser = program.server_parser(NAME, "The likes of a post over many rows, in CQL.", cql.PORT)
    parser.add_argument("--own-table", action="store_true",
                        help="likes_by_post_and_buckets instead of the rows of the Thrift programs")
    command = program.commands(parser)

    command("like", _like, "a user likes a post", "post", "user")
    command("unlike", _unlike, "a user likes a post no more", "post", "user")
    command("liked", _liked, "whether a user likes a post, and since when", "post", "user")
    likers = command("likers", _likers, "who likes a post, in the order of ids", "post")
    likers.add_argument("--first", type=program.number(1), metavar="COUNT", help="only so many")
    command("pages", _pages, "who likes a post, page by page as the buckets have them", "post")
    command("count", _count, "how many like a post", "post")
    return parser


def _like(likes, options):
    likes.like(options.post, {options.user: time.time_ns() // 1000})


def _unlike(likes, options):
    likes.unlike(options.post, options.user)


def _liked(likes, options):
    at = likes.liked_at(options.post, options.user)
    if at is None:
        raise LikesError(f"{options.user} does not like {options.post}")
    print(program.moment(at))


def _likers(likes, options):
    with closing(likes.likers(options.post)) as likers:
        program.show(f"{program.moment(liker.at)}  {liker.user}"
                     for liker in islice(likers, options.first))


def _pages(likes, options):
    with closing(likes.pages(options.post)) as pages:
        program.show(" ".join(liker.user for liker in page) for page in pages if page)


def _count(likes, options):
    print(likes.count(options.post))


if __name__ == "__main__":
    main()
