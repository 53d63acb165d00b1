"""What calls cost: how many, how many bytes, how long."""

import time


class Cost:
    """What was measured of one kind of query, by `measure` or by hand."""

    def __init__(self):
        self.calls = []
        self.sent = []
        self.received = []
        self.seconds = []

    def measure(self, traffic, query):
        """Does one query on the connection of this traffic, and returns its answer."""
        before = (traffic.calls, traffic.sent, traffic.received)
        started = time.perf_counter()
        answer = query()
        self.seconds.append(time.perf_counter() - started)
        self.calls.append(traffic.calls - before[0])
        self.sent.append(traffic.sent - before[1])
        self.received.append(traffic.received - before[2])
        return answer

    def percentiles_ms(self):
        """The latencies that 50, 95 and 99 of 100 queries do not exceed, in milliseconds."""
        return [percentile(self.seconds, part) * 1000 for part in (50, 95, 99)]


def percentile(values, part):
    """The least of the values that `part` of 100 do not exceed; 0 of nothing."""
    ascending = sorted(values)
    return ascending[max(0, -(-len(ascending) * part // 100) - 1)] if ascending else 0


def mean(values):
    """The arithmetic mean; 0 of nothing."""
    return sum(values) / len(values) if values else 0


def table(heading, rows):
    """Lines of a table in Markdown, each column as wide as its widest text."""
    lines = [[str(cell) for cell in line] for line in [heading, *rows]]
    widths = [max(len(cell) for cell in column) for column in zip(*lines)]
    rendered = [_line(cell.ljust(width) for cell, width in zip(line, widths)) for line in lines]
    rendered.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return rendered


def _line(cells):
    return "| " + " | ".join(cells) + " |"
