#!/usr/bin/env python3
"""Compares the answers of a server to `blog.py` with what is due.

Exits with 1 at the first difference and says which. Each run has keys of its own, so it can be
repeated on a server that already holds data.
"""

import argparse
import sys
import uuid

import blog
from blog import api


class Answers:
    """Compares answers, and counts them."""

    def __init__(self):
        self.count = 0

    def same(self, what, got, want):
        """The answer is exactly the one that is due."""
        self.count += 1
        if got != want:
            sys.exit(f"check.py: {what}:\n  due: {want!r}\n  got: {got!r}")

    def refused(self, what, kind, call):
        """The call raises this exception, which is returned."""
        self.count += 1
        try:
            got = call()
        except kind as refusal:
            return refusal
        sys.exit(f"check.py: {what}: {kind.__name__} is due, got: {got!r}")


def scenario(client, answers):
    """Stores authors and comments, reads them in every way of `blog.py`, and deletes one."""
    run = uuid.uuid4().hex
    author, slug = f"Zoë {run}", f"entry-{run}"
    answers.same("an absent author", blog.email_of(client, author), None)
    for email in ["old@example.com", "zoë@example.com"]:
        blog.save_author(client, author, email)
    answers.same("the later address", blog.email_of(client, author), "zoë@example.com")

    answers.same("no comments", blog.newest_comments(client, slug), [])
    texts = ["First!", "", "Schöne Grüße: 你好 🎸", "x" * 100_000]
    names = [blog.add_comment(client, slug, "Bob", text) for text in texts]
    due = [(n, {"commenter": "Bob", "comment": t}) for n, t in zip(names, texts)][::-1]
    answers.same("all comments", blog.newest_comments(client, slug), due)
    answers.same("the two newest", blog.newest_comments(client, slug, 2), due[:2])

    first = api.ColumnPath(column_family="Comments", super_column=names[0].bytes)
    client.remove(blog.KEYSPACE, slug, first, blog.timestamp(), blog.QUORUM)
    answers.same("one is deleted", blog.newest_comments(client, slug), due[:-1])
    parent = api.ColumnParent(column_family="Comments")
    answers.same("the number", client.get_count(blog.KEYSPACE, slug, parent, blog.QUORUM), 3)

    # Bytes that are no text come back as they are.
    path = api.ColumnPath(column_family="Authors", column=b"\xff\x00name")
    value = bytes(range(256))
    client.insert(blog.KEYSPACE, author, path, value, blog.timestamp(), blog.QUORUM)
    column = client.get(blog.KEYSPACE, author, path, blog.QUORUM).column
    answers.same("any bytes", (column.name, column.value), (path.column, value))

    refusal = answers.refused(
        "another case",
        api.InvalidRequestException,
        lambda: client.get("bloggyappy", author, blog.EMAIL, blog.QUORUM),
    )
    answers.same("its reason", refusal.why, "Keyspace bloggyappy does not exist in this schema.")
    # The connection is as good as before.
    answers.same("the address again", blog.email_of(client, author), "zoë@example.com")


def main():
    """Runs the scenario over one transport, or over both."""
    arguments = argparse.ArgumentParser(description=main.__doc__)
    arguments.add_argument("--host", default="127.0.0.1")
    arguments.add_argument("--port", type=int, default=9160)
    arguments.add_argument("--transport", choices=["buffered", "framed", "both"], default="both")
    options = arguments.parse_args()
    both = ["buffered", "framed"]
    for transport in both if options.transport == "both" else [options.transport]:
        client = blog.connect(options.host, options.port, framed=transport == "framed")
        answers = Answers()
        scenario(client, answers)
        client.close()
        print(f"{transport}: {answers.count} answers as they are due")


if __name__ == "__main__":
    main()
