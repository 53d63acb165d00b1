"""Pages as plain text. The Ruby client prints the very same."""

import time


def front_page(page):
    """The newest entries of all."""
    return _list("Newest entries", page)


def tag_page(tag, page):
    """The newest entries of a tag."""
    return _list(f'Entries tagged "{tag}"', page)


def author_entries(name, page):
    """The newest entries of an author."""
    return _list(f"Entries by {name}", page)


def month_page(month, page):
    """The entries of a month."""
    return _list(f"Entries of {month}", page)


def archive(months):
    """The months with their numbers of entries."""
    lines = _heading("Archive", "=")
    if not months:
        lines += ["", "Nothing here yet."]
    lines += [f"{month}: {_number(count, 'entry', 'entries')}" for month, count in months]
    return "\n".join(lines)


def entry_page(entry, page, count):
    """An entry with what its readers said, or one page of that, and how much there is."""
    lines = [*_heading(entry.title, "="), _byline(entry), "", entry.body, ""]
    if not count:
        return "\n".join([*lines, "No comments yet."])
    lines += _heading(_number(count, "comment", "comments"), "-")
    for each in page.items:
        lines.append(f"{each.commenter} <{each.email}>, {_moment(each.written)} [{each.id}]")
        lines += [f"  {line}" for line in each.text.split("\n")]
    return "\n".join([*lines, *_places(page, "Earlier", "Later")])


def author_page(name, attributes):
    """What is known of an author."""
    return "\n".join([*_heading(name, "="), *(f"{k}: {v}" for k, v in sorted(attributes.items()))])


def tag_count(tag, count):
    """How much a tag lists."""
    return f'Tag "{tag}": {_number(count, "entry", "entries")}'


def author_count(name, count, attributes):
    """How much an author's list has, and what his column says."""
    number = attributes.get("numPosts", "none")
    return f"Author {name}: {_number(count, 'entry', 'entries')}, numPosts: {number}"


def comment_count(slug, count):
    """How much was said on an entry."""
    return f"Entry {slug}: {_number(count, 'comment', 'comments')}"


def report(done):
    """What a recount has done."""
    return "\n".join([
        f"Read: {_number(done.entries, 'entry', 'entries')} "
        f"by {_number(done.authors, 'author', 'authors')}",
        f"Listed where it was missing: {done.listed}",
        f"Taken out of lists: {done.unlisted}",
        f"Numbers corrected: {done.recounted}",
    ])


def _list(title, page):
    lines = _heading(title, "=")
    if not page.items:
        lines += ["", "Nothing here yet."]
    for entry in page.items:
        first_line = entry.body.split("\n")[0]
        lines += ["", entry.title, f"  {_byline(entry)}", f"  {first_line}", f"  -> {entry.slug}"]
    return "\n".join([*lines, *_places(page, "Newer", "Older")])


def _places(page, before, after):
    """How to go on from a page."""
    lines = []
    if page.preceding:
        lines.append(f"{before} ones: --until {page.preceding}")
    if page.following:
        lines.append(f"{after} ones: --from {page.following}")
    return ["", *lines] if lines else []


def _number(count, one, many):
    return f"1 {one}" if count == 1 else f"{count} {many}"


def _byline(entry):
    twitter = entry.author_attributes.get("twitter")
    author = f"{entry.author} (@{twitter})" if twitter else entry.author
    line = f"by {author}, {_moment(entry.published)}"
    return f"{line}, tags: {', '.join(entry.tags)}" if entry.tags else line


def _heading(text, stroke):
    return [text, stroke * len(text)]


def _moment(unix_time):
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(unix_time))
