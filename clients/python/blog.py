#!/usr/bin/python3
"""A blog on Cassandra, as one would have written it in 2010. See `blog.py --help`."""

import sys
import uuid

try:
    from alexandra import program
    from alexandra.connection import Connection
    from bloggy import text
    from bloggy.recount import recount
    from bloggy.weblog import Blog, BlogError
except ImportError as missing:
    sys.exit(f"blog.py: {missing}")


def main():
    """Runs one command; the exit code is 1 when it could not be done."""
    options = _parser().parse_args()

    def work():
        with Connection(options.host, options.port, framed=options.framed) as client:
            print(options.run(Blog(client), options))

    program.run(options, "blog.py", work, [BlogError])


def _parser():
    parser = program.parser("blog.py", "A blog on Cassandra.")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(name, run, about, *arguments):
        sub = commands.add_parser(name, help=about, description=about)
        sub.set_defaults(run=run)
        for argument in arguments:
            needed = argument in ("--title", "--author") and name == "post"
            kind = uuid.UUID if argument in ("--from", "--until", "id") else str
            if argument == "[text]":
                sub.add_argument("text", nargs="?", help="read from standard input when left out")
            elif argument == "[month]":
                sub.add_argument("month", nargs="?", help="as 2010-11")
            elif argument == "kind":
                sub.add_argument("kind", choices=["tag", "author", "comments"])
            elif argument.startswith("--"):
                sub.add_argument(argument, type=kind, required=needed)
            else:
                sub.add_argument(argument, type=kind)

    command("author", _author, "show an author, or save what is given of him",
            "name", "--email", "--twitter", "--bio")
    command("post", _post, "publish an entry",
            "--title", "--author", "--tags", "--slug", "[text]")
    command("edit", _edit, "change an entry", "slug", "--title", "--body", "--tags")
    command("comment", _comment, "comment on an entry", "slug", "name", "email", "[text]")
    command("front", _front, "the newest entries", "--from", "--until")
    command("tag", _tag, "the newest entries of a tag", "tag", "--from", "--until")
    command("by", _by, "the newest entries of an author", "name", "--from", "--until")
    command("archive", _archive, "the months, or the entries of one of them",
            "[month]", "--from", "--until")
    command("show", _show, "an entry and its comments", "slug", "--from", "--until")
    command("count", _count, "how many there are", "kind", "name")
    command("delete", _delete, "delete an entry", "slug")
    command("uncomment", _uncomment, "delete a comment", "slug", "id")
    command("recount", _recount, "mend numbers and lists from the entries")
    command("demo", _demo, "fill an empty blog, and show it")
    return parser


def _author(blog, options):
    given = {"email": options.email, "twitter": options.twitter, "bio": options.bio}
    given = {name: value for name, value in given.items() if value is not None}
    if given:
        blog.save_author(options.name, **given)
    attributes = blog.author(options.name)
    if not attributes:
        raise BlogError(f"no author {options.name}")
    return text.author_page(options.name, attributes)


def _post(blog, options):
    tags = _tags(options.tags or "")
    slug = blog.post(options.title, _body(options), options.author, tags, options.slug)
    return f"Published: {slug}"


def _edit(blog, options):
    given = {"title": options.title, "body": options.body}
    given = {name: value for name, value in given.items() if value is not None}
    if options.tags is not None:
        given["tags"] = _tags(options.tags)
    if not given:
        raise BlogError("nothing to change: give --title, --body or --tags")
    blog.edit(options.slug, **given)
    return f"Changed: {options.slug}"


def _comment(blog, options):
    added = blog.comment(options.slug, options.name, options.email, _body(options))
    return f"Commented: {added}"


def _front(blog, options):
    return text.front_page(blog.page(**_place(options)))


def _tag(blog, options):
    return text.tag_page(options.tag, blog.page(options.tag, **_place(options)))


def _by(blog, options):
    return text.author_entries(options.name, blog.by_author(options.name, **_place(options)))


def _archive(blog, options):
    if options.month is None:
        return text.archive(blog.archive())
    return text.month_page(options.month, blog.of_month(options.month, **_place(options)))


def _show(blog, options):
    return _entry(blog, options.slug, **_place(options))


def _entry(blog, slug, **place):
    comments = blog.comments(slug, **place)
    return text.entry_page(blog.entry(slug), comments, blog.count_comments(slug))


def _count(blog, options):
    name = options.name
    if options.kind == "tag":
        return text.tag_count(name, blog.count_tag(name))
    if options.kind == "author":
        return text.author_count(name, blog.count_author(name), blog.author(name))
    return text.comment_count(name, blog.count_comments(name))


def _recount(blog, options):
    return text.report(recount(blog))


def _delete(blog, options):
    blog.delete_entry(options.slug)
    return f"Deleted: {options.slug}"


def _uncomment(blog, options):
    blog.delete_comment(options.slug, options.id)
    return f"Deleted: {options.id}"


def _demo(blog, options):
    if not blog.author("Zoë Müller"):
        blog.save_author("Zoë Müller", email="zoe@example.org", twitter="zoe", bio="Rings, rows.")
        blog.save_author("Arthur Dent", email="arthur@example.org")
        blog.post("Hello, ring", "Three nodes, and no master.\nMore to come.", "Zoë Müller",
                  ["cassandra", "rings"])
        blog.post("Tea is a data model", "First the cup, then the columns.", "Arthur Dent",
                  ["tea", "cassandra"])
        blog.post("Ein Eintrag ohne Schlagwort", "Auch das gibt es: größer als nichts.",
                  "Zoë Müller", slug="ohne-schlagwort")
        draft = blog.post("A draft", "Not for long.", "Arthur Dent", ["tea"])
        blog.comment("hello-ring", "Ford", "ford@example.org", "First!")
        spam = blog.comment("hello-ring", "Spam", "spam@example.org", "Buy this.")
        blog.comment("hello-ring", "Trillian", "tricia@example.org", "How many replicas?\nTwo?")
        blog.delete_comment("hello-ring", spam)
        blog.delete_entry(draft)
        blog.edit("tea-is-a-data-model", title="Tea is a good data model")
    pages = [
        text.front_page(blog.page()),
        text.tag_page("cassandra", blog.page("cassandra")),
        _entry(blog, "hello-ring"),
    ]
    return "\n\n\n".join(pages)


def _place(options):
    start, until = getattr(options, "from"), options.until
    if start and until:
        raise BlogError("a page has --from or --until, not both")
    return {"start": start, "until": until}


def _tags(words):
    return [tag.strip() for tag in words.split(",") if tag.strip()]


def _body(options):
    if options.text is not None:
        return options.text
    sys.stdin.reconfigure(encoding="utf-8")
    try:
        return sys.stdin.read().strip()
    except UnicodeDecodeError:
        raise BlogError("the text of standard input is not UTF-8") from None


if __name__ == "__main__":
    main()
