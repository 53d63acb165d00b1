"""The steps of check.py for what a blog does with its lists: pages either way, tags that change,
authors, months, numbers, and what is left when a write breaks off."""

import time

from alexandra import timeuuid
from bloggy import months
from bloggy.recount import recount
from bloggy.weblog import FRONT_PAGE, KEYSPACE, Blog, BlogError, author_list
from cassandra_thrift.ttypes import ColumnPath, ConsistencyLevel

ONE = ConsistencyLevel.ONE
# Tags whose entries have been interrupted.
_BROKEN = ("gone", "going", "posted")
# More rows than any change of the blog writes here.
_MOST_WRITES = 8


class Lost(Exception):
    """The connection broke."""


class Breaking:
    """A client whose batches are written row by row, of which it only reaches the first.

    For a batch is not one step: when it fails, some of its rows may have been written.
    """

    def __init__(self, client, rows, backwards):
        self._client = client
        self._left = rows
        self._backwards = backwards

    def __getattr__(self, name):
        return getattr(self._client, name)

    def batch_mutate(self, keyspace, changes, consistency):
        """Row by row, in one order or the other."""
        for key in sorted(changes, reverse=self._backwards):
            if not self._left:
                raise Lost
            self._left -= 1
            self._client.batch_mutate(keyspace, {key: changes[key]}, consistency)


def _slugs(page):
    return [entry.slug for entry in page.items]


def _breaks(run, change):
    """Breaks one change off after each of its writes, and yields whether it was."""
    for backwards in (False, True):
        for rows in range(_MOST_WRITES):
            try:
                change(Blog(Breaking(run.client, rows, backwards)), f"{rows}-{backwards}".lower())
            except Lost:
                yield True
            else:
                yield False


def _posted(run, slug, tags, author=None):
    author = author or run.name("Arthur Dent")
    return run.blog.post("Title", "Body", author, tags, slug=slug)


def tags_follow(run):
    """Whoever changes the tags of an entry changes its lists."""
    old, kept, new = (run.name(tag) for tag in ("old", "kept", "new"))
    slug = _posted(run, f"tags-{run.id}", [old, kept, old])
    run.same("each tag once", run.blog.entry(slug).tags, [old, kept])
    run.blog.edit(slug, title="Other", tags=[kept, new])
    entry = run.blog.entry(slug)
    run.same("tags and title", (entry.tags, entry.title), ([kept, new], "Other"))
    listed = [_slugs(run.blog.page(tag)) for tag in (old, kept, new)]
    run.same("the lists", listed, [[], [slug], [slug]])
    counts = [run.blog.count_tag(tag) for tag in (old, kept, new)]
    run.same("their numbers", counts, [0, 1, 1])
    run.blog.edit(slug, tags=[old])
    run.same("back again", _slugs(run.blog.page(old)), [slug])
    run.blog.edit(slug, tags=[])
    run.same("none at all", run.blog.entry(slug).tags, [])
    run.same("still on the front page", slug in _slugs(run.blog.page()), True)
    for tag in ("__notag__", "a,b", " ", ""):
        run.refused("no tag", BlogError, lambda tag=tag: run.blog.edit(slug, tags=[tag]))
        run.refused("no tag", BlogError, lambda tag=tag: _posted(run, f"x-{run.id}", [tag]))
    run.blog.delete_entry(slug)


def paging(run):
    """Pages are full and the same in both directions, also where a list leads nowhere."""
    tag, slugs = run.name("mixed"), []
    for number in range(11):
        slugs.append(_posted(run, f"mixed-{number}-{run.id}", [tag]))
        run.insert(tag, "TaggedPosts", timeuuid.now().bytes, b"nowhere", 1)
        # It exists, and does not belong here.
        run.insert(tag, "TaggedPosts", timeuuid.now().bytes, run.slugs[5].encode(), 1)
    newest_first = slugs[::-1]
    _there_and_back(run, lambda **place: run.blog.page(tag, size=3, **place),
                    [newest_first[i:i + 3] for i in range(0, 11, 3)], lambda e: e.slug)
    second = run.blog.listed(tag, run.blog.entry(newest_first[1]))[0]
    page = run.blog.page(tag, until=timeuuid.uuid.UUID(bytes=second), size=3)
    run.same("the first page is full", _slugs(page), newest_first[:3])
    for slug in slugs:
        run.blog.delete_entry(slug)
    run.same("an empty list", run.blog.page(tag).items, [])


def comment_pages(run):
    """So are those of comments, oldest first; an old slug begins without any."""
    slug = _posted(run, f"discussed-{run.id}", [])
    texts = [f"Comment {number}" for number in range(8)]
    for number, text in enumerate(texts):
        run.blog.comment(slug, "R", "r@example.org", text, written=1_262_304_000 + number)
    _there_and_back(run, lambda **place: run.blog.comments(slug, size=3, **place),
                    [texts[:3], texts[3:6], texts[6:]], lambda comment: comment.text)
    run.same("number of comments", run.blog.count_comments(slug), 8)
    run.blog.delete_entry(slug)
    run.same("number of none", run.blog.count_comments(slug), 0)
    # Two that come too late, and a half of an entry.
    path = ColumnPath("Comments", super_column=timeuuid.now().bytes, column=b"comment")
    run.client.insert(KEYSPACE, slug, path, b"late", run.blog.keyspace.timestamp(), ONE)
    stamp = run.blog.keyspace.timestamp()
    run.insert(slug, "BlogEntries", b"title", b"late", stamp)
    run.same("half a comment is none", run.blog.comments(slug).items, [])
    run.same("the slug is free", _posted(run, slug, []), slug)
    run.same("and has no comments", run.blog.count_comments(slug), 0)
    run.blog.delete_entry(slug)


def _there_and_back(run, read, due, of):
    pages = [read()]
    while pages[-1].following and len(pages) < 20:
        pages.append(read(start=pages[-1].following))
    run.same("pages", [[of(item) for item in page.items] for page in pages], due)
    run.same("before the first", pages[0].preceding, None)
    for before, page in zip(pages, pages[1:]):
        run.same("the page before", read(until=page.preceding).items, before.items)
        run.same("and forth again", read(until=page.preceding).following is None, False)
    back = [pages[-1]]
    while back[-1].preceding and len(back) < 20:
        back.append(read(until=back[-1].preceding))
    run.same("back", [[of(item) for item in page.items] for page in back], due[::-1])


def entries_of_authors(run):
    """Each author has a list; those of an older version get it by a recount."""
    name = run.name("Ford")
    run.blog.save_author(name, email="ford@example.org")
    slugs = [_posted(run, f"ford-{number}-{run.id}", [], name) for number in range(3)]
    run.same("his entries", _slugs(run.blog.by_author(name)), slugs[::-1])
    run.blog.save_author(name, bio="hitchhiker")
    run.same("his number", run.blog.author(name)["numPosts"], "3")
    run.blog.delete_entry(slugs.pop())
    run.same("without one", _slugs(run.blog.by_author(name)), slugs[::-1])
    numbers = (run.blog.count_author(name), run.blog.author(name)["numPosts"])
    run.same("his numbers", numbers, (2, "2"))

    path = ColumnPath("TaggedPosts")
    stamp = run.blog.keyspace.timestamp()
    run.client.remove(KEYSPACE, author_list(name), path, stamp, ONE)
    run.blog.save_author(name, numPosts="99")
    # Three of one second, of which nothing but the entries was written.
    for number in range(3):
        _as_of(run, f"unlisted-{number}-{run.id}", 1_234_567_890, name, listed=False)
    run.same("as it was of old", run.blog.by_author(name).items, [])
    recount(run.blog)
    found = _slugs(run.blog.by_author(name))
    run.same("after a recount", found[:2], slugs[::-1])
    run.same("those of one second", sorted(found[2:]),
             [f"unlisted-{number}-{run.id}" for number in range(3)])
    run.same("his number", run.blog.author(name)["numPosts"], "5")
    run.same("his other attributes", run.blog.author(name)["bio"], "hitchhiker")


def archive(run):
    """Months are parts of the front page's row."""
    before = dict(run.blog.archive())
    midnight = 1_262_304_000  # 2010 begins.
    due = {}
    for seconds in (-2, -1, 0, 1, 31 * 86_400 - 1, 31 * 86_400):
        slug = f"{seconds}-{run.id}"
        _as_of(run, slug, midnight + seconds, run.name("Arthur Dent"))
        due.setdefault(time.strftime("%Y-%m", time.gmtime(midnight + seconds)), []).insert(0, slug)
    numbers = {month: len(slugs) for month, slugs in due.items()}
    after = dict(run.blog.archive())
    run.same("more in each month", {month: after[month] - before.get(month, 0) for month in due},
             numbers)
    run.same("newest month first", list(after), sorted(after, reverse=True))
    for month, slugs in due.items():
        own, page = [], run.blog.of_month(month, size=2)
        while True:
            own += [slug for slug in _slugs(page) if slug in slugs]
            if not page.following:
                break
            page = run.blog.of_month(month, start=page.following, size=2)
        run.same(f"entries of {month}", own, slugs)
        back = run.blog.of_month(month, until=page.preceding, size=2) if page.preceding else page
        run.same("none of others", {months.of(_name(run, e)) for e in back.items}, {month})
    for month in ("2010-13", "2010", "x"):
        run.refused("no month", BlogError, lambda month=month: run.blog.of_month(month))
    other = timeuuid.at(midnight)
    run.refused("other month", BlogError, lambda: run.blog.of_month("2009-12", start=other))
    for slugs in due.values():
        for slug in slugs:
            run.blog.delete_entry(slug)
    run.same("as before", dict(run.blog.archive()), before)


def _as_of(run, slug, published, author, listed=True):
    """An entry as an older version wrote it, at another time: its author has no list."""
    values = {"title": "t", "body": "b", "author": author, "tags": "", "pubDate": str(published),
              "slug": slug}
    stamp = run.blog.keyspace.timestamp()
    for name, value in values.items():
        run.insert(slug, "BlogEntries", name.encode(), value.encode(), stamp)
    if listed:
        run.insert(FRONT_PAGE, "TaggedPosts", timeuuid.at(published).bytes, slug.encode(), stamp)


def _name(run, entry):
    return timeuuid.uuid.UUID(bytes=run.blog.name_of(entry))


def interrupted(run):
    """A change that breaks off anywhere shows nothing wrong, and can be repeated or mended."""
    for change in (_deletions, _changes_of_tags, _posts):
        run.same("some broke off, some did not", change(run), {True, False})
    # Some entries are in no list any more, and some lists have what does not belong there.
    recount(run.blog, grace=0)
    done = recount(run.blog, grace=0)
    run.same("all is mended", (done.listed, done.unlisted, done.recounted), (0, 0, 0))
    run.same("and no number is wrong", _numbers(run), _numbers_due(run))
    due = [0, 1, 1, *[len(_slugs(run.blog.page(run.name(tag), size=100))) for tag in _BROKEN]]
    tags = ["before", "always", "after", *_BROKEN]
    run.same("as many as are shown", [run.blog.count_tag(run.name(tag)) for tag in tags], due)
    # The next run has less to recount.
    pages = [run.blog.page(run.name(tag), size=100) for tag in _BROKEN]
    for slug in {slug for page in pages for slug in _slugs(page)}:
        run.blog.delete_entry(slug)


def _deletions(run):
    """Each is repeated if there is still an entry, but for those that have not done anything."""
    broken, left, tags = set(), [], [run.name("gone"), run.name("going")]

    def change(blog, number):
        change.slug = _posted(run, f"gone-{number}-{run.id}", tags)
        run.blog.comment(change.slug, "R", "r@example.org", "text")
        blog.delete_entry(change.slug)

    for lost in _breaks(run, change):
        broken.add(lost)
        for slug in {slug for tag in tags for slug in _slugs(run.blog.page(tag))}:
            run.same("what is listed can be read", run.blog.entry(slug).slug, slug)
        found = run.blog.rows("BlogEntries", [change.slug])[change.slug]
        run.same("with an entry go its comments", len(run.blog.comments(change.slug).items),
                 1 if found else 0)
        if change.slug.startswith("gone-0"):
            left.append(change.slug)
        elif found:
            run.blog.delete_entry(change.slug)
        counts = [run.blog.count_tag(tag) for tag in tags]
        run.same("only those are listed", counts, [len(left)] * 2)
    return broken


def _changes_of_tags(run):
    old, kept, new = (run.name(tag) for tag in ("before", "always", "after"))
    slug, broken = _posted(run, f"changing-{run.id}", [old, kept]), set()

    def change(blog, _):
        run.blog.edit(slug, tags=[old, kept])
        blog.edit(slug, tags=[kept, new])

    for lost in _breaks(run, change):
        broken.add(lost)
        tags = run.blog.entry(slug).tags
        run.same("one or the other", tags in ([old, kept], [kept, new]), True)
        listing = [tag for tag in (old, kept, new) if _slugs(run.blog.page(tag)) == [slug]]
        run.same("and listed like that", listing, tags)
        run.blog.edit(slug, tags=[kept, new])
    return broken


def _posts(run):
    tag, broken = run.name("posted"), set()

    def change(blog, number):
        blog.post("Title", "Body", run.name("Arthur Dent"), [tag], slug=f"new-{number}-{run.id}")

    for lost in _breaks(run, change):
        broken.add(lost)
        for slug in _slugs(run.blog.page(tag, size=100)):
            run.same("what is listed can be read", run.blog.entry(slug).slug, slug)
    return broken


def _authors(run):
    return [run.name(name) for name in ("Zoë Müller", "Arthur Dent", "Ford")]


def _numbers(run):
    return [run.blog.author(name)["numPosts"] for name in _authors(run)]


def _numbers_due(run):
    """From the front page, entry by entry."""
    authors, place = [], None
    while True:
        page = run.blog.page(start=place, size=100)
        authors += [entry.author for entry in page.items]
        place = page.following
        if not place:
            return [str(authors.count(name)) for name in _authors(run)]


LISTS = [tags_follow, paging, comment_pages, entries_of_authors, archive, interrupted]
