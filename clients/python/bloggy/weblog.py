"""The blog itself: authors, entries, tags and comments as rows and columns.

    Authors       row: full name         columns: numPosts, email, twitter, bio ...
    BlogEntries   row: slug              columns: title, body, author, tags, pubDate, slug
    TaggedPosts   row: tag               column:  time UUID -> slug
    Comments      row: slug              super column: time UUID -> commenter, email, ...

Row `__notag__` of TaggedPosts holds every entry: it is the front page.
"""

import re
import uuid
from dataclasses import dataclass

from alexandra import timeuuid
from alexandra.keyspace import Keyspace, delete, put, put_super

KEYSPACE = "BloggyAppy"
FRONT_PAGE = "__notag__"
PAGE_SIZE = 10
COMMENTS_SHOWN = 1000
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

    def __init__(self, client):
        self._keyspace = Keyspace(client, KEYSPACE)

    # Authors

    def save_author(self, name, **attributes):
        """Registers an author, or changes the attributes that are given."""
        if not name:
            raise BlogError("an author needs a name")
        attributes.setdefault("numPosts", self.author(name).get("numPosts", "0"))
        stamp = self._keyspace.timestamp()
        self._keyspace.mutate({name: {"Authors": _columns(attributes, stamp)}})

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
        name, stamp = timeuuid.now(), self._keyspace.timestamp()
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
            listed = put(name.bytes, slug.encode(), stamp)
            changes.setdefault(row, {})["TaggedPosts"] = [listed]
        self._count_post(changes, author, attributes, +1, stamp)
        self._keyspace.mutate(changes)
        return slug

    def edit(self, slug, **columns):
        """Changes some of the columns of an entry: title, body."""
        self.entry(slug)
        stamp = self._keyspace.timestamp()
        self._keyspace.mutate({slug: {"BlogEntries": _columns(columns, stamp)}})

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
        columns = self._keyspace.slice(
            tag, "TaggedPosts", start=first, reversed=True, count=size + 1
        )
        following = uuid.UUID(bytes=columns[size].name) if len(columns) > size else None
        return self._entries([column.value.decode() for column in columns[:size]]), following

    def delete_entry(self, slug):
        """Takes an entry out of every list, with its comments."""
        entry, stamp = self.entry(slug), self._keyspace.timestamp()
        whole_row = [delete(stamp)]
        changes = {slug: {"BlogEntries": whole_row, "Comments": whole_row}}
        for row in [FRONT_PAGE, *entry.tags]:
            names = self._listed(row, entry)
            if names:
                changes.setdefault(row, {})["TaggedPosts"] = [delete(stamp, names)]
        if entry.author_attributes:
            self._count_post(changes, entry.author, entry.author_attributes, -1, stamp)
        self._keyspace.mutate(changes)

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
        stamp = self._keyspace.timestamp()
        values = {key.encode(): value.encode() for key, value in columns.items()}
        added = put_super(name.bytes, values, stamp)
        self._keyspace.mutate({slug: {"Comments": [added]}})
        return name

    def comments(self, slug):
        """The comments of an entry, oldest first."""
        found = self._keyspace.slice(slug, "Comments", count=COMMENTS_SHOWN)
        return [_comment(each) for each in found]

    def delete_comment(self, slug, comment_id):
        """Takes one comment away."""
        name = comment_id.bytes
        if not self._keyspace.slice(slug, "Comments", super_column=name, count=1):
            raise BlogError(f"no comment {comment_id} on {slug}")
        self._keyspace.remove(slug, "Comments", super_column=name)

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
        return {
            key: {each.name.decode(): each.value.decode() for each in columns}
            for key, columns in self._keyspace.slices(keys, family).items()
        }

    def _listed(self, row, entry):
        """The names under which a row of TaggedPosts lists an entry.

        The name's moment and the publication date are the same, so one second is all to look at.
        """
        start, finish = timeuuid.bounds(entry.published)
        found = self._keyspace.slice(row, "TaggedPosts", start=start.bytes, finish=finish.bytes)
        return [each.name for each in found if each.value == entry.slug.encode()]

    @staticmethod
    def _count_post(changes, author, attributes, step, stamp):
        """Counts an entry with its author.

        Two posts at the same moment may count as one: there were no counters in those days.
        """
        number = max(0, int(attributes.get("numPosts", "0")) + step)
        columns = _columns({"numPosts": str(number)}, stamp)
        changes.setdefault(author, {})["Authors"] = columns


def slug_of(title):
    """`Hello, World!` becomes `hello-world`."""
    slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    if not slug:
        raise BlogError("this title gives no slug; choose one")
    return slug


def _columns(values, stamp):
    return [put(name.encode(), text.encode(), stamp) for name, text in values.items()]


def _comment(super_column):
    values = {each.name.decode(): each.value.decode() for each in super_column.columns}
    return Comment(
        id=uuid.UUID(bytes=super_column.name),
        commenter=values["commenter"],
        email=values["email"],
        text=values["comment"],
        written=int(values["commentTime"]),
    )
