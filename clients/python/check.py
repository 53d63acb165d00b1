#!/usr/bin/python3
"""Runs a whole scenario against a server and compares every answer with what is due.

Exits with 1 at the first difference and says which. Each run has names of its own, so it can be
repeated on a server that already holds data; only nobody else may post at the same time.
"""

import argparse
import itertools
import sys
import time
from pathlib import Path

try:
    from alexandra import program, timeuuid
    from alexandra.bindings import ttypes
    from alexandra.connection import Connection, has_accelerator
    from bloggy.paging import Page
    from bloggy.weblog import KEYSPACE, Blog, BlogError
    from cassandra_thrift.ttypes import (
        Column,
        ColumnOrSuperColumn,
        ColumnParent,
        ColumnPath,
        ConsistencyLevel,
        KeyRange,
        SlicePredicate,
        SliceRange,
        SuperColumn,
    )
    from check_lists import LISTS
    from thrift.transport.TTransport import TTransportException
except ImportError as missing:
    sys.exit(f"check.py: {missing}")

ONE = ConsistencyLevel.ONE
ENTRIES = ColumnParent("BlogEntries")
TAGGED = ColumnParent("TaggedPosts")
COMMENTS = ColumnParent("Comments")


class Difference(Exception):
    """An answer was not the one that is due."""


class Run:
    """One pass over one connection: the client, the blog, and names that no other pass has."""

    def __init__(self, client):
        self.client = client
        self.blog = Blog(client)
        self.id = f"{time.time_ns():x}"
        self.checks = 0
        self.slugs = []

    def name(self, text):
        """A name of this pass."""
        return f"{text} {self.id}"

    def same(self, what, got, want):
        """The answer is exactly the one that is due."""
        self.checks += 1
        if got != want:
            raise Difference(f"{what}:\n  due: {want!r}\n  got: {got!r}")

    def refused(self, what, kind, call, why=None):
        """The call raises this exception, with this text where one is given."""
        self.checks += 1
        try:
            got = call()
        except kind as error:
            if why is not None:
                self.same(what, getattr(error, "why", str(error)), why)
        else:
            raise Difference(f"{what}: {kind.__name__} is due, got: {got!r}")

    # The calls, with the arguments that are always the same here.

    def insert(self, key, family, name, value, timestamp):
        """One column."""
        path = ColumnPath(family, column=name)
        self.client.insert(KEYSPACE, key, path, value, timestamp, ONE)

    def value(self, key, family, name):
        """The value of a column; None where there is none."""
        try:
            found = self.client.get(KEYSPACE, key, ColumnPath(family, column=name), ONE)
        except ttypes.NotFoundException:
            return None
        return found.column.value

    def slice(self, key, parent, start=b"", finish=b"", reverse=False, count=100):
        """Columns of a range."""
        predicate = SlicePredicate(slice_range=SliceRange(start, finish, reverse, count))
        return self.client.get_slice(KEYSPACE, key, parent, predicate, ONE)

    def names(self, *arguments, **options):
        """Only the names of a slice of columns."""
        return [each.column.name for each in self.slice(*arguments, **options)]


def _slugs(page):
    return [entry.slug for entry in page.items]


def the_server(run):
    """The server presents itself as the old one did."""
    client = run.client
    run.same("describe_keyspaces", {KEYSPACE, "system"} - set(client.describe_keyspaces()), set())
    families = client.describe_keyspace(KEYSPACE)
    kinds = {name: families.get(name, {}).get("Type") for name in ("Authors", "Comments")}
    run.same("types", kinds, {"Authors": "Standard", "Comments": "Super"})
    marshal = "org.apache.cassandra.db.marshal."
    comparator = families["TaggedPosts"]["CompareWith"]
    run.same("CompareWith", comparator, f"{marshal}TimeUUIDType")
    comparator = families["Comments"]["CompareSubcolumnsWith"]
    run.same("CompareSubcolumnsWith", comparator, f"{marshal}BytesType")
    version = client.get_string_property("version")
    run.same("version", version.split(".")[0].isdigit(), True)
    credentials = ttypes.AuthenticationRequest(credentials={"username": "u", "password": "p"})
    run.same("login", client.login(KEYSPACE, credentials), None)


def time_uuids(run):
    """What the blog makes of moments is what the server will sort."""
    ascending = [timeuuid.now() for _ in range(1000)]
    run.same("ascending", [a.time < b.time for a, b in zip(ascending, ascending[1:])], [True] * 999)
    epoch = timeuuid.at(0)
    run.same("the Unix epoch", str(epoch)[:18], "13814000-1dd2-11b2")
    run.same("back again", timeuuid.seconds(timeuuid.at(1_262_304_000.75)), 1_262_304_000)
    run.same("its variant", epoch.bytes[8] >> 6, 0b10)
    first, last = timeuuid.bounds(0)
    run.same("bounds", [first.time < epoch.time, last.time - first.time], [False, 9_999_999])


def authors(run):
    """Authors come and change."""
    zoe, arthur = run.name("Zoë Müller"), run.name("Arthur Dent")
    run.same("an unknown author", run.blog.author(zoe), {})
    run.blog.save_author(zoe, email="zoe@example.org", bio="größer als nichts")
    run.blog.save_author(arthur, twitter="arthur")
    run.blog.save_author(zoe, email="z@example.org")
    due = {"numPosts": "0", "email": "z@example.org", "bio": "größer als nichts"}
    run.same("an author", run.blog.author(zoe), due)
    stranger = run.name("nobody")
    run.refused("a post by a stranger", BlogError, lambda: run.blog.post("t", "b", stranger))


def front_page(run):
    """Twelve entries: the newest ten on the first page, the other two at the top of the next."""
    zoe, arthur = run.name("Zoë Müller"), run.name("Arthur Dent")
    for number in range(12):
        tags = [run.name("all"), *([run.name("even")] if number % 2 == 0 else [])]
        author = zoe if number % 3 == 0 else arthur
        slug = run.blog.post(f"Entry {number}", f"Body {number}\nñ", author, tags,
                             slug=f"entry-{number}-{run.id}")
        run.slugs.append(slug)
    first = run.blog.page()
    run.same("order of the front page", _slugs(first), run.slugs[:1:-1])
    newest = first.items[0]
    run.same("title", newest.title, "Entry 11")
    run.same("body", newest.body, "Body 11\nñ")
    run.same("tags", newest.tags, [run.name("all")])
    run.same("author", newest.author, arthur)
    due = {"numPosts": "8", "twitter": "arthur"}
    run.same("author's attributes", newest.author_attributes, due)
    run.same("date", abs(newest.published - time.time()) < 60, True)
    following = run.blog.page(start=first.following)
    run.same("the next page", _slugs(following)[:2], run.slugs[1::-1])
    again = "a slug that is taken"
    run.refused(again, BlogError, lambda: run.blog.post("t", "b", zoe, slug=run.slugs[0]))


def tag_page(run):
    """A tag lists its own."""
    even = run.blog.page(run.name("even"))
    run.same("order of a tag", _slugs(even), run.slugs[10::-2])
    run.same("ends of a tag", (even.following, even.preceding), (None, None))
    run.same("a tag of nobody", run.blog.page(run.name("nothing")), Page([], None, None))
    parent_count = run.client.get_count(KEYSPACE, run.name("all"), TAGGED, ONE)
    run.same("get_count of a tag", parent_count, 12)


def comments(run):
    """Comments stand in the order of their time, whatever the order of their arrival."""
    slug, then = run.slugs[0], 1_262_304_000
    run.same("no comments", run.blog.comments(slug).items, [])
    for minute in (3, 1, 2):
        written = then + minute * 60
        run.blog.comment(slug, f"Reader {minute}", "r@example.org", f"№ {minute}", written)
    found = run.blog.comments(slug).items
    due = ["Reader 1", "Reader 2", "Reader 3"]
    run.same("order of comments", [c.commenter for c in found], due)
    run.same("text of a comment", found[1].text, "№ 2")
    run.same("time of a comment", found[1].written, then + 120)
    second = found[1].id.bytes
    whole = run.client.get(KEYSPACE, slug, ColumnPath("Comments", super_column=second), ONE)
    inner = [column.name for column in whole.super_column.columns]
    run.same("inside a comment", inner, [b"comment", b"commentTime", b"commenter", b"email"])
    run.same("get_count of comments", run.client.get_count(KEYSPACE, slug, COMMENTS, ONE), 3)
    within = ColumnParent("Comments", second)
    run.same("get_count inside", run.client.get_count(KEYSPACE, slug, within, ONE), 4)
    run.same("slice inside", run.names(slug, within, b"commentTime", b"commenter"),
             [b"commentTime", b"commenter"])
    start, finish = timeuuid.bounds(then + 60)[0], timeuuid.bounds(then + 120)[1]
    slice_of_two = run.slice(slug, COMMENTS, start.bytes, finish.bytes)
    run.same("comments of two minutes", [c.super_column.name for c in slice_of_two],
             [c.id.bytes for c in found[:2]])


def edits(run):
    """Of two versions of a column the one with the greater timestamp counts."""
    slug, path = run.slugs[0], ColumnPath("BlogEntries", column=b"title")
    run.blog.edit(slug, title="Édition")
    run.same("an edit", run.blog.entry(slug).title, "Édition")
    run.same("the rest of the entry", run.blog.entry(slug).body, "Body 0\nñ")
    stamp = run.client.get(KEYSPACE, slug, path, ONE).column.timestamp
    run.insert(slug, "BlogEntries", b"title", b"older", stamp - 1)
    run.same("an older edit", run.blog.entry(slug).title, "Édition")
    run.insert(slug, "BlogEntries", b"title", b"newer", stamp + 1)
    run.same("a newer edit", run.blog.entry(slug).title, "newer")
    run.insert(slug, "BlogEntries", b"title", b"aaaaa", stamp + 1)
    run.same("a lesser value of the same time", run.blog.entry(slug).title, "newer")
    run.insert(slug, "BlogEntries", b"title", b"zzzzz", stamp + 1)
    run.same("a greater value of the same time", run.blog.entry(slug).title, "zzzzz")


def deletes(run):
    """What is deleted is gone from everywhere, and stays so for writes from before."""
    slug, other = run.slugs[0], run.slugs[2]
    gone = run.blog.comments(slug).items[1].id
    run.blog.delete_comment(slug, gone)
    left = [c.commenter for c in run.blog.comments(slug).items]
    run.same("comments after one was deleted", left, ["Reader 1", "Reader 3"])
    run.refused("a comment deleted twice", BlogError, lambda: run.blog.delete_comment(slug, gone))
    run.blog.delete_entry(slug)
    run.refused("an entry that was deleted", BlogError, lambda: run.blog.entry(slug))
    run.same("its comments", run.blog.comments(slug).items, [])
    run.same("its tag", _slugs(run.blog.page(run.name("even"))), run.slugs[10:1:-2])
    run.same("its author", run.blog.author(run.name("Zoë Müller"))["numPosts"], "3")
    run.refused("get of a deleted column", ttypes.NotFoundException, lambda: run.client.get(
        KEYSPACE, slug, ColumnPath("BlogEntries", column=b"title"), ONE))

    title = ColumnPath("BlogEntries", column=b"title")
    stamp = run.client.get(KEYSPACE, other, title, ONE).column.timestamp
    run.client.remove(KEYSPACE, other, title, stamp - 1, ONE)
    run.same("a deletion of something older", run.value(other, "BlogEntries", b"title"), b"Entry 2")
    run.client.remove(KEYSPACE, other, title, stamp, ONE)
    run.same("a deletion of the same time", run.value(other, "BlogEntries", b"title"), None)
    run.client.remove(KEYSPACE, other, ColumnPath("BlogEntries"), stamp + 10, ONE)
    run.insert(other, "BlogEntries", b"title", b"late", stamp + 10)
    run.same("a write from before the deletion", run.names(other, ENTRIES), [])
    run.insert(other, "BlogEntries", b"title", b"back", stamp + 11)
    run.same("a write from after the deletion", run.names(other, ENTRIES), [b"title"])
    run.same("half an entry is none", _slugs(run.blog.page(run.name("even"))), run.slugs[10:2:-2])


def slices(run):
    """Ranges of a row, either way, and by names."""
    key = run.name("slices")
    names = [timeuuid.at(1_000_000_000 + n).bytes for n in range(25)]
    for name in reversed(names):
        run.insert(key, "TaggedPosts", name, b"v", 1)
    run.same("in order of time", run.names(key, TAGGED), names)
    run.same("reversed", run.names(key, TAGGED, reverse=True, count=3), names[:-4:-1])
    run.same("both ends belong to it", run.names(key, TAGGED, names[4], names[6]), names[4:7])
    run.same("reversed range", run.names(key, TAGGED, names[6], names[4], True), names[6:3:-1])
    run.same("nothing asked", run.names(key, TAGGED, count=0), [])
    paged, start = [], b""
    while True:
        page = run.names(key, TAGGED, start, count=10)
        paged += page[1:] if start else page
        if len(page) < 10:
            break
        start = page[-1]
    run.same("page by page", paged, names)
    wanted = [names[20], timeuuid.at(5).bytes, names[3], names[20]]
    found = run.client.get_slice(KEYSPACE, key, TAGGED, SlicePredicate(column_names=wanted), ONE)
    run.same("by names", [each.column.name for each in found], [names[3], names[20]])
    run.client.remove(KEYSPACE, key, ColumnPath("TaggedPosts", column=names[0]), 2, ONE)
    run.same("deleted ones do not count", run.names(key, TAGGED, count=3), names[1:4])


def rows(run):
    """Several rows at a time."""
    missing = run.name("missing")
    everything = SlicePredicate(slice_range=SliceRange(b"", b"", False, 100))
    keys = [run.slugs[3], missing, run.slugs[4]]
    found = run.client.multiget_slice(KEYSPACE, keys, ENTRIES, everything, ONE)
    run.same("multiget_slice", {k: len(v) for k, v in found.items()}, dict(zip(keys, (6, 0, 6))))
    run.same("no keys", run.client.multiget_slice(KEYSPACE, [], ENTRIES, everything, ONE), {})
    path = ColumnPath("BlogEntries", column=b"title")
    found = run.client.multiget(KEYSPACE, keys[:2], path, ONE)
    run.same("multiget", found[keys[0]].column.value, b"Entry 3")
    run.same("multiget of nothing", found[missing], ColumnOrSuperColumn())

    seen, start = [], ""
    while True:
        page = run.client.get_range_slices(
            KEYSPACE, ENTRIES, everything, KeyRange(start_key=start, end_key="", count=7), ONE)
        seen += [each.key for each in page if each.columns and each.key != start]
        if len(page) < 7:
            break
        start = page[-1].key
    run.same("every row once", len(seen), len(set(seen)))
    run.same("all rows", [s for s in run.slugs if s not in seen], [run.slugs[0]])
    only = run.client.get_range_slice(
        KEYSPACE, ENTRIES, everything, run.slugs[5], run.slugs[5], 10, ONE)
    run.same("a range of one row", [each.key for each in only], [run.slugs[5]])

    inner = [Column(b"commenter", b"B", 1), Column(b"a", b"", 1)]
    batch = {
        "BlogEntries": [ColumnOrSuperColumn(column=Column(b"x", b"1", 1))],
        "Comments": [ColumnOrSuperColumn(super_column=SuperColumn(timeuuid.at(9).bytes, inner))],
    }
    run.client.batch_insert(KEYSPACE, run.name("batch"), batch, ONE)
    run.same("batch_insert", run.value(run.name("batch"), "BlogEntries", b"x"), b"1")
    found = run.slice(run.name("batch"), COMMENTS)[0].super_column.columns
    run.same("batch_insert of a super column", [(c.name, c.value) for c in found],
             [(b"a", b""), (b"commenter", b"B")])


def bytes_of_all_kinds(run):
    """Names and values are bytes, kept as they are; keys are text in any script."""
    key = run.name("ключ 鍵 🔑")
    every = bytes(range(256))
    run.insert(key, "BlogEntries", every, every, 1)
    run.insert(key, "BlogEntries", b"\x00", b"", 1)
    run.insert(key, "BlogEntries", b"\xff" * 1000, every * 2000, 1)
    run.same("order by unsigned bytes", run.names(key, ENTRIES), [b"\x00", every, b"\xff" * 1000])
    run.same("every byte", run.value(key, "BlogEntries", every), every)
    run.same("an empty value", run.value(key, "BlogEntries", b"\x00"), b"")
    run.same("half a megabyte", run.value(key, "BlogEntries", b"\xff" * 1000), every * 2000)
    path = ColumnPath("BlogEntries", column=every)
    for stamp in (-(2**62), 2**62):
        run.client.insert(KEYSPACE, run.name(str(stamp)), path, b"v", stamp, ONE)
        found = run.client.get(KEYSPACE, run.name(str(stamp)), path, ONE).column
        run.same("a timestamp", found.timestamp, stamp)


def refusals(run):
    """What is wrong is refused with a reason, and the connection lives on."""
    key, refused = run.slugs[3], ttypes.InvalidRequestException
    column = ColumnPath("BlogEntries", column=b"title")
    cases = [
        ("Keyspace Nowhere does not exist in this schema.",
         lambda: run.client.get("Nowhere", key, column, ONE)),
        ("unconfigured columnfamily Nothing", lambda: run.slice(key, ColumnParent("Nothing"))),
        ("Key may not be empty", lambda: run.insert("", "BlogEntries", b"x", b"", 1)),
        ("column name must not be empty", lambda: run.insert(key, "BlogEntries", b"", b"", 1)),
        ("TimeUUID should be 16 or 0 bytes (3)",
         lambda: run.insert(key, "TaggedPosts", b"abc", b"", 1)),
        ("Invalid version for TimeUUID type.",
         lambda: run.insert(key, "TaggedPosts", b"\x40" * 16, b"", 1)),
        ("supercolumn parameter is not optional for super CF Comments",
         lambda: run.insert(key, "Comments", b"x", b"", 1)),
        ("get_slice requires non-negative count", lambda: run.slice(key, ENTRIES, count=-1)),
        ("range finish must come after start in the order of traversal",
         lambda: run.slice(key, ENTRIES, b"b", b"a")),
        ("Consistency level zero may not be applied to read operations",
         lambda: run.client.get(KEYSPACE, key, column, ConsistencyLevel.ZERO)),
    ]
    for why, call in cases:
        run.refused(why, refused, call, why)
        run.same("the connection after a refusal", run.value(key, "BlogEntries", b"title"),
                 b"Entry 3")


SCENARIO = [
    the_server,
    time_uuids,
    authors,
    front_page,
    tag_page,
    comments,
    edits,
    deletes,
    slices,
    rows,
    bytes_of_all_kinds,
    refusals,
]


def main():
    """Runs the scenario once for each transport and protocol."""
    parser = argparse.ArgumentParser(prog="check.py", description=__doc__.split("\n")[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=program.port, default=9160)
    parser.add_argument("--transport", choices=["buffered", "framed", "both"], default="both",
                        help="a server of old spoke only one of them on its port")
    options = parser.parse_args()
    transports = ["buffered", "framed"] if options.transport == "both" else [options.transport]
    protocols = ["binary", *(["accelerated"] if has_accelerator() else [])]
    sys.stdout.reconfigure(encoding="utf-8")
    sys.stderr.reconfigure(encoding="utf-8")
    for transport, protocol in itertools.product(transports, protocols):
        way = f"python, {transport}, {protocol}"
        # Lists are read and mended by hundreds of calls of few kinds: once for each transport.
        steps = [*SCENARIO, *(LISTS if protocol == protocols[-1] else [])]
        try:
            print(f"{way}: {_check(options, transport, protocol, steps)} answers as they are due")
        except (Difference, TTransportException) as error:
            sys.exit(f"{Path(__file__).name}: {way}: {error}")


def _check(options, transport, protocol, steps):
    with Connection(options.host, options.port, transport == "framed",
                    protocol == "accelerated") as client:
        run = Run(client)
        for step in steps:
            try:
                step(run)
            except (Difference, TTransportException):
                raise
            except Exception as error:
                where = f"{step.__name__}, after {run.checks} answers"
                raise Difference(f"{where}: {error!r}") from error
    return run.checks


if __name__ == "__main__":
    main()
