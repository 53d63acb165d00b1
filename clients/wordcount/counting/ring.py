"""How the ring is cut into splits, as the Hadoop input format of 0.6 did it.

`describe_ring` tells the range of each node and its replicas; `describe_splits`, asked of a replica
of the range, where to cut it so that each part has about so many rows. A range, and a split as
well, begins behind its start and ends with its end; one of them goes over the end of the ring.
"""

import hashlib
import socket
from dataclasses import dataclass

from .servers import FAILURES


class ScanError(Exception):
    """The column family cannot be read; the text says why."""


@dataclass(frozen=True)
class Split:
    """A piece of the ring, and who has its rows, the one to ask first in front."""

    number: int
    start: str
    end: str
    hosts: tuple


def token_function(client):
    """The function from row keys to tokens, for the partitioner of the ring.

    A page of a token range does not tell the token of its last row, from which the next page goes
    on: the client has to know it.
    """
    partitioner = client.describe_partitioner().rpartition(".")[2]
    try:
        return _TOKENS[partitioner]
    except KeyError:
        raise ScanError(f"cannot tell the tokens of {partitioner}") from None


def ranges(client, keyspace):
    """The ranges of the ring in their order: (start, end, hosts) each."""
    found = client.describe_ring(keyspace)
    number = client.describe_partitioner().endswith("RandomPartitioner")
    order = sorted(found, key=lambda each: int(each.end_token) if number else each.end_token)
    return [(each.start_token, each.end_token, tuple(each.endpoints)) for each in order]


def splits(servers, keyspace, keys_per_split):
    """All splits of the ring, in its order."""
    found = []
    local = _addresses_of_this_machine()
    for start, end, hosts in ranges(servers.first(), keyspace):
        tokens = _tokens_between(servers, hosts, start, end, keys_per_split)
        for first, last in zip(tokens, tokens[1:]):
            # Each replica is the first one to ask for its share; one on this machine for all.
            turn = len(found) % len(hosts)
            order = sorted(hosts[turn:] + hosts[:turn], key=lambda host: host not in local)
            found.append(Split(len(found), first, last, tuple(order)))
    return found


def _tokens_between(servers, hosts, start, end, keys_per_split):
    # Who is no replica has nothing to judge by; then it is one split, which can be read as well.
    for host in dict.fromkeys([*hosts, servers.address.host]):
        try:
            return servers.client(host).describe_splits(start, end, keys_per_split)
        except FAILURES:
            servers.drop(host)
    raise ScanError(f"nobody can tell the splits from {start} to {end}")


def _addresses_of_this_machine():
    try:
        return set(socket.gethostbyname_ex(socket.gethostname())[2])
    except OSError:
        return set()


def _random_token(key):
    # The digest as a signed number, without its sign.
    digest = hashlib.md5(key.encode()).digest()
    return str(abs(int.from_bytes(digest, "big", signed=True)))


_TOKENS = {"RandomPartitioner": _random_token, "OrderPreservingPartitioner": lambda key: key}
