"""Pages as plain text. The Ruby client prints the very same."""

import time


def front_page(entries, following):
    """The newest entries of all."""
    return _list("Newest entries", entries, following)


def tag_page(tag, entries, following):
    """The newest entries of a tag."""
    return _list(f'Entries tagged "{tag}"', entries, following)


def entry_page(entry, comments):
    """An entry with what its readers said."""
    lines = [*_heading(entry.title, "="), _byline(entry), "", entry.body, ""]
    if not comments:
        return "\n".join([*lines, "No comments yet."])
    count = "1 comment" if len(comments) == 1 else f"{len(comments)} comments"
    lines += _heading(count, "-")
    for each in comments:
        lines.append(f"{each.commenter} <{each.email}>, {_moment(each.written)} [{each.id}]")
        lines += [f"  {line}" for line in each.text.split("\n")]
    return "\n".join(lines)


def author_page(name, attributes):
    """What is known of an author."""
    return "\n".join([*_heading(name, "="), *(f"{k}: {v}" for k, v in sorted(attributes.items()))])


def _list(title, entries, following):
    lines = _heading(title, "=")
    if not entries:
        lines += ["", "Nothing here yet."]
    for entry in entries:
        first_line = entry.body.split("\n")[0]
        lines += ["", entry.title, f"  {_byline(entry)}", f"  {first_line}", f"  -> {entry.slug}"]
    if following:
        lines += ["", f"Older ones: --from {following}"]
    return "\n".join(lines)


def _byline(entry):
    twitter = entry.author_attributes.get("twitter")
    author = f"{entry.author} (@{twitter})" if twitter else entry.author
    line = f"by {author}, {_moment(entry.published)}"
    return f"{line}, tags: {', '.join(entry.tags)}" if entry.tags else line


def _heading(text, stroke):
    return [text, stroke * len(text)]


def _moment(unix_time):
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(unix_time))
