#!/usr/bin/python3
"""Spreads likes over buckets, reads them back and lets them grow; compares with a dictionary.

Exits with 1 at the first difference and says which. Each run has posts of its own, so it can be
repeated on a server that already holds data.
"""

import multiprocessing
import sys
import time
from contextlib import closing
from itertools import islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

try:
    from alexandra import checking
    from alexandra.bindings import ttypes
    from alexandra.keyspace import Keyspace
    from spread import growing, jump, work
    from spread.post import KEYSPACE, MOST_BUCKETS, Likes, LikesError
    from spread.reading import FIRST_PAGE, WORKERS, Reader
except ImportError as missing:
    sys.exit(f"check.py: {missing}")

LIKES = 3000
BUCKETS, MORE = 16, 24
# Much smaller than a row here, so that there are pages.
PAGE = 30
# Layouts are used so long in this check, and given so long to be known to all.
REFRESH_S, SETTLE_S = 0.05, 2

# Key, buckets, bucket. The first ten are known from other programs with this hash, Guava's own
# tests among them; the others tell what becomes of the ends of 64 bits.
VECTORS = [
    (1, 1, 0), (1, 10, 6), (1, 100, 55), (2, 100, 62), (0xDEADBEEF, 1000, 285),
    (10863919174838991, 11, 6), (2016238256797177309, 11, 3), (1673758223894951030, 11, 5),
    (2, 100001, 80343), (2202, 100001, 15018),
    (0, 256, 0), (2**63, 256, 107), (2**64 - 1, 256, 248), (-1, 256, 248),
]


def the_hash(answers):
    """The jump is the one that others compute too, and moves no more than it must."""
    for key, buckets, bucket in VECTORS:
        found = jump.consistent_hash(key, buckets)
        answers.same(f"bucket of {key} in {buckets}", found, bucket)
    answers.refused("no bucket", ValueError, lambda: jump.consistent_hash(1, 0))
    # The MD5 of nothing begins with d4 1d 8c d9 8f 00 b2 04.
    answers.same("the hash of nothing", jump.hash_of(""), 0x04B2008FD98C1DD4)
    buckets = {name: jump.bucket_of(name, 256) for name in ("ada", "zoë", "")}
    answers.same("buckets of users", buckets, {"ada": 49, "zoë": 207, "": 129})
    for user in ("ada", "zoë", "user00000001"):
        places = [jump.bucket_of(user, buckets) for buckets in range(1, 400)]
        for buckets, (before, after) in enumerate(zip(places, places[1:]), start=1):
            answers.same(f"{user} with another bucket", after in (before, buckets), True)


class Run:
    """One pass: a post, and the likes that it is due to have."""

    def __init__(self, open_connection, client, answers, buckets):
        self.open, self.answers, self.buckets = open_connection, answers, buckets
        self.post = f"post-{time.time_ns():x}"
        self.keyspace = Keyspace(client, KEYSPACE)
        self.likes = Likes(client, REFRESH_S)
        self.due = {}

    def fill(self):
        """Several processes write."""
        self.likes.begin(self.post, self.buckets)
        done = list(work.fill(self.open, self.post, LIKES, processes=3, batch=100))
        self.answers.same("likes written", done[-1], LIKES)
        self.due = dict(work.seeded(0, LIKES))
        self.answers.same("users of the seed", len(self.due), LIKES)

    def everything(self):
        """All that can be read, in every way."""
        same, due = self.answers.same, sorted(self.due.items())
        reader = Reader(self.open, page=PAGE)
        same("all likes", [tuple(liker) for liker in reader.likers(self.post)], due)
        same("the count", reader.count(self.post), len(due))
        for user, at in due[::100]:
            same(f"the like of {user}", self.likes.liked_at(self.post, user), at)
        same("a like of nobody", self.likes.liked_at(self.post, "nobody"), None)

    def rows(self, buckets):
        """Each row holds the users of its bucket, and nothing else."""
        for bucket in range(buckets):
            row = self.keyspace.each(f"{self.post}:{bucket}", "Likes", page=PAGE)
            due = sorted(user for user in self.due if jump.bucket_of(user, buckets) == bucket)
            self.answers.same(f"row {bucket} of {buckets}", [c.name.decode() for c in row], due)
        sizes = Reader(self.open).counts(self.post)
        found = [len(list(self.keyspace.each(f"{self.post}:{bucket}", "Likes")))
                 for bucket in range(buckets)]
        self.answers.same("counts", sizes, found)

    def stop_early(self):
        """Who takes a few does not make the reader read all, nor hold a connection."""
        reader, opened = Reader(self.open, page=PAGE), []
        reader.open = lambda: opened.append(self.open()) or opened[-1]
        with closing(reader.likers(self.post)) as likers:
            self.answers.same("nothing yet", opened, [])
            first = [tuple(liker) for liker in islice(likers, 5)]
        self.answers.same("the first five", first, sorted(self.due.items())[:5])
        # The layout, the first page of each row, and the next one of those that gave something.
        most = 1 + self.buckets + 5 + 1
        self.answers.same(f"{reader.calls} calls", reader.calls <= most, True)
        received = sum(connection.traffic.received for connection in opened)
        columns = self.buckets * (FIRST_PAGE + 1) + 6 * (PAGE + 1)
        self.answers.same(f"{received} bytes", received < columns * 60 + 1000, True)
        open_ones = [connection for connection in opened if connection._transport.isOpen()]
        self.answers.same("connections left", open_ones, [])
        self.answers.same("connections", len(opened) <= WORKERS, True)

    def change(self):
        """Unlikes, likes again and new likes."""
        for number, user in enumerate(sorted(self.due)[::7]):
            if number % 2:
                self.likes.unlike(self.post, user)
                del self.due[user]
            else:
                self.due[user] += 1
                self.likes.like(self.post, {user: self.due[user]})
        self.likes.unlike(self.post, "nobody")
        added = {f"größer{number}": number for number in range(50)}
        self.likes.like(self.post, added)
        self.due |= added

    def grow(self):
        """More buckets, while another process likes and unlikes; nothing is lost, and no more
        is moved than the share of the new buckets."""
        fork = multiprocessing.get_context("fork")
        stop = fork.Event()
        pipe, other = fork.Pipe()
        writer = fork.Process(target=_go_on, args=(self.open, self.post, sorted(self.due),
                                                   stop, other))
        writer.start()
        # Now the process alone holds that end: should it die, that is the end of the pipe.
        other.close()
        try:
            moved, seen = growing.grow(self.open, self.post, MORE, 2, SETTLE_S)
            Reader(self.open, page=PAGE).count(self.post)
        finally:
            stop.set()
        try:
            liked, unliked = pipe.recv()
        except EOFError:
            writer.join(10)
            code = writer.exitcode
            raise checking.Difference(f"who likes meanwhile has ended with {code}") from None
        writer.join()
        self.answers.same("the other wrote meanwhile", bool(liked and unliked), True)
        self.due = {user: at for user, at in (self.due | liked).items() if user not in unliked}
        self.everything()
        share = (MORE - BUCKETS) / MORE
        # Ten standard deviations of a fair choice.
        slack = 10 * (seen * share * (1 - share)) ** 0.5
        self.answers.same(f"{moved} of {seen} moved", abs(moved - seen * share) < slack, True)
        self.answers.refused("growth before a sweep", LikesError,
                             lambda: growing.grow(self.open, self.post, MORE + 1, 1, 0))
        growing.sweep(self.open, self.post, 2, SETTLE_S)
        self.everything()
        self.rows(MORE)
        self.answers.refused("nothing to sweep", LikesError,
                             lambda: growing.sweep(self.open, self.post, 1, 0))
        self.answers.refused("fewer buckets", LikesError,
                             lambda: growing.grow(self.open, self.post, BUCKETS, 1, 0))
        self.answers.refused("too many buckets", LikesError,
                             lambda: growing.grow(self.open, self.post, MOST_BUCKETS + 1, 1, 0))


def _go_on(open_connection, post, users, stop, results):
    """Likes of new users and unlikes of old ones, until it is told to stop."""
    liked, unliked = {}, []
    with open_connection() as client:
        likes = Likes(client, REFRESH_S)
        # Bounded, whatever becomes of who is to say stop.
        while not stop.is_set() and len(unliked) < len(users):
            user = f"late{len(liked):06}"
            liked[user] = len(liked)
            likes.like(post, {user: liked[user]})
            unliked.append(users[len(unliked)])
            likes.unlike(post, unliked[-1])
            time.sleep(0.002)
    results.send((liked, unliked))


def scenario(open_connection, answers):
    """Spread over buckets, then in one wide row."""
    the_hash(answers)
    with open_connection() as client:
        answers.refused("no post", LikesError, lambda: Likes(client).layout("nothing"))
        for buckets in (0, MOST_BUCKETS + 1):
            answers.refused(f"a post with {buckets} buckets", LikesError,
                            lambda: Likes(client).begin("nothing", buckets))
        answers.refused("to read no post", LikesError, lambda: Reader(open_connection).count("no"))
        # An exception of the Thrift library comes through the threads as well.
        answers.refused("to read a row without a key", ttypes.InvalidRequestException,
                        lambda: list(Reader(open_connection).likers("")))
        run = Run(open_connection, client, answers, BUCKETS)
        run.fill()
        run.everything()
        run.rows(BUCKETS)
        run.stop_early()
        run.change()
        run.everything()
        run.rows(BUCKETS)
        run.grow()
        wide = Run(open_connection, client, answers, 1)
        wide.fill()
        wide.everything()
        wide.stop_early()


if __name__ == "__main__":
    checking.main(__doc__.split("\n")[0], scenario)
