#!/usr/bin/env python3
"""Authors and comments of the blog, stored and read over Thrift by an application of today.

thriftpy2 reads `cassandra.thrift` when the program starts: no compiler is needed. Names and values
are bytes, keys and names of keyspaces and column families are text.
"""

import argparse
import time
import uuid
from pathlib import Path

import thriftpy2
from thriftpy2.protocol import TBinaryProtocolFactory
from thriftpy2.rpc import make_client
from thriftpy2.transport import TBufferedTransportFactory, TFramedTransportFactory

IDL = Path(__file__).resolve().parents[2] / "cassandra.thrift"
api = thriftpy2.load(str(IDL), module_name="cassandra_thrift")

KEYSPACE = "BloggyAppy"
QUORUM = api.ConsistencyLevel.QUORUM
TIMEOUT_MS = 10_000
EMAIL = api.ColumnPath(column_family="Authors", column=b"email")


def connect(host, port, framed=True):
    """Opens a connection, for one thread at a time: `close()` ends it."""
    return make_client(
        api.Cassandra,
        host,
        port,
        proto_factory=TBinaryProtocolFactory(),
        trans_factory=TFramedTransportFactory() if framed else TBufferedTransportFactory(),
        timeout=TIMEOUT_MS,
    )


def save_author(client, name, email):
    """Writes one column."""
    client.insert(KEYSPACE, name, EMAIL, email.encode(), timestamp(), QUORUM)


def email_of(client, name):
    """Returns the address of an author; `None` if there is none."""
    try:
        found = client.get(KEYSPACE, name, EMAIL, QUORUM)
    except api.NotFoundException:
        return None
    return found.column.value.decode()


def add_comment(client, slug, commenter, comment):
    """Writes a super column, named by the time, and returns its name."""
    name, written_at = uuid.uuid1(), timestamp()
    texts = {b"commenter": commenter, b"comment": comment}
    columns = [api.Column(key, text.encode(), written_at) for key, text in texts.items()]
    written = api.ColumnOrSuperColumn(super_column=api.SuperColumn(name.bytes, columns))
    mutation = api.Mutation(column_or_supercolumn=written)
    client.batch_mutate(KEYSPACE, {slug: {"Comments": [mutation]}}, QUORUM)
    return name


def newest_comments(client, slug, count=10):
    """Reads the newest comments of an entry: `(name, {column: text})`, newest first."""
    newest = api.SlicePredicate(
        slice_range=api.SliceRange(start=b"", finish=b"", reversed=True, count=count)
    )
    parent = api.ColumnParent(column_family="Comments")
    found = client.get_slice(KEYSPACE, slug, parent, newest, QUORUM)
    return [
        (uuid.UUID(bytes=it.name), {each.name.decode(): each.value.decode() for each in it.columns})
        for it in (each.super_column for each in found)
    ]


def timestamp():
    """Microseconds since 1970: of two writes to a column the one with the later time stays."""
    return time.time_ns() // 1000


def main():
    """Stores an author and a comment, and prints what the server has then."""
    arguments = argparse.ArgumentParser(description=main.__doc__)
    arguments.add_argument("--host", default="127.0.0.1")
    arguments.add_argument("--port", type=int, default=9160)
    options = arguments.parse_args()
    client = connect(options.host, options.port)
    save_author(client, "Ada Example", "ada@example.com")
    add_comment(client, "i-got-a-new-guitar", "Bob", "Nice!")
    print("Ada Example:", email_of(client, "Ada Example"))
    for name, columns in newest_comments(client, "i-got-a-new-guitar"):
        print(f"{columns['commenter']}: {columns['comment']} [{name}]")
    client.close()


if __name__ == "__main__":
    main()
