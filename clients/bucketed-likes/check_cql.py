#!/usr/bin/python3
"""Likes in CQL and Thrift over the same rows, and in CQL alone; compares with a dictionary.

Exits with 1 at the first difference and says which. Each run has posts of its own, so it can be
repeated on a server that already holds data.
"""

import sys
import time
from contextlib import closing
from itertools import islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

try:
    from alexandra import cql
    from spread import growing, jump, work
    from spread.cql import BUCKETS, OwnTable, SharedRows
    from spread.post import MOST_BUCKETS, Likes, LikesError
    from spread.reading import FIRST_PAGE, Reader
except ImportError as missing:
    sys.exit(f"check_cql.py: {missing}")

LIKES = 3000
# Buckets of a post that grows, before and after.
FEW, MORE = 8, 12
# Much smaller than a bucket of a post in few buckets, so that there are pages.
PAGE = 7
# Layouts are used so long in this check, and given so long to be known to all.
REFRESH_S, SETTLE_S = 0.05, 1


class Counting:
    """A session that counts what it is asked to execute."""

    def __init__(self, session):
        self._session = session
        self.asked = 0

    def __getattr__(self, name):
        return getattr(self._session, name)

    def execute(self, *arguments, **named):
        """As of a session."""
        self.asked += 1
        return self._session.execute(*arguments, **named)

    def execute_async(self, *arguments, **named):
        """As of a session."""
        self.asked += 1
        return self._session.execute_async(*arguments, **named)


class Run:
    """One post, how it is written and read, and the likes that it is due to have."""

    def __init__(self, answers, likes, name):
        self.answers, self.likes = answers, likes
        self.post = f"{name}-{time.time_ns():x}"
        self.due = {}

    def everything(self):
        """All that can be read in CQL."""
        same, due = self.answers.same, sorted(self.due.items())
        same("all likes", [tuple(liker) for liker in self.likes.likers(self.post)], due)
        pages = list(self.likes.pages(self.post))
        same("all pages", sorted(tuple(liker) for page in pages for liker in page), due)
        same("the longest page", max(map(len, pages)) <= PAGE, True)
        same("the count", self.likes.count(self.post), len(due))
        for user, at in due[::100]:
            same(f"the like of {user}", self.likes.liked_at(self.post, user), at)
        same("a like of nobody", self.likes.liked_at(self.post, "nobody"), None)

    def change(self, like, unlike):
        """Unlikes, likes again and new likes, by these functions."""
        for number, user in enumerate(sorted(self.due)[::37]):
            if number % 2:
                unlike(self.post, user)
                del self.due[user]
            else:
                self.due[user] += 1000
                like(self.post, {user: self.due[user]})
        unlike(self.post, "nobody")
        added = {f"größer{number}": number * 1000 for number in range(50)}
        like(self.post, added)
        self.due |= added

    def lazily(self, session, buckets):
        """Who takes a few likes does not make the server read all."""
        counting = Counting(session)
        self.likes._session = counting
        with closing(self.likes.likers(self.post)) as likers:
            self.answers.same("nothing asked yet", counting.asked, 0)
            first = [tuple(liker) for liker in islice(likers, 5)]
        self.answers.same("the first five", first, sorted(self.due.items())[:5])
        # The layout, the first page of each bucket, and the next one of those that gave something.
        self.answers.same(f"{counting.asked} statements", counting.asked <= buckets + 6, True)
        counting.asked = 0
        with closing(self.likes.pages(self.post)) as pages:
            next(pages)
        self.answers.same("statements for one page", counting.asked <= 2, True)
        self.likes._session = session


class Thrift:
    """The Thrift programs."""

    def __init__(self, open_connection, client):
        self.open = open_connection
        self.likes = Likes(client, REFRESH_S)

    def everything(self, run):
        """All of a run's likes that can be read by Thrift."""
        same, due = run.answers.same, sorted(run.due.items())
        reader = Reader(self.open)
        same("all likes by Thrift", [tuple(liker) for liker in reader.likers(run.post)], due)
        same("the count by Thrift", reader.count(run.post), len(due))
        for user, at in due[::100]:
            same(f"the like of {user}", self.likes.liked_at(run.post, user), at)


def both(run, thrift):
    """Each side writes what the other one reads."""
    run.everything()
    thrift.everything(run)
    run.change(run.likes.like, run.likes.unlike)
    thrift.everything(run)
    run.change(thrift.likes.like, thrift.likes.unlike)
    run.everything()


def begun_in_cql(thrift, session, answers):
    """A post that CQL begins and Thrift finds; it is not begun twice."""
    run = Run(answers, SharedRows(session, PAGE, REFRESH_S), "begun")
    answers.refused("no post", LikesError, lambda: run.likes.count(run.post))
    answers.refused("too many buckets", LikesError,
                    lambda: run.likes.begin(run.post, MOST_BUCKETS + 1))
    run.likes.begin(run.post, 3)
    run.likes.begin(run.post, 4)
    answers.same("buckets", thrift.likes.layout(run.post).buckets, 3)
    run.due = dict(work.seeded(0, 100))
    run.likes.like(run.post, run.due)
    both(run, thrift)


def shared(thrift, session, answers, buckets):
    """The rows of the Thrift programs, begun and filled by these."""
    run = Run(answers, SharedRows(session, PAGE, REFRESH_S), "shared")
    thrift.likes.begin(run.post, buckets)
    list(work.fill(thrift.open, run.post, LIKES, processes=1))
    run.due = dict(work.seeded(0, LIKES))
    both(run, thrift)
    run.lazily(session, buckets)
    return run


def growth(thrift, run):
    """More buckets: CQL writes to both places, and skips the copies until they are swept."""
    user = next(user for user in run.due
                if jump.bucket_of(user, FEW) != jump.bucket_of(user, MORE))
    layout = thrift.likes.layout(run.post, fresh=True)
    thrift.likes.set_layout(layout._replace(following=MORE))
    time.sleep(2 * REFRESH_S)
    run.likes.unlike(run.post, user)
    run.likes.like(run.post, {user: 5000})
    run.due[user] = 5000
    growing.grow(thrift.open, run.post, MORE, 1, SETTLE_S)
    time.sleep(2 * REFRESH_S)
    run.everything()
    thrift.everything(run)
    growing.sweep(thrift.open, run.post, 1, SETTLE_S)
    time.sleep(2 * REFRESH_S)
    run.everything()


def own(session, answers):
    """The table of its own. It keeps milliseconds."""
    run = Run(answers, OwnTable(session, PAGE), "own")
    run.due = dict(work.seeded(0, LIKES))
    run.likes.like(run.post, run.due)
    run.everything()
    run.change(run.likes.like, run.likes.unlike)
    run.everything()
    run.lazily(session, BUCKETS)
    query = f"SELECT user FROM {run.likes.TABLE} WHERE post_id = %s AND bucket = %s"
    for bucket in range(0, BUCKETS, 16):
        due = sorted(user for user in run.due if jump.bucket_of(user, BUCKETS) == bucket)
        found = [user for user, in session.execute(query, [run.post, bucket])]
        answers.same(f"bucket {bucket}", found, due)
    answers.same("no post", run.likes.count("nothing"), 0)


def scenario(open_connection, session, answers):
    """The rows of both in many buckets and few, growth, and the table of its own."""
    with open_connection() as client:
        thrift = Thrift(open_connection, client)
        begun_in_cql(thrift, session, answers)
        growth(thrift, shared(thrift, session, answers, FEW))
        shared(thrift, session, answers, BUCKETS)
    own(session, answers)


if __name__ == "__main__":
    cql.check(__doc__.split("\n")[0], scenario)
