"""Texts to count, made from a seed, and what must come of counting them."""

import itertools
import random
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from alexandra.keyspace import Keyspace, put

from .servers import Servers, insist

# Rows that are made, and written, together.
BATCH = 100

_SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
# Some words are frequent and most are rare, as in a language.
_WORDS = ["".join(both) for both in itertools.product(_SYLLABLES, repeat=2)]
_FREQUENCIES = list(itertools.accumulate(1 / rank for rank in range(1, len(_WORDS) + 1)))


def key(number):
    """The row key of a text: eight hexadecimal digits, spread evenly, and no two the same."""
    return f"{number * 2654435761 % 2**32:08x}"


def texts(seed, batch, rows):
    """The texts of one batch: from row `batch * BATCH` on, `rows` of them."""
    chance = random.Random(f"{seed}/{batch}")
    made = []
    for _ in range(BATCH):
        count = chance.randint(6, 14)
        made.append(" ".join(chance.choices(_WORDS, cum_weights=_FREQUENCIES, k=count)))
    return made[:rows]


def batches(rows):
    """The batches of so many rows: (number, rows in it) each."""
    return [(first // BATCH, min(BATCH, rows - first)) for first in range(0, rows, BATCH)]


def model(seed, rows):
    """How often each word is in the texts, as bytes like those of a tally."""
    words = Counter()
    for batch, size in batches(rows):
        words.update(" ".join(texts(seed, batch, size)).encode().split())
    return words


def write(client, keyspace, family, seed, batch, rows, consistency):
    """Writes one batch: a text, and beside it its length, which the count leaves alone."""
    target = Keyspace(client, keyspace, consistency)
    stamp = target.timestamp()
    changes = {}
    for place, text in enumerate(texts(seed, batch, rows)):
        columns = [put(b"text", text.encode(), stamp), put(b"size", b"%d" % len(text), stamp)]
        changes[key(batch * BATCH + place)] = {family: columns}
    insist(lambda: target.mutate(changes))


def write_all(address, keyspace, family, seed, rows, consistency, workers):
    """Writes so many texts by several processes."""
    shares = [batches(rows)[worker::workers] for worker in range(workers)]
    with ProcessPoolExecutor(workers) as pool:
        tasks = [
            pool.submit(_write_share, address, keyspace, family, seed, share, consistency)
            for share in shares
        ]
        for task in tasks:
            task.result()


def _write_share(address, keyspace, family, seed, share, consistency):
    with Servers(address) as servers:
        for batch, size in share:
            write(servers.first(), keyspace, family, seed, batch, size, consistency)
