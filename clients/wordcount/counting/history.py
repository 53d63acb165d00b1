"""Rows that change while they are counted, and which of their states a count may have seen.

The text of a row tells the row and its state, so that a count shows how often it has seen which.
"""

import itertools
import multiprocessing
import random
import time
from collections import Counter
from dataclasses import dataclass

from alexandra.checking import Difference
from alexandra.keyspace import Keyspace, delete, put

from .servers import Servers, insist

# The state of a row that is not there.
ABSENT = None


@dataclass(frozen=True)
class Change:
    """One write to a row, and within which time it was made."""

    key: str
    state: object
    begun: float
    done: float


def text(key, state):
    """The text of a row in a state, of two words."""
    return f"{key} {key}@{state}".encode()


def write(keyspace, family, states):
    """Brings rows into states, all in one call."""
    stamp = keyspace.timestamp()
    changes = {}
    for key, state in states.items():
        # A deletion takes the whole row, as an application would.
        change = delete(stamp) if state is ABSENT else put(b"text", text(key, state), stamp)
        changes[key] = {family: [change]}
    begun = time.monotonic()
    insist(lambda: keyspace.mutate(changes))
    done = time.monotonic()
    return [Change(key, state, begun, done) for key, state in states.items()]


class Writer:
    """A process that changes rows until it is told to stop: overwrites, deletions, new rows."""

    def __init__(self, address, keyspace, family, consistency, keys, seed):
        self._mine, other = multiprocessing.Pipe()
        arguments = (other, address, (keyspace, family, consistency), keys, seed)
        self._process = multiprocessing.Process(target=_change, args=arguments, daemon=True)
        self._process.start()
        # Now that end is held by the process alone, whose end is that of the pipe.
        other.close()
        self._keys = f"{keys[0]} to {keys[-1]}"
        # A count begins when changes are under way.
        self._receive()

    def stop(self):
        """Ends it, and returns all changes, in their order."""
        try:
            self._mine.send("stop")
        except BrokenPipeError:
            self._died()
        changes = self._receive()
        self._process.join()
        return changes

    def _receive(self):
        try:
            return self._mine.recv()
        except (EOFError, ConnectionResetError):
            self._died()

    def _died(self):
        self._process.join(10)
        code = self._process.exitcode
        raise Difference(f"the writer of rows {self._keys} has ended with {code}") from None


def _change(pipe, address, where, keys, seed):
    chance, changes = random.Random(seed), []
    with Servers(address) as servers:
        keyspace_name, family, consistency = where
        keyspace = Keyspace(servers.first(), keyspace_name, consistency)
        # No two writers of a row, one after the other, make the same state.
        first = seed * 1_000_000
        for state in itertools.count(first):
            some = chance.sample(keys, 5)
            states = {key: chance.choice([ABSENT, state, state]) for key in some}
            changes += write(keyspace, family, states)
            if state == first:
                pipe.send("begun")
            if pipe.poll():
                break
    pipe.send(changes)


def seen(words):
    """The states that were counted: (key, state) with how often each."""
    found = Counter()
    for word, count in words.items():
        key, separator, state = word.decode().partition("@")
        if separator:
            found[key, int(state)] += count
    return found


def possible(changes, started, ended):
    """For each row the states that a count between two moments may have seen it in."""
    rows = {}
    for change in changes:
        rows.setdefault(change.key, []).append(change)
    return {
        key: {
            change.state
            for change, following in zip(history, [*history[1:], None])
            # Begun before the end, and not replaced for certain before the start.
            if change.begun <= ended and (following is None or following.done >= started)
        }
        for key, history in rows.items()
    }
