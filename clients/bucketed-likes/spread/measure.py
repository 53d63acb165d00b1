"""A post over many buckets beside the same post in one wide row: spread, and time."""

import multiprocessing
import random
import resource
import statistics
import time
from contextlib import closing
from functools import partial
from itertools import islice

from alexandra.figures import Cost, table

from . import work
from .post import Likes, LikesError
from .reading import Reader

# Pages of the one wide row may be larger: there are two of them and not two for each bucket.
WIDE_PAGE = 2000
SINGLE = 2000


def distribution(open_connection, post):
    """Lines that say how evenly the likes are spread."""
    counts = Reader(open_connection).counts(post)
    likes, buckets = sum(counts), len(counts)
    # Of a choice that is the same for each bucket.
    fair = (likes / buckets * (1 - 1 / buckets)) ** 0.5
    return [
        f"{likes:,} likes in {buckets} buckets",
        f"least {min(counts):,}, mean {likes / buckets:,.1f}, most {max(counts):,}",
        f"standard deviation {statistics.pstdev(counts):.1f}; by pure chance {fair:.1f}",
    ]


class Measure:
    """Fills two posts alike but for their buckets, and does the same with both."""

    def __init__(self, open_connection, options):
        self._open = open_connection
        self._options = options
        moment = f"{time.time_ns():x}"
        self._posts = {f"spread-{moment}": options.buckets, f"wide-{moment}": 1}
        self._rows = []

    def lines(self):
        """Runs everything and returns the lines of its table."""
        for what, measure in [
            ("write all", self._write),
            ("read all, in order", self._read),
            ("the first ten", self._first),
            ("count", self._count),
        ]:
            self._row(what, [measure(post, buckets) for post, buckets in self._posts.items()])
        for what, costs in self._single().items():
            self._row(what, ["p50 {:.2f}, p95 {:.2f}, p99 {:.2f} ms".format(*c.percentiles_ms())
                             for c in costs])
        lines = table(["", f"{self._options.buckets} buckets", "one wide row"], self._rows)
        return [*lines, "", *distribution(self._open, next(iter(self._posts)))]

    def _row(self, what, cells):
        self._rows.append([what, *cells])
        # A long run shows how far it is.
        print(f"{what}: {'; '.join(cells)}", flush=True)

    def _write(self, post, buckets):
        options = self._options
        with self._open() as client:
            Likes(client).begin(post, buckets)
        started = time.perf_counter()
        for _ in work.fill(self._open, post, options.likes, options.processes, options.seed):
            pass
        return _rate(options.likes, time.perf_counter() - started)

    def _read(self, post, buckets):
        """In a process of its own, whose memory is that of nothing else."""
        results, other = multiprocessing.get_context("fork").Pipe()
        reader = multiprocessing.get_context("fork").Process(
            target=_read_all, args=(self._reader(buckets), post, other))
        reader.start()
        # Now the process alone holds that end: should it die, that is the end of the pipe.
        other.close()
        try:
            likes, seconds, grown_kib = results.recv()
        except EOFError:
            raise LikesError("the process that reads has died") from None
        reader.join()
        return f"{_rate(likes, seconds)}, {grown_kib / 1024:.0f} MB"

    def _first(self, post, buckets):
        reader = self._reader(buckets)()
        started = time.perf_counter()
        with closing(reader.likers(post)) as likers:
            found = list(islice(likers, 10))
        milliseconds = (time.perf_counter() - started) * 1000
        return f"{len(found)} in {milliseconds:.0f} ms, {reader.calls} calls"

    def _count(self, post, _):
        started = time.perf_counter()
        count = Reader(self._open).count(post)
        return f"{count:,} in {time.perf_counter() - started:.2f} s"

    def _reader(self, buckets):
        page = {"page": WIDE_PAGE} if buckets == 1 else {}
        return partial(Reader, self._open, **page)

    def _single(self):
        """One like at a time: is it there, like, unlike; and an empty call as a yardstick."""
        chance, costs = random.Random(3), {}
        connection = self._open()
        with connection as client:
            likes, traffic = Likes(client), connection.traffic
            numbers = [chance.randrange(self._options.likes) for _ in range(SINGLE)]
            users = [next(work.seeded(n, n + 1, self._options.seed))[0] for n in numbers]
            queries = {
                "did this user like it": lambda post, user: likes.liked_at(post, user),
                "did somebody else": lambda post, user: likes.liked_at(post, f"no {user}"),
                "a like": lambda post, user: likes.like(post, {f"one more {user}": 1}),
                "its unlike": lambda post, user: likes.unlike(post, f"one more {user}"),
                "an empty call": lambda _, __: client.describe_version(),
            }
            for what, query in queries.items():
                costs[what] = [Cost() for _ in self._posts]
                for user in users:
                    for post, cost in zip(self._posts, costs[what]):
                        cost.measure(traffic, partial(query, post, user))
        return costs


def _read_all(make_reader, post, results):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started, likes = time.perf_counter(), 0
    for _ in make_reader().likers(post):
        likes += 1
    seconds = time.perf_counter() - started
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    results.send((likes, seconds, grown_kib))


def _rate(likes, seconds):
    return f"{seconds:.1f} s, {likes / seconds:,.0f} likes/s"
