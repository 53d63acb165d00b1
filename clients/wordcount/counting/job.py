"""The count: splits dealt out to processes, whose tallies are added up.

A tally is handed in when its split is complete, and then only once. So a worker may die at any
time: what it had not handed in is read again by another one.
"""

from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field

from .ring import ScanError
from .scan import Scanner
from .servers import Servers

# Workers that may die one after the other without a split coming to its end.
DEATHS = 3


@dataclass
class Tally:
    """What was found: in one split, or in all that are done."""

    rows: int = 0
    # Rows without the column: deleted ones, above all.
    empty: int = 0
    # The words are bytes, since each is decoded once, when it is printed.
    words: Counter = field(default_factory=Counter)
    calls: int = 0
    received: int = 0
    changes: int = 0

    def add(self, other):
        """Takes in another one."""
        self.rows += other.rows
        self.empty += other.empty
        self.words.update(other.words)
        self.calls += other.calls
        self.received += other.received
        self.changes += other.changes


def count(address, question, splits, workers, on_split=lambda split, tally: None):
    """The tally of all splits, counted by so many processes.

    Calls `on_split` for each that is complete. Raises ScanError where one cannot be read.
    """
    total, waiting, deaths = Tally(), {split.number: split for split in splits}, 0
    while waiting:
        # Splits from all over the ring are under way at a time, and so are all nodes.
        order = sorted(waiting.values(), key=lambda split: split.number % workers)
        with ProcessPoolExecutor(workers, initializer=_begin, initargs=(address, question)) as pool:
            tallies = {pool.submit(_count_split, split): split for split in order}
            try:
                for done in as_completed(tallies):
                    split, tally = tallies[done], done.result()
                    del waiting[split.number]
                    total.add(tally)
                    deaths = 0
                    on_split(split, tally)
            except BrokenProcessPool:
                deaths += 1
                if deaths == DEATHS:
                    raise ScanError("workers die before they have counted anything") from None
            except ScanError:
                pool.shutdown(cancel_futures=True)
                raise
    return total


def tally(scanner, split):
    """Counts one split here."""
    found = Tally()
    for page in scanner.pages(split):
        texts = [row.columns[0].column.value for row in page if row.columns]
        found.rows += len(texts)
        found.empty += len(page) - len(texts)
        # One step for a whole page costs a fraction of one for each row.
        found.words.update(b" ".join(texts).split())
    return found


# Of a worker process: its connections stay open from split to split.
_scanner = _servers = None


def _begin(address, question):
    global _scanner, _servers
    _servers = Servers(address)
    _scanner = Scanner(_servers, question)


def _count_split(split):
    calls, received = _servers.traffic()
    changes = _scanner.changes
    found = tally(_scanner, split)
    now = _servers.traffic()
    found.calls, found.received = now[0] - calls, now[1] - received
    found.changes = _scanner.changes - changes
    return found
