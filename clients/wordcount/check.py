#!/usr/bin/python3
"""Counts words in many ways and compares each count with a plain one of the same texts.

Exits with 1 at the first difference and says which. It begins with deleting all texts that it
finds, so it can be repeated.
"""

import errno
import multiprocessing
import os
import socket
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

try:
    from alexandra import checking
    from alexandra.bindings import ttypes
    from alexandra.keyspace import Keyspace, delete, put
    from counting import history, job, ring, texts
    from counting.scan import Question, Scanner
    from counting.servers import Address, Servers, insist
    from thrift.Thrift import TApplicationException
except ImportError as missing:
    sys.exit(f"check.py: {missing}")

KEYSPACE, FAMILY = "WordCount", "Texts"
ROWS, SEED = 4000, 7
KEYS_PER_SPLIT = 800
# `IndexInterval` of the server.
SAMPLE = 128
# Of the rows that change while they are counted, and of those that do not.
CHANGING, STILL = 400, 1600
# Writes reach all replicas, so that a count at ONE has to find them.
LEVEL = ttypes.ConsistencyLevel.ALL
# Some of them are in another order than their bytes in UTF-8.
ODD_KEYS = ["größer", "\U0001d11e clef", "\uffee half", " leading", "tab\t", "日本"]


class Run:
    """One pass over one transport."""

    def __init__(self, address, servers, answers):
        self.address = address
        self.servers = servers
        self.answers = answers
        self.keyspace = Keyspace(servers.first(), KEYSPACE, LEVEL)

    def question(self, **others):
        return replace(Question(KEYSPACE, FAMILY, b"text"), **others)

    def splits(self, keys_per_split=KEYS_PER_SPLIT):
        return ring.splits(self.servers, KEYSPACE, keys_per_split)

    def count(self, splits=None, workers=2, on_split=lambda split, tally: None, **others):
        splits = self.splits() if splits is None else splits
        return job.count(self.address, self.question(**others), splits, workers, on_split)

    def write(self, mutation, keys):
        insist(lambda: self.keyspace.mutate({key: {FAMILY: [mutation]} for key in keys}))

    def keys(self, split, **others):
        scanner = Scanner(self.servers, self.question(**others))
        return [row.key for page in scanner.pages(split) for row in page]


def clear(run):
    """Deletes all there is. What is left are rows without columns."""
    for split in run.splits():
        keys = run.keys(split)
        for first in range(0, len(keys), 500):
            run.write(delete(run.keyspace.timestamp()), keys[first:first + 500])
    total = run.count()
    run.answers.same("rows after all were deleted", (total.rows, total.words), (0, Counter()))


def counts(run):
    """Any number of workers, any splits and any pages make the same count."""
    texts.write_all(run.address, KEYSPACE, FAMILY, SEED, ROWS, LEVEL, workers=2)
    due = texts.model(SEED, ROWS)
    for workers, keys_per_split, page_size in [
        (1, 10**9, 1000), (1, 1000, 10**6), (2, 400, 97), (4, 1000, 1000), (3, 2000, 61)
    ]:
        way = f"{workers} workers, {keys_per_split} keys a split, {page_size} rows a page"
        total = run.count(run.splits(keys_per_split), workers, page_size=page_size)
        run.answers.same(f"rows, {way}", total.rows, ROWS)
        run.answers.same(f"words, {way}", total.words, due)


def columns(run):
    """Only the column that is asked for counts."""
    made = [texts.texts(SEED, batch, size) for batch, size in texts.batches(ROWS)]
    due = Counter(b"%d" % len(text) for batch in made for text in batch)
    run.answers.same("words of size", run.count(column=b"size").words, due)
    total = run.count(column=b"nothing")
    run.answers.same("rows with nothing", (total.rows, total.empty >= ROWS), (0, True))


def splits(run):
    """They cover the ring once, in order, and are about as large as they should be."""
    found, ranges = run.splits(), ring.ranges(run.servers.first(), KEYSPACE)
    ends = [end for _, end, _ in ranges]
    run.answers.same("starts of ranges", [start for start, _, _ in ranges], [ends[-1], *ends[:-1]])
    following = [split.start for split in found[1:]] + [found[0].start]
    run.answers.same("ends of splits", [split.end for split in found], following)
    run.answers.same("ends of ranges", set(ends) <= {split.end for split in found}, True)
    if len(found) > 1:
        degenerate = [split for split in found if split.start == split.end]
        run.answers.same("splits that are the whole ring", degenerate, [])
    in_splits = [run.keys(split) for split in found]
    every = Counter(key for keys in in_splits for key in keys)
    run.answers.same("keys that are in two splits", [k for k, n in every.items() if n > 1], [])
    run.answers.same("rows in splits", sum(map(len, in_splits)) >= ROWS, True)
    sizes = [len(keys) for keys in in_splits]
    # A range of nearly twice as many rows is one split. Where its ends lie between the samples of a
    # table, as many rows are not known of.
    run.answers.same(f"sizes: {sizes}", max(sizes) <= 2 * KEYS_PER_SPLIT + SAMPLE, True)
    run.answers.same(f"number: {sizes}", len(found) >= ROWS // (2 * KEYS_PER_SPLIT), True)
    # A page that ends where its split ends is the last one.
    exact = run.count(found, page_size=sizes[0])
    run.answers.same("rows in pages that fit a split", exact.rows, ROWS)
    whole = run.splits(10**9)
    run.answers.same("splits for very many keys", len(whole), len(ranges))
    with Servers(run.address) as servers:
        run.answers.refused("splits of no keys", ring.ScanError,
                            lambda: ring.splits(servers, KEYSPACE, 0))


def order(run):
    """Rows come in the order of their tokens, which the client computes as the server does."""
    run.write(put(b"text", b"odd", run.keyspace.timestamp()), ODD_KEYS)
    token_of = ring.token_function(run.servers.first())
    is_random = token_of("a") != "a"

    def place(token):
        return int(token) if is_random else token.encode("utf-16-be")

    for split in run.splits():
        start, end = place(split.start), place(split.end)
        # Behind the start, over the end of the ring if need be, and up to the end.
        places = [place(token_of(key)) for key in run.keys(split, page_size=50)]
        ordered = sorted(places, key=lambda each: (each <= start, each))
        run.answers.same(f"order in {split}", places, ordered)
        inside = [start < it <= end if start < end else it > start or it <= end for it in places]
        run.answers.same(f"rows outside of {split}", all(inside), True)
    run.answers.same("odd rows", run.count(page_size=7).words[b"odd"], len(ODD_KEYS))
    run.write(delete(run.keyspace.timestamp()), ODD_KEYS)


def broken_replicas(run):
    """A split whose replica dies in the middle goes on at another one, and counts nothing twice."""
    due = texts.model(SEED, ROWS)
    real, port = run.address.host, run.address.port
    nobody = "127.255.255.254"
    absent = [replace(split, hosts=(nobody, real)) for split in run.splits()]
    total = run.count(absent, page_size=100)
    run.answers.same("words where nobody listens", total.words, due)
    run.answers.same("replicas that were left", total.changes, len(absent))
    with Cutter(real, port, cut_after=20_000) as cutter, Servers(run.address) as servers:
        scanner, total = Scanner(servers, run.question(page_size=100)), job.Tally()
        for split in run.splits(2000):
            total.add(job.tally(scanner, replace(split, hosts=(cutter.host, real))))
        run.answers.same("words over connections that break", total.words, due)
        run.answers.same("connections that broke", scanner.changes, cutter.cuts)
        run.answers.same("some broke", cutter.cuts > 1, True)


def dead_workers(run):
    """What a worker had not handed in is counted by another one."""
    killed = []

    def kill_one(*_):
        if not killed:
            killed.append(multiprocessing.active_children()[0])
            killed[0].kill()

    total = run.count(run.splits(400), workers=2, on_split=kill_one, page_size=100)
    run.answers.same("workers that were killed", len(killed), 1)
    run.answers.same("rows despite that", total.rows, ROWS)
    run.answers.same("words despite that", total.words, texts.model(SEED, ROWS))


def writes_go_on(run):
    """Each row is counted at most once, in a state that it had meanwhile."""
    clear(run)
    changing = [texts.key(10**6 + number) for number in range(CHANGING)]
    still = [texts.key(2 * 10**6 + number) for number in range(STILL)]
    # Half of those that change are not there at first.
    states = {key: 0 for key in [*changing[::2], *still]}
    known = [history.Change(key, history.ABSENT, 0, 0) for key in changing[1::2]]
    known += history.write(run.keyspace, FAMILY, states)
    overtaken = 0
    for workers, page_size in [(1, 20), (2, 20), (4, 500)]:
        shares = [changing[:CHANGING // 2], changing[CHANGING // 2:]]
        writers = [
            history.Writer(run.address, KEYSPACE, FAMILY, LEVEL, keys, seed=workers)
            for keys in shares
        ]
        started = time.monotonic()
        total = run.count(run.splits(300), workers, page_size=page_size)
        ended = time.monotonic()
        # Each row has one writer, so its changes are in their order.
        known += [change for writer in writers for change in writer.stop()]
        states = history.possible(known, started, ended)
        way = f"{workers} workers and {page_size} rows a page, while writes go on"
        overtaken += _compare(run, way, total, states)
        stay = [key for key in still if states[key] != {0}]
        run.answers.same(f"rows that were to stay, {way}", stay, [])
    run.answers.same("rows that changed while they were counted", overtaken > 0, True)


def _compare(run, way, total, states):
    """Returns how many rows may have been counted in one state or in another."""
    found = history.seen(total.words)
    by_row = Counter()
    for (key, state), count in found.items():
        run.answers.same(f"{key} in state {state}, {way}", state in states[key], True)
        by_row[key] += count
    twice = [key for key, count in by_row.items() if count > 1]
    run.answers.same(f"rows that were counted twice, {way}", twice, [])
    lacking = [key for key in states if history.ABSENT not in states[key] and not by_row[key]]
    run.answers.same(f"rows that were left out, {way}", lacking, [])
    words = Counter()
    for key, state in found:
        words.update(history.text(key, state).split())
    run.answers.same(f"all words, {way}", total.words, words)
    return sum(len(possible) > 1 for possible in states.values())


def refusals(run):
    """A count that cannot be made ends with the reason."""
    run.answers.refused("an unknown column family", ring.ScanError,
                        lambda: run.count(family="Nothing"))
    run.answers.refused("splits of no keys", TApplicationException,
                        lambda: run.servers.first().describe_splits("", "", 0))


class Cutter:
    """A server that passes on what another one says, and hangs up in the middle of it."""

    def __init__(self, host, port, cut_after):
        self.cuts = 0
        self._target, self._cut_after = (host, port), cut_after
        self.host, self._listener = _listen(port)
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # The thread that waits for the next connection keeps the port until it is woken.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            threading.Thread(target=_pass_on, args=(client, server), daemon=True).start()
            threading.Thread(target=self._answer, args=(server, client), daemon=True).start()

    def _answer(self, server, client):
        if _pass_on(server, client, self._cut_after):
            self.cuts += 1
        for each in (server, client):
            # Also wakes the thread that waits for the other direction.
            each.shutdown(socket.SHUT_RDWR)
            each.close()


def _listen(port):
    """A listener at this port, on an address that no other check on this machine has."""
    for attempt in range(256):
        high, low = divmod((os.getpid() + attempt) % 2**16, 256)
        host = f"127.254.{high}.{low}"
        try:
            return host, socket.create_server((host, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    raise checking.Difference(f"port {port} is taken on all addresses up to {host}")


def _pass_on(source, target, limit=1 << 60):
    """Until the source ends, or so many bytes have passed: whether that was it."""
    try:
        while limit > 0:
            data = source.recv(min(limit, 1 << 16))
            if not data:
                return False
            target.sendall(data)
            limit -= len(data)
    except OSError:
        return False
    return True


SCENARIO = [clear, counts, columns, splits, order, broken_replicas, dead_workers, writes_go_on]


def scenario(open_connection, answers):
    """All of it."""
    host, port = open_connection.args
    address = Address(host, port, open_connection.keywords["framed"])
    with Servers(address) as servers:
        run = Run(address, servers, answers)
        for step in [*SCENARIO, refusals]:
            step(run)


if __name__ == "__main__":
    checking.main(__doc__.split("\n")[0], scenario)
