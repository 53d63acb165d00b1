"""The blog itself: authors, entries, tags and comments as rows and columns.

    Authors       row: full name         columns: numPosts, email, twitter, bio ...
    BlogEntries   row: slug              columns: title, body, author, tags, pubDate, slug
    TaggedPosts   row: a list            column:  time UUID -> slug
    Comments      row: slug              super column: time UUID -> commenter, email, ...

The lists are one for each tag, one for each author (`__author__:` and the name), and one with
every entry, the front page: `__notag__`.

Several rows are never written in one step. What counts is the row of the entry: who reads a list
leaves out what has no entry, or one that does not belong there, and `recount` mends the lists.
"""

import hashlib
import re
import uuid
from dataclasses import dataclass
from itertools import groupby

from alexandra import timeuuid
from alexandra.keyspace import Keyspace, delete, put, put_super

from . import months
from .paging import page

KEYSPACE = "BloggyAppy"
FRONT_PAGE = "__notag__"
PAGE_SIZE = 10
COMMENTS_PAGE_SIZE = 50
# The columns that make an entry, and those that make a comment.
NEEDED = {"title", "body", "author", "tags", "pubDate"}
_COMMENT = {"commenter", "email", "comment", "commentTime"}
# Lists that are not those of a tag begin like this.
_RESERVED = "__"
_WIDE = 1000


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

    @staticmethod
    def of(slug, row, author_attributes):
        """The entry of a row; None where it is not a whole one."""
        # Who edits what another deletes leaves half an entry.
        if not NEEDED <= row.keys():
            return None
        return Entry(
            slug=slug,
            title=row["title"],
            body=row["body"],
            author=row["author"],
            author_attributes=author_attributes,
            tags=[tag for tag in row["tags"].split(",") if tag],
            published=int(row["pubDate"]),
        )

    def lists(self):
        """The rows of TaggedPosts in which it belongs."""
        return [FRONT_PAGE, author_list(self.author), *self.tags]


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
        self.keyspace = Keyspace(client, KEYSPACE)

    # Authors

    def save_author(self, name, **attributes):
        """Registers an author, or changes the attributes that are given."""
        if not name:
            raise BlogError("an author needs a name")
        if not self.author(name):
            attributes.setdefault("numPosts", "0")
        stamp = self.keyspace.timestamp()
        self.keyspace.mutate({name: {"Authors": columns_of(attributes, stamp)}})

    def author(self, name):
        """The attributes of an author; none at all for one who is not known."""
        return self.rows("Authors", [name])[name]

    # Entries

    def post(self, title, body, author, tags=(), slug=None):
        """Publishes an entry and returns its slug."""
        slug, tags = slug or slug_of(title), _checked(tags)
        if self._entries([slug]):
            raise BlogError(f"there is an entry {slug} already; give this one another slug")
        attributes = self.author(author)
        if not attributes:
            raise BlogError(f"no author {author}; register first")
        name, stamp = timeuuid.now(), self.keyspace.timestamp()
        columns = {
            "title": title,
            "body": body,
            "author": author,
            "tags": ",".join(tags),
            "pubDate": str(timeuuid.seconds(name)),
            "slug": slug,
        }
        changes = {slug: {"BlogEntries": columns_of(columns, stamp)}}
        if self.keyspace.slice(slug, "Comments", count=1):
            # Comments that came too late, on an entry of this slug that has been deleted.
            changes[slug]["Comments"] = [delete(stamp)]
        for row in [FRONT_PAGE, author_list(author), *tags]:
            listed = put(name.bytes, slug.encode(), stamp)
            changes.setdefault(row, {})["TaggedPosts"] = [listed]
        self._count_post(changes, author, attributes, +1, stamp)
        self.keyspace.mutate(changes)
        return slug

    def edit(self, slug, tags=None, **columns):
        """Changes some of the columns of an entry: title, body, and tags, which is a list.

        The new tags list the entry first and the old ones forget it last, so that it is in all of
        its lists at any time. An old one that is not reached is seen by nobody.
        """
        entry, stamp = self.entry(slug), self.keyspace.timestamp()
        if tags is None:
            self.keyspace.mutate({slug: {"BlogEntries": columns_of(columns, stamp)}})
            return
        tags = _checked(tags)
        columns["tags"] = ",".join(tags)
        name = self.name_of(entry)
        added = [put(name, slug.encode(), stamp)]
        self.keyspace.mutate({tag: {"TaggedPosts": added} for tag in tags})
        self.keyspace.mutate({slug: {"BlogEntries": columns_of(columns, stamp)}})
        self._unlist(entry, set(entry.tags) - set(tags), stamp)

    def entry(self, slug):
        """One entry."""
        for entry in self._entries([slug]):
            return entry
        raise BlogError(f"no entry {slug}")

    def delete_entry(self, slug):
        """Takes an entry out of every list, and then deletes it with its comments.

        In this order, for only while there is an entry it is known where it is listed: a deletion
        that breaks off can be repeated. The entry and its comments have one key, and go at once.
        """
        entry, stamp = self.entry(slug), self.keyspace.timestamp()
        self._unlist(entry, entry.lists(), stamp)
        whole_row = [delete(stamp)]
        changes = {slug: {"BlogEntries": whole_row, "Comments": whole_row}}
        if entry.author_attributes:
            self._count_post(changes, entry.author, entry.author_attributes, -1, stamp)
        self.keyspace.mutate(changes)

    # Lists of entries, newest first

    def page(self, tag=FRONT_PAGE, start=None, until=None, size=PAGE_SIZE):
        """A page of the entries of a tag, or of all.

        One slice gives the slugs, one multiget the entries, one more their authors; unless it is
        the first page, as many calls find the neighbour on its other side.
        """
        return self._list(tag, start, until, size)

    def by_author(self, name, start=None, until=None, size=PAGE_SIZE):
        """A page of the entries of an author.

        Those of an older version of this program are listed after a `recount`.
        """
        return self._list(author_list(name), start, until, size)

    def of_month(self, month, start=None, until=None, size=PAGE_SIZE):
        """A page of the entries of a month: a part of the front page's row."""
        try:
            low, high = months.bounds(month)
        except ValueError as error:
            raise BlogError(str(error)) from None
        for place in (start, until):
            if place and months.of(place) != month:
                raise BlogError(f"{place} is not of {month}")
        return self._list(FRONT_PAGE, start, until, size, low, high)

    def archive(self):
        """The months in which there are entries, newest first, with their numbers.

        It reads the names of all entries, a thousand at a time: there is no `get_count` of a part
        of a row.
        """
        names = (
            months.of(uuid.UUID(bytes=column.name))
            for column in self.keyspace.each(FRONT_PAGE, "TaggedPosts", page=_WIDE, reversed=True)
        )
        return [(month, len(list(entries))) for month, entries in groupby(names)]

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
        stamp = self.keyspace.timestamp()
        values = {key.encode(): value.encode() for key, value in columns.items()}
        added = put_super(name.bytes, values, stamp)
        self.keyspace.mutate({slug: {"Comments": [added]}})
        return name

    def comments(self, slug, start=None, until=None, size=COMMENTS_PAGE_SIZE):
        """A page of the comments of an entry, oldest first."""

        def fetch(name, forward, count):
            return self.keyspace.slice(
                slug, "Comments", start=name, reversed=not forward, count=count
            )

        return page(fetch, _comments, size, start, until)

    def delete_comment(self, slug, comment_id):
        """Takes one comment away."""
        name = comment_id.bytes
        if not self.keyspace.slice(slug, "Comments", super_column=name, count=1):
            raise BlogError(f"no comment {comment_id} on {slug}")
        self.keyspace.remove(slug, "Comments", super_column=name)

    # Numbers. The server reads a whole row to count it. What it counts is there, which a number
    # in a column only tells if no two have changed it at a time.

    def count_tag(self, tag):
        """How many entries a tag lists, or the front page."""
        return self.keyspace.count(tag, "TaggedPosts")

    def count_author(self, name):
        """How many entries an author's list has. Compare numPosts."""
        return self.keyspace.count(author_list(name), "TaggedPosts")

    def count_comments(self, slug):
        """How many comments an entry has."""
        return self.keyspace.count(slug, "Comments")

    # What these share, also with `recount`

    def rows(self, family, keys):
        """Whole rows as dictionaries of text; an empty one for each key that has no row."""
        return {
            key: text_of(columns) for key, columns in self.keyspace.slices(keys, family).items()
        }

    def listed(self, row, entry):
        """The names under which a list has an entry.

        The name's moment and the publication date are the same, so one second is all to look at.
        """
        start, finish = timeuuid.bounds(entry.published)
        found = self.keyspace.each(
            row, "TaggedPosts", start=start.bytes, finish=finish.bytes, page=_WIDE
        )
        return [each.name for each in found if each.value == entry.slug.encode()]

    def name_of(self, entry):
        """The name under which an entry is listed, and is to be listed elsewhere.

        For one that is in no list this is always the same, and not that of another entry.
        """
        names = self.listed(FRONT_PAGE, entry)
        if names:
            return names[0]
        tail = bytearray(hashlib.md5(entry.slug.encode()).digest()[:8])
        tail[0] = tail[0] & 0x3F | 0x80
        return timeuuid.at(entry.published).bytes[:8] + bytes(tail)

    def _entries(self, slugs):
        """Those of the slugs that have an entry, in the same order, with their authors."""
        rows = self.rows("BlogEntries", slugs)
        # A list can name an entry that is just being written or deleted.
        rows = {slug: rows[slug] for slug in slugs if NEEDED <= rows[slug].keys()}
        authors = self.rows("Authors", [row["author"] for row in rows.values()])
        return [Entry.of(slug, row, authors[row["author"]]) for slug, row in rows.items()]

    def _list(self, row, start, until, size, low=b"", high=b""):
        """A page of a list, which may be bounded by two names."""

        def fetch(name, forward, count):
            first, last = (high, low) if forward else (low, high)
            return self.keyspace.slice(
                row, "TaggedPosts", start=name or first, finish=last, reversed=forward, count=count
            )

        def resolve(columns):
            slugs = [column.value.decode() for column in columns]
            entries = {entry.slug: entry for entry in self._entries(slugs)}
            found = [(each.name, entries.get(each.value.decode())) for each in columns]
            return [(name, entry) for name, entry in found if entry and row in entry.lists()]

        return page(fetch, resolve, size, start, until)

    def _unlist(self, entry, rows, stamp):
        """Takes an entry out of some lists."""
        names = {row: self.listed(row, entry) for row in rows}
        gone = {
            row: {"TaggedPosts": [delete(stamp, found)]} for row, found in names.items() if found
        }
        if gone:
            self.keyspace.mutate(gone)

    @staticmethod
    def _count_post(changes, author, attributes, step, stamp):
        """Counts an entry with its author.

        Two posts at the same moment may count as one: there were no counters in those days.
        """
        number = max(0, int(attributes.get("numPosts", "0")) + step)
        columns = columns_of({"numPosts": str(number)}, stamp)
        changes.setdefault(author, {})["Authors"] = columns


def author_list(name):
    """The row of TaggedPosts that lists the entries of an author."""
    return f"__author__:{name}"


def slug_of(title):
    """`Hello, World!` becomes `hello-world`."""
    slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    if not slug:
        raise BlogError("this title gives no slug; choose one")
    return slug


def columns_of(values, stamp):
    """The mutations that write texts."""
    return [put(name.encode(), text.encode(), stamp) for name, text in values.items()]


def text_of(columns):
    """Columns as a dictionary of text."""
    return {each.name.decode(): each.value.decode() for each in columns}


def _checked(tags):
    """Tags that can be stored and read again, each once."""
    for tag in tags:
        if not tag.strip() or "," in tag:
            raise BlogError(f'not a tag: "{tag}"')
        if tag.startswith(_RESERVED):
            raise BlogError(f"a tag may not begin with {_RESERVED}: {tag}")
    return list(dict.fromkeys(tags))


def _comments(super_columns):
    found = [(each.name, text_of(each.columns)) for each in super_columns]
    return [
        (name, Comment(
            id=uuid.UUID(bytes=name),
            commenter=values["commenter"],
            email=values["email"],
            text=values["comment"],
            written=int(values["commentTime"]),
        ))
        for name, values in found
        if _COMMENT <= values.keys()
    ]
