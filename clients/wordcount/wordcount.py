#!/usr/bin/python3
"""Counts the words of a whole column family in parallel. See `wordcount.py --help`."""

import os
import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

try:
    from alexandra import program
    from alexandra.bindings import ttypes
    from counting import job, ring, texts
    from counting.scan import PAGE_SIZE, Question, Scanner
    from counting.servers import Address, Servers
except ImportError as missing:
    sys.exit(f"wordcount.py: {missing}")

LEVELS = {name: ttypes.ConsistencyLevel._NAMES_TO_VALUES[name] for name in ("ONE", "QUORUM", "ALL")}


def main():
    """Runs one command; the exit code is 1 when it could not be done."""
    options = _parser().parse_args()
    options.address = Address(options.host, options.port, options.framed)
    options.level = LEVELS[options.consistency]
    program.run(options, "wordcount.py", lambda: options.run(options), [ring.ScanError])


def _parser():
    parser = program.parser("wordcount.py", "Counts the words of a whole column family.")
    parser.add_argument("--keyspace", default="WordCount")
    parser.add_argument("--column-family", default="Texts")
    parser.add_argument("--consistency", choices=list(LEVELS), default="ONE")
    command = program.commands(parser)

    seed = command("seed", _seed, "write texts that are made from a seed")
    splits = command("splits", _splits, "show how the ring is cut")
    count = command("count", _count, "count the words")
    model = command("model", _model, "what count prints after seed, without a server")
    for sub in (seed, count):
        sub.add_argument("--workers", type=program.number(1, program.MOST_PROCESSES), default=2,
                         help="processes")
    for sub in (seed, model):
        sub.add_argument("--rows", type=program.number(0), required=True)
        sub.add_argument("--seed", type=program.number(0), default=1)
    for sub in (splits, count):
        sub.add_argument("--column", default="text")
        sub.add_argument("--keys-per-split", type=program.number(1), default=16_384)
        sub.add_argument("--page", type=program.number(1), default=PAGE_SIZE,
                         help="rows of a call")
    for sub in (count, model):
        sub.add_argument("--top", type=program.number(0), default=20,
                         help="so many of the most frequent words")
    splits.add_argument("--rows", action="store_true", help="read them all, and tell their rows")
    count.add_argument("--server-pid", type=program.number(1), action="append", default=[],
                       help="tell the CPU time of this process as well; may be repeated")
    return parser


def _seed(options):
    started = time.monotonic()
    texts.write_all(options.address, options.keyspace, options.column_family, options.seed,
                    options.rows, options.level, options.workers)
    print(f"{options.rows} rows in {time.monotonic() - started:.1f} s")


def _splits(options):
    with Servers(options.address) as servers:
        found = ring.splits(servers, options.keyspace, options.keys_per_split)
        scanner, sizes = Scanner(servers, _question(options)), []
        for split in found:
            line = f"{split.number:4}  ({split.start}, {split.end}]  {' '.join(split.hosts)}"
            if options.rows:
                sizes.append(sum(len(page) for page in scanner.pages(split)))
                line += f"  {sizes[-1]} rows"
            print(line)
    if sizes:
        middle = sorted(sizes)[len(sizes) // 2]
        print(f"{sum(sizes)} rows in {len(sizes)} splits: {min(sizes)} to {max(sizes)},"
              f" half of them up to {middle}")


def _count(options):
    started, server_before = time.monotonic(), _server_cpu(options.server_pid)
    with Servers(options.address) as servers:
        splits = ring.splits(servers, options.keyspace, options.keys_per_split)
    total = job.count(options.address, _question(options), splits, options.workers)
    seconds = time.monotonic() - started
    _print_words(total.words, options.top)
    print(f"{total.rows} rows and {total.empty} empty ones in {len(splits)} splits by"
          f" {options.workers} workers: {seconds:.2f} s, {total.rows / seconds:.0f} rows/s,"
          f" {total.calls} calls, {total.received / 1e6:.1f} MB", file=sys.stderr)
    if total.changes:
        print(f"{total.changes} times another replica was asked", file=sys.stderr)
    cpu = f"CPU time: {_own_cpu():.2f} s here"
    if options.server_pid:
        server = _server_cpu(options.server_pid)
        # A server that has ended tells nothing any more.
        cpu += f", {sum(server[pid] - server_before[pid] for pid in server):.2f} s in the servers"
    print(cpu, file=sys.stderr)


def _model(options):
    _print_words(texts.model(options.seed, options.rows), options.top)


def _question(options):
    column = options.column.encode()
    return Question(options.keyspace, options.column_family, column, options.page, options.level)


def _print_words(words, top):
    print(f"{sum(words.values())} words, {len(words)} different ones")
    # Those that are as frequent in the order of the alphabet, so that two counts can be compared.
    order = sorted(words.items(), key=lambda each: (-each[1], each[0]))
    for word, count in order[:top]:
        print(f"{count:8} {word.decode(errors='replace')}")


def _own_cpu():
    """Seconds of this process and the workers that have ended."""
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in uses)


def _server_cpu(pids):
    """Seconds of each of these processes that runs, as Linux tells them: utime and stime."""
    seconds = {}
    for pid in pids:
        try:
            # The name of the program, in brackets, may contain anything.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        seconds[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds


if __name__ == "__main__":
    main()
