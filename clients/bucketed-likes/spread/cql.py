"""The likes of posts in CQL: in the rows of the Thrift programs, or in a table of their own.

    "Likes"                      bucket: post:bucket   user -> value, microseconds
    likes_by_post_and_buckets    post_id, bucket       user -> liked_at, milliseconds

Both have a partition for each bucket, and the users of a bucket in the order of their ids.
"""

import heapq
from datetime import datetime, timedelta

from alexandra.cql import ask_all, run_all

from .jump import bucket_of
from .post import KEYSPACE, REFRESH_S, Layout, Layouts, enough
from .reading import FIRST_PAGE, PAGE, Liker

# Of every post in the table of its own.
BUCKETS = 256

_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1)


class CqlLikes:
    """Likes and unlikes posts, and reads who likes them.

    A subclass names its TABLE, the columns of its partition KEY and that of the TIME, and says
    what they hold: `_layout(post)`, `_partition(post, bucket)`, `_stored(at)`, `_time(stored)`.
    """

    def __init__(self, session, page=PAGE):
        self._session = session
        self._page = page
        partition = " AND ".join(f"{column} = ?" for column in self.KEY)
        columns = ", ".join([*self.KEY, "user", self.TIME])
        marks = ", ".join("?" for _ in columns.split(","))
        prepare = session.prepare
        self._insert = prepare(f"INSERT INTO {self.TABLE} ({columns}) VALUES ({marks})")
        self._delete = prepare(f"DELETE FROM {self.TABLE} WHERE {partition} AND user = ?")
        self._like = prepare(f"SELECT {self.TIME} FROM {self.TABLE}"
                             f" WHERE {partition} AND user = ?")
        self._bucket = prepare(f"SELECT user, {self.TIME} FROM {self.TABLE} WHERE {partition}")
        self._size = prepare(f"SELECT count(*) FROM {self.TABLE} WHERE {partition}")

    def like(self, post, users):
        """Users like a post: `{user: time}`, each by a statement of its own."""
        layout = self._layout(post)
        run_all(self._session, (
            self._insert.bind([*self._partition(post, bucket), user, self._stored(at)])
            for user, at in users.items()
            for bucket in layout.buckets_of(user)
        ))

    def unlike(self, post, user):
        """A user likes a post no more. Nothing happens where it was not liked."""
        buckets = self._layout(post).buckets_of(user)
        run_all(self._session, (
            self._delete.bind([*self._partition(post, bucket), user]) for bucket in buckets
        ))

    def liked_at(self, post, user):
        """When a user liked a post, in microseconds; None for one who does not."""
        bucket = bucket_of(user, self._layout(post).buckets)
        found = self._session.execute(self._like, [*self._partition(post, bucket), user]).one()
        return None if found is None else self._time(found[0])

    def likers(self, post):
        """Yields the likers in the order of their ids, merged from all buckets.

        The first page of each bucket is a short one. The next is asked for when the one before is
        begun, so at most two of each bucket are held.
        """
        layout = self._layout(post)
        selects = self._selects(layout, min(FIRST_PAGE, self._page))
        firsts = list(ask_all(self._session, selects))
        rows = [self._users(layout, *each) for each in zip(range(layout.buckets), selects, firsts)]
        for user, stored in heapq.merge(*rows):
            yield Liker(user, self._time(stored))

    def pages(self, post):
        """Yields the likers a page at a time, one bucket after another, in no order of users.

        The server is asked for a page when the consumer takes it, and never for two at a time.
        """
        layout = self._layout(post)
        for bucket, select in enumerate(self._selects(layout, self._page)):
            found = self._session.execute(select)
            while True:
                yield [Liker(user, self._time(stored)) for user, stored in found.current_rows
                       if layout.reads(bucket, user)]
                if not found.has_more_pages:
                    break
                found.fetch_next_page()

    def count(self, post):
        """How many likes a post has, counted in many buckets at a time."""
        layout = self._layout(post)
        if layout.former:
            # The server would count the copies that are still to be swept.
            return sum(map(len, self.pages(post)))
        sizes = (self._size.bind(self._partition(post, bucket))
                 for bucket in range(layout.buckets))
        return sum(size.one()[0] for size in ask_all(self._session, sizes))

    def _selects(self, layout, page):
        """The statement that reads each bucket, in pages of this size."""
        selects = []
        for bucket in range(layout.buckets):
            select = self._bucket.bind(self._partition(layout.post, bucket))
            select.fetch_size = page
            selects.append(select)
        return selects

    def _users(self, layout, bucket, select, found):
        """Yields the rows of one bucket from its first page on."""
        select.fetch_size = self._page
        while True:
            place, asked = found.paging_state, None
            for user, stored in found.current_rows:
                if layout.reads(bucket, user):
                    yield user, stored
                if place and not asked:
                    asked = self._session.execute_async(select, paging_state=place)
            if not asked:
                return
            found = asked.result()


class SharedRows(CqlLikes):
    """The column families of the Thrift programs, which can go on writing and reading them."""

    TABLE = f'"{KEYSPACE}"."Likes"'
    KEY = ("bucket",)
    TIME = "value"

    def __init__(self, session, page=PAGE, refresh_s=REFRESH_S):
        super().__init__(session, page)
        self._layouts = Layouts(self._read_layout, refresh_s)
        self._post = session.prepare(
            f'SELECT buckets, following, former FROM "{KEYSPACE}"."Posts" WHERE post = ?')
        self._begin = session.prepare(
            f'INSERT INTO "{KEYSPACE}"."Posts" (post, buckets) VALUES (?, ?)')

    def begin(self, post, buckets):
        """A new post with so many buckets; nothing changes where it is known already."""
        enough(buckets)
        if "buckets" not in self._read_layout(post):
            self._session.execute(self._begin, [post, str(buckets)])
            self._layouts.forget(post)

    def _read_layout(self, post):
        found = self._session.execute(self._post, [post]).one()
        numbers = found._asdict() if found else {}
        return {name: int(number) for name, number in numbers.items() if number}

    def _layout(self, post):
        return self._layouts.of(post)

    def _partition(self, post, bucket):
        return [f"{post}:{bucket}"]

    def _stored(self, at):
        return at

    def _time(self, stored):
        return stored


class OwnTable(CqlLikes):
    """A table made for CQL. All posts have 256 buckets, and need no entry of their own."""

    TABLE = f'"{KEYSPACE}".likes_by_post_and_buckets'
    KEY = ("post_id", "bucket")
    TIME = "liked_at"

    def __init__(self, session, page=PAGE):
        session.execute(
            f"CREATE TABLE IF NOT EXISTS {self.TABLE} (post_id text, bucket int, user text,"
            " liked_at timestamp, PRIMARY KEY ((post_id, bucket), user))")
        super().__init__(session, page)

    def _layout(self, post):
        return Layout(post, BUCKETS)

    def _partition(self, post, bucket):
        return [post, bucket]

    def _stored(self, at):
        return at // 1000

    def _time(self, stored):
        return (stored - _EPOCH) // _MICROSECOND
