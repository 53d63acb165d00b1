"""What each query costs in each design: calls, bytes either way, and time."""

import random
import time
from functools import partial

from alexandra.figures import Cost, mean, table

# After each round an empty call as often: what the machine gives at that moment.
YARDSTICK = "an empty call"
# So many queries of one design follow one another: a long one makes the next wait for its turn on
# a busy machine, and that should not always be the same design.
BLOCK = 20
_HEADING = ["query", "design", "queries", "answers", "calls", "sent B", "received B",
            "p50 ms", "p95 ms", "p99 ms"]


class Measure:
    """Asks every design the same, in turns, so that a busy moment of the machine meets all."""

    def __init__(self, connection, designs, memory, queries, seconds):
        self._traffic, self._client = connection.traffic, connection.client
        self._designs = designs
        self._memory = memory
        self._queries = queries
        self._seconds = seconds
        self._chance = random.Random(2)
        self._yardstick = Cost()
        self._rows = []

    def lines(self):
        """Runs everything and returns the lines of the table."""
        users, items = list(self._memory.users), list(self._memory.items)
        self._ask("user by id", users, lambda it, user: it.user(user))
        self._ask("item by id", items, lambda it, item: it.item(item))
        self._ask("all items of a user", users, lambda it, user: it.liked_by(user))
        self._ask("newest 10 of a user", users, lambda it, user: it.liked_by(user, 10))
        self._ask("all users of an item", items, lambda it, item: it.likers_of(item))
        self._ask("newest 10 of an item", items, lambda it, item: it.likers_of(item, 10))
        most = max(self._memory.by_item, key=lambda item: len(self._memory.by_item[item]))
        self._ask("newest 10 of the most liked", [most], lambda it, item: it.likers_of(item, 10))
        self._change(users, items)
        self._ask("rename an item", items, lambda it, item: it.rename_item(item, "another title"))
        self._row(YARDSTICK, "", self._yardstick, "")
        return table(_HEADING, self._rows)

    def _ask(self, what, of, query):
        self._measure(what, lambda: (self._chance.choice(of),), query)

    def _change(self, users, items):
        """New likes, and then unlikes of just these, so that the data are as before."""
        pairs = self._not_liked(users, items)
        chosen = iter(pairs)
        now = time.time_ns() // 1000
        self._measure("like", lambda: next(chosen, None),
                      lambda it, user, item: it.like(user, item, now))
        remaining = iter(pairs)
        self._measure("unlike", lambda: next(remaining, None),
                      lambda it, user, item: it.unlike(user, item))

    def _not_liked(self, users, items):
        """Pairs that the seed did not make, at most as many as there are queries."""
        pairs = set()
        # Bounded: in a tiny seed everybody may like everything.
        for _ in range(10 * self._queries):
            user, item = self._chance.choice(users), self._chance.choice(items)
            if len(pairs) < self._queries and item not in self._memory.by_user.get(user, {}):
                pairs.add((user, item))
        return sorted(pairs)

    def _measure(self, what, arguments, query):
        """Asks in turns until each design has been asked often enough, or long enough."""
        costs = [Cost() for _ in self._designs]
        answers = [[] for _ in self._designs]
        remaining = self._queries
        while remaining > 0:
            block = [arguments() for _ in range(min(BLOCK, remaining))]
            block = [chosen for chosen in block if chosen is not None]
            for design, cost, sizes in zip(self._designs, costs, answers):
                self._block(block, partial(query, design), cost, sizes)
            for _ in block:
                self._yardstick.measure(self._traffic, self._client.describe_version)
            remaining -= BLOCK
        for design, cost, sizes in zip(self._designs, costs, answers):
            self._row(what, design.name, cost, f"{mean(sizes):.1f}")

    def _block(self, block, query, cost, sizes):
        for chosen in block:
            if sum(cost.seconds) < self._seconds:
                answer = cost.measure(self._traffic, partial(query, *chosen))
                sizes.append(len(answer) if isinstance(answer, list) else 1)

    def _row(self, what, design, cost, size):
        numbers = [mean(cost.calls), mean(cost.sent), mean(cost.received)]
        figures = [f"{numbers[0]:.1f}", f"{numbers[1]:,.0f}", f"{numbers[2]:,.0f}"]
        latencies = [f"{each:.2f}" for each in cost.percentiles_ms()]
        self._rows.append([what, design, len(cost.seconds), size, *figures, *latencies])
