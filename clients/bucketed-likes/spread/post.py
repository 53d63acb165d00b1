"""The likes of posts as rows: `Posts` says how many buckets a post has, `Likes` has their rows.

    Posts    row: post            columns: buckets, and while it grows: following, former
    Likes    row: post:bucket     column:  user -> time
"""

import time
from typing import NamedTuple, Optional

from alexandra.keyspace import Keyspace, delete, put

from .jump import bucket_of

KEYSPACE = "BucketedLikes"
# Of one post. Who reads it asks for a page of each and holds it: more serve nobody.
MOST_BUCKETS = 4096
# A layout that was read is used for so long before it is read again.
REFRESH_S = 1.0


class LikesError(Exception):
    """It cannot be done; the text says why."""


def enough(buckets):
    """Raises LikesError for a number of buckets that no post may have."""
    if not 1 <= buckets <= MOST_BUCKETS:
        raise LikesError(f"a post has 1 to {MOST_BUCKETS} buckets, not {buckets}")


class Layout(NamedTuple):
    """Where the likes of a post are.

    While a post grows there is a `following` number of buckets too: who writes writes there as
    well, and who reads does not look there yet. When all has been copied that number is the one
    that counts, and `former` says that copies of before are still to be swept.
    """

    post: str
    buckets: int
    following: Optional[int] = None
    former: Optional[int] = None

    def row(self, bucket):
        """The key of a bucket's row."""
        return f"{self.post}:{bucket}"

    def rows(self):
        """The keys of all rows that are read."""
        return [self.row(bucket) for bucket in range(self.buckets)]

    def row_of(self, user):
        """Where a user's like is read."""
        return self.row(bucket_of(user, self.buckets))

    def rows_of(self, user):
        """Where a user's like is written."""
        return [self.row(bucket) for bucket in self.buckets_of(user)]

    def buckets_of(self, user):
        """The buckets of those rows: one, or two for some users while the post grows."""
        buckets = {bucket_of(user, self.buckets)}
        if self.following:
            buckets.add(bucket_of(user, self.following))
        return buckets

    def reads(self, bucket, user):
        """Whether a user found in a bucket belongs there, and is not a copy left to be swept."""
        return not self.former or bucket_of(user, self.buckets) == bucket


class Layouts:
    """Layouts as of now or of a moment ago.

    `read` reads the numbers of a post, by the names of the layout's fields; none where it is not
    known.
    """

    def __init__(self, read, refresh_s=REFRESH_S):
        self._read = read
        self._refresh_s = refresh_s
        self._known = {}

    def of(self, post, fresh=False):
        """Where the likes of a post are; raises LikesError for one that is not known."""
        layout, read_at = self._known.get(post, (None, 0))
        now = time.monotonic()
        if layout is None or fresh or now - read_at > self._refresh_s:
            found = self._read(post)
            if "buckets" not in found:
                raise LikesError(f"there is no post {post}")
            layout = Layout(post, **found)
            self._known[post] = (layout, now)
        return layout

    def forget(self, post):
        """Reads the layout again when it is needed next."""
        self._known.pop(post, None)


class Likes:
    """Likes and unlikes posts over one client."""

    def __init__(self, client, refresh_s=REFRESH_S):
        self._keyspace = Keyspace(client, KEYSPACE)
        self._layouts = Layouts(self._read_layout, refresh_s)

    def begin(self, post, buckets):
        """A new post with so many buckets; nothing changes where it is known already."""
        enough(buckets)
        if "buckets" not in self._read_layout(post):
            self.set_layout(Layout(post, buckets))

    def layout(self, post, fresh=False):
        """Where the likes of a post are, as of now or of a moment ago."""
        return self._layouts.of(post, fresh)

    def set_layout(self, layout):
        """Writes a layout: one row, and so one step for who reads it."""
        stamp = self._keyspace.timestamp()
        changes = []
        for name, number in layout._asdict().items():
            if name != "post":
                gone = delete(stamp, [name.encode()])
                changes.append(put(name.encode(), b"%d" % number, stamp) if number else gone)
        self._keyspace.mutate({layout.post: {"Posts": changes}})
        self._layouts.forget(layout.post)

    def like(self, post, users):
        """Users like a post: `{user: time}`, in one batch."""
        layout, stamp, changes = self.layout(post), self._keyspace.timestamp(), {}
        for user, at in users.items():
            for row in layout.rows_of(user):
                column = put(user.encode(), at.to_bytes(8, "big"), stamp)
                changes.setdefault(row, {"Likes": []})["Likes"].append(column)
        self._keyspace.mutate(changes)

    def unlike(self, post, user):
        """A user likes a post no more. Nothing happens where it was not liked."""
        gone = delete(self._keyspace.timestamp(), [user.encode()])
        rows = self.layout(post).rows_of(user)
        self._keyspace.mutate({row: {"Likes": [gone]} for row in rows})

    def liked_at(self, post, user):
        """When a user liked a post; None for one who does not. This is one get."""
        found = self._keyspace.get(self.layout(post).row_of(user), "Likes", user.encode())
        return None if found is None else int.from_bytes(found, "big")

    def _read_layout(self, post):
        columns = self._keyspace.slice(post, "Posts")
        return {each.name.decode(): int(each.value) for each in columns}
