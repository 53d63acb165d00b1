"""Mends what interrupted, lost and concurrent writes leave, and lists what older versions wrote.

It reads all rows of the keyspace in ranges, and takes the entries for the truth: what is in their
rows belongs into the lists and is counted with its author.
"""

import time
from collections import Counter
from dataclasses import dataclass
from itertools import islice

from alexandra.keyspace import between, delete, put  # Finds the generated package.
from cassandra_thrift.ttypes import ColumnParent, KeyRange, SlicePredicate

from .weblog import NEEDED, Entry, columns_of, text_of

# What is not older is left alone: somebody may be about to write the rest of it.
GRACE_S = 3600
_PAGE = 100


@dataclass
class Report:
    """What was read and what was mended."""

    entries: int = 0
    authors: int = 0
    listed: int = 0
    unlisted: int = 0
    recounted: int = 0


def recount(blog, grace=GRACE_S):
    """Lists every entry where it belongs and nothing else, and corrects every numPosts.

    All is written as of the time before it was read, so that what others write meanwhile holds.
    """
    stamp, report, posts = blog.keyspace.timestamp(), Report(), Counter()
    needed = SlicePredicate(column_names=sorted(name.encode() for name in NEEDED))
    for slug, columns in _rows(blog, "BlogEntries", needed):
        entry = Entry.of(slug, text_of(columns), {})
        if entry:
            report.entries += 1
            posts[entry.author] += 1
            report.listed += _list(blog, entry, stamp)
    for row, _ in _rows(blog, "TaggedPosts", between(count=1)):
        report.unlisted += _unlist(blog, row, grace)
    for author, _ in _rows(blog, "Authors", between(count=1)):
        report.authors += 1
        number = str(posts[author])
        if blog.author(author).get("numPosts") != number:
            report.recounted += 1
            changed = columns_of({"numPosts": number}, stamp)
            blog.keyspace.mutate({author: {"Authors": changed}})
    return report


def _rows(blog, family, predicate):
    """Keys and columns of all rows that have some, a page at a time."""
    keyspace, start = blog.keyspace, ""
    while True:
        bounds = KeyRange(start_key=start, end_key="", count=_PAGE)
        found = keyspace.client.get_range_slices(
            keyspace.name, ColumnParent(family), predicate, bounds, keyspace.consistency
        )
        for each in found:
            # A page begins with the last row of the one before, and deleted rows have no columns.
            if each.key != start and each.columns:
                yield each.key, [inner.column for inner in each.columns]
        if len(found) < _PAGE:
            return
        start = found[-1].key


def _list(blog, entry, stamp):
    """Puts an entry into those of its lists that do not have it; returns how many these were."""
    missing = [row for row in dict.fromkeys(entry.lists()) if not blog.listed(row, entry)]
    if missing:
        name = blog.name_of(entry)
        listed = {"TaggedPosts": [put(name, entry.slug.encode(), stamp)]}
        blog.keyspace.mutate({row: listed for row in missing})
    return len(missing)


def _unlist(blog, row, grace):
    """Takes out of a list what does not belong there; returns how much that was."""
    late = (time.time() - grace) * 1_000_000
    columns, number = blog.keyspace.each(row, "TaggedPosts", page=_PAGE), 0
    while some := list(islice(columns, _PAGE)):
        belonging = _belonging(blog, row, {_slug(column) for column in some})
        # By its own timestamp, so that a name that is written anew meanwhile stays.
        gone = [
            delete(column.timestamp, [column.name])
            for column in some
            if _slug(column) not in belonging and column.timestamp <= late
        ]
        if gone:
            blog.keyspace.mutate({row: {"TaggedPosts": gone}})
        number += len(gone)
    return number


def _belonging(blog, row, slugs):
    """Those of the slugs whose entry belongs into a list."""
    rows = blog.rows("BlogEntries", [slug for slug in slugs if slug])
    entries = [Entry.of(slug, columns, {}) for slug, columns in rows.items()]
    return {entry.slug for entry in entries if entry and row in entry.lists()}


def _slug(column):
    return column.value.decode(errors="replace")
