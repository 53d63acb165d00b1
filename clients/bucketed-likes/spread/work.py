"""Work on many likes, in processes: one Python does one thing at a time, however many threads.

A process opens its own connection. `open_connection` is a function that can be sent there.
"""

import multiprocessing
from functools import partial
from itertools import islice

from alexandra.keyspace import Keyspace, delete, put

from .jump import bucket_of
from .post import KEYSPACE, Likes

BATCH = 1000
# The first moment of the seed, in microseconds of Unix time: 15 July 2012.
FIRST = 1_342_310_400_000_000


def in_processes(processes, work, shares):
    """Yields what work(share) returns for each share, in any order."""
    if processes == 1:
        yield from map(work, shares)
        return
    # Threads of this process would not be there in a forked one: it must have none now.
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        yield from pool.imap_unordered(work, shares)


def seeded(first, last, seed=1):
    """Yields the likes `first` to `last` of a seed: users in no order, a second after another."""
    for number in range(first, last):
        # Odd, so that no two numbers below 2^32 give the same id.
        scattered = (number * 2654435761 + seed) % 2**32
        yield f"user{scattered:08x}", FIRST + number * 1_000_000


def fill(open_connection, post, likes, processes, seed=1, batch=BATCH):
    """Writes so many likes of a seed, and yields how many are done."""
    per_share = max(1, min(20 * batch, -(-likes // processes)))
    shares = [(first, min(first + per_share, likes)) for first in range(0, likes, per_share)]
    work = partial(_fill_share, open_connection, post, seed, batch)
    done = 0
    for written in in_processes(processes, work, shares):
        done += written
        yield done


def _fill_share(open_connection, post, seed, batch, share):
    with open_connection() as client:
        likes, users = Likes(client), seeded(*share, seed)
        while chunk := dict(islice(users, batch)):
            likes.like(post, chunk)
    return share[1] - share[0]


def copy(open_connection, layout, processes):
    """Copies what the following layout has elsewhere; returns how many likes, and of how many."""
    work = partial(_copy_bucket, open_connection, layout.post, layout.following, False)
    return _sum(in_processes(processes, work, range(layout.buckets)))


def sweep(open_connection, layout, processes):
    """Deletes what was left behind in rows of the former layout; returns how many likes.

    What somebody wrote there late, by a layout of before, gets to its place now.
    """
    work = partial(_copy_bucket, open_connection, layout.post, layout.buckets, True)
    return _sum(in_processes(processes, work, range(layout.former)))[0]


def _copy_bucket(open_connection, post, buckets, and_delete, bucket):
    """Writes what does not belong to this bucket where it does; returns how many, of how many."""
    moved = seen = 0
    with open_connection() as client:
        keyspace = Keyspace(client, KEYSPACE)
        columns = keyspace.each(f"{post}:{bucket}", "Likes", page=BATCH)
        while page := list(islice(columns, BATCH)):
            places = [(column, bucket_of(column.name.decode(), buckets)) for column in page]
            strangers = [(column, place) for column, place in places if place != bucket]
            seen, moved = seen + len(page), moved + len(strangers)
            if strangers:
                _put_in_place(keyspace, post, bucket, strangers, and_delete)
    return moved, seen


def _put_in_place(keyspace, post, bucket, strangers, and_delete):
    # With the timestamp of the like: an unlike since then is newer and wins, whether it is there
    # already or comes yet.
    changes = {}
    for column, place in strangers:
        copied = put(column.name, column.value, column.timestamp)
        changes.setdefault(f"{post}:{place}", {"Likes": []})["Likes"].append(copied)
    keyspace.mutate(changes)
    if and_delete:
        # Only now: rows of one batch are written in any order.
        gone = [delete(column.timestamp, [column.name]) for column, _ in strangers]
        keyspace.mutate({f"{post}:{bucket}": {"Likes": gone}})


def _sum(pairs):
    moved = seen = 0
    for pair in pairs:
        moved, seen = moved + pair[0], seen + pair[1]
    return moved, seen
