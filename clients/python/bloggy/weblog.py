"""The blog itself: authors, entries, tags and comments as rows and columns.

    Authors       row: full name         columns: numPosts, email, twitter, bio ...
    BlogEntries   row: slug              columns: title, body, author, tags, pubDate, slug
    TaggedPosts   row: tag               column:  time UUID -> slug
    Comments      row: slug              super column: time UUID -> commenter, email, ...

Row `__notag__` of TaggedPosts holds every entry: it is the front page.
"""

import re
import time
import uuid
from dataclasses import dataclass

from . import timeuuid
from .bindings import ttypes  # This one finds the generated package `cassandra`.
from cassandra.ttypes import (
    Column,
    ColumnOrSuperColumn,
    ColumnParent,
    ColumnPath,
    ConsistencyLevel,
    Deletion,
    Mutation,
    SlicePredicate,
    SliceRange,
    SuperColumn,
)

KEYSPACE = "BloggyAppy"
FRONT_PAGE = "__notag__"
PAGE_SIZE = 10
COMMENTS_SHOWN = 1000
_WHOLE_ROW = 100
# The columns that make an entry.
_NEEDED = {"title", "body", "author", "tags", "pubDate"}


class BlogError(Exception):
    """The blog cannot do that; the text says why."""


@dataclass
class Entry:
    """One entry, with its author's attributes where the author is known."""

    slug: str
    title: str
    body: str
    author: str
    author_attributes: dict
    tags: list
    published: int


@dataclass
class Comment:
    """What a reader said; `id` is its place in time."""

    id: uuid.UUID
    commenter: str
    email: str
    text: str
    written: int


class Blog:
    """Reads and writes the blog over one Thrift client."""

    def __init__(self, client, keyspace=KEYSPACE, consistency=ConsistencyLevel.ONE):
        self._client = client
        self._keyspace = keyspace
        self._consistency = consistency
        self._last_timestamp = 0

    # Authors

    def save_author(self, name, **attributes):
        """Registers an author, or changes the attributes that are given."""
        if not name:
            raise BlogError("an author needs a name")
        attributes.setdefault("numPosts", self.author(name).get("numPosts", "0"))
        stamp = self._timestamp()
        self._mutate({name: {"Authors": _columns(attributes, stamp)}})

    def author(self, name):
        """The attributes of an author; none at all for one who is not known."""
        return self._rows("Authors", [name])[name]

    # Entries

    def post(self, title, body, author, tags=(), slug=None):
        """Publishes an entry and returns its slug."""
        slug = slug or slug_of(title)
        if self._rows("BlogEntries", [slug])[slug]:
            raise BlogError(f"there is an entry {slug} already; give this one another slug")
        attributes = self.author(author)
        if not attributes:
            raise BlogError(f"no author {author}; register first")
        name, stamp = timeuuid.now(), self._timestamp()
        entry = {
            "title": title,
            "body": body,
            "author": author,
            "tags": ",".join(tags),
            "pubDate": str(timeuuid.seconds(name)),
            "slug": slug,
        }
        changes = {slug: {"BlogEntries": _columns(entry, stamp)}}
        for row in [FRONT_PAGE, *tags]:
            column = Column(name.bytes, slug.encode(), stamp)
            changes.setdefault(row, {})["TaggedPosts"] = [_put(column)]
        self._count_post(changes, author, attributes, +1, stamp)
        self._mutate(changes)
        return slug

    def edit(self, slug, **columns):
        """Changes some of the columns of an entry: title, body."""
        self.entry(slug)
        self._mutate({slug: {"BlogEntries": _columns(columns, self._timestamp())}})

    def entry(self, slug):
        """One entry."""
        for entry in self._entries([slug]):
            return entry
        raise BlogError(f"no entry {slug}")

    def page(self, tag=FRONT_PAGE, start=None, size=PAGE_SIZE):
        """A page of entries, newest first, and the name where the next page starts, if any.

        One slice gives the slugs, one multiget the entries, one more their authors.
        """
        first = start.bytes if start else b""
        predicate = SlicePredicate(
            slice_range=SliceRange(start=first, finish=b"", reversed=True, count=size + 1)
        )
        found = self._client.get_slice(
            self._keyspace, tag, ColumnParent("TaggedPosts"), predicate, self._consistency
        )
        columns = [each.column for each in found]
        following = uuid.UUID(bytes=columns[size].name) if len(columns) > size else None
        return self._entries([column.value.decode() for column in columns[:size]]), following

    def delete_entry(self, slug):
        """Takes an entry out of every list, with its comments."""
        entry, stamp = self.entry(slug), self._timestamp()
        whole_row = [Mutation(deletion=Deletion(timestamp=stamp))]
        changes = {slug: {"BlogEntries": whole_row, "Comments": whole_row}}
        for row in [FRONT_PAGE, *entry.tags]:
            names = self._listed(row, entry)
            if names:
                gone = Deletion(timestamp=stamp, predicate=SlicePredicate(column_names=names))
                changes.setdefault(row, {})["TaggedPosts"] = [Mutation(deletion=gone)]
        if entry.author_attributes:
            self._count_post(changes, entry.author, entry.author_attributes, -1, stamp)
        self._mutate(changes)

    # Comments

    def comment(self, slug, commenter, email, text, written=None):
        """Adds a comment, now or at a given Unix time, and returns its id."""
        self.entry(slug)
        name = timeuuid.now() if written is None else timeuuid.at(written)
        columns = {
            "commenter": commenter,
            "email": email,
            "comment": text,
            "commentTime": str(timeuuid.seconds(name)),
        }
        stamp = self._timestamp()
        inner = [Column(key.encode(), value.encode(), stamp) for key, value in columns.items()]
        new = ColumnOrSuperColumn(super_column=SuperColumn(name.bytes, inner))
        self._mutate({slug: {"Comments": [Mutation(column_or_supercolumn=new)]}})
        return name

    def comments(self, slug):
        """The comments of an entry, oldest first."""
        predicate = SlicePredicate(
            slice_range=SliceRange(start=b"", finish=b"", reversed=False, count=COMMENTS_SHOWN)
        )
        found = self._client.get_slice(
            self._keyspace, slug, ColumnParent("Comments"), predicate, self._consistency
        )
        return [_comment(each.super_column) for each in found]

    def delete_comment(self, slug, comment_id):
        """Takes one comment away."""
        path = ColumnPath("Comments", super_column=comment_id.bytes)
        try:
            self._client.get(self._keyspace, slug, path, self._consistency)
        except ttypes.NotFoundException:
            raise BlogError(f"no comment {comment_id} on {slug}") from None
        self._client.remove(self._keyspace, slug, path, self._timestamp(), self._consistency)

    # What they share

    def _entries(self, slugs):
        """Those of the slugs that have an entry, in the same order, with their authors."""
        rows = self._rows("BlogEntries", slugs)
        # A list can name an entry that is just being written or deleted, for several rows are
        # never one step here; and who edits what another deletes leaves half an entry.
        rows = {slug: rows[slug] for slug in slugs if _NEEDED <= rows[slug].keys()}
        authors = self._rows("Authors", [row["author"] for row in rows.values()])
        return [
            Entry(
                slug=slug,
                title=row["title"],
                body=row["body"],
                author=row["author"],
                author_attributes=authors[row["author"]],
                tags=[tag for tag in row["tags"].split(",") if tag],
                published=int(row["pubDate"]),
            )
            for slug, row in rows.items()
        ]

    def _rows(self, family, keys):
        """Whole rows as dictionaries of text; an empty one for each key that has no row."""
        if not keys:
            return {}
        predicate = SlicePredicate(
            slice_range=SliceRange(start=b"", finish=b"", reversed=False, count=_WHOLE_ROW)
        )
        found = self._client.multiget_slice(
            self._keyspace, sorted(set(keys)), ColumnParent(family), predicate, self._consistency
        )
        return {
            key: {each.column.name.decode(): each.column.value.decode() for each in columns}
            for key, columns in found.items()
        }

    def _listed(self, row, entry):
        """The names under which a row of TaggedPosts lists an entry.

        The name's moment and the publication date are the same, so one second is all to look at.
        """
        start, finish = timeuuid.bounds(entry.published)
        predicate = SlicePredicate(
            slice_range=SliceRange(
                start=start.bytes, finish=finish.bytes, reversed=False, count=_WHOLE_ROW
            )
        )
        found = self._client.get_slice(
            self._keyspace, row, ColumnParent("TaggedPosts"), predicate, self._consistency
        )
        return [each.column.name for each in found if each.column.value == entry.slug.encode()]

    @staticmethod
    def _count_post(changes, author, attributes, step, stamp):
        """Counts an entry with its author.

        Two posts at the same moment may count as one: there were no counters in those days.
        """
        number = max(0, int(attributes.get("numPosts", "0")) + step)
        columns = _columns({"numPosts": str(number)}, stamp)
        changes.setdefault(author, {})["Authors"] = columns

    def _mutate(self, changes):
        self._client.batch_mutate(self._keyspace, changes, self._consistency)

    def _timestamp(self):
        """Microseconds; never the same twice, so that of two changes the later one wins."""
        self._last_timestamp = max(int(time.time() * 1_000_000), self._last_timestamp + 1)
        return self._last_timestamp


def slug_of(title):
    """`Hello, World!` becomes `hello-world`."""
    slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    if not slug:
        raise BlogError("this title gives no slug; choose one")
    return slug


def _put(column):
    return Mutation(column_or_supercolumn=ColumnOrSuperColumn(column=column))


def _columns(values, stamp):
    return [_put(Column(name.encode(), text.encode(), stamp)) for name, text in values.items()]


def _comment(super_column):
    values = {each.name.decode(): each.value.decode() for each in super_column.columns}
    return Comment(
        id=uuid.UUID(bytes=super_column.name),
        commenter=values["commenter"],
        email=values["email"],
        text=values["comment"],
        written=int(values["commentTime"]),
    )
