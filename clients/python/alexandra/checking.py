"""What the checks of applications have in common: every answer is compared with what is due."""

import sys
from functools import partial
from pathlib import Path

from . import program
from .connection import Connection

# Which check this is.
NAME = Path(sys.argv[0]).name


class Difference(Exception):
    """An answer was not the one that is due."""


class Answers:
    """Compares answers, and counts them."""

    def __init__(self):
        self.count = 0

    def same(self, what, got, want):
        """The answer is exactly the one that is due."""
        self.count += 1
        if got != want:
            raise Difference(f"{what}:\n  due: {want!r}\n  got: {got!r}")

    def refused(self, what, kind, call):
        """The call raises this exception."""
        self.count += 1
        try:
            got = call()
        except kind:
            return
        raise Difference(f"{what}: {kind.__name__} is due, got: {got!r}")


def main(description, scenario):
    """The main program of a check: runs the scenario once over each transport.

    `scenario(open_connection, answers)` opens as many connections as it needs. The program exits
    with 1 at the first difference, and says which.
    """
    run(parser(description).parse_args(), scenario)


def parser(description):
    """A parser with the options that every check has."""
    arguments = program.parser(NAME, description)
    arguments.add_argument("--transport", choices=["buffered", "framed", "both"], default="both")
    return arguments


def run(options, scenario, failures=()):
    """Runs the scenario of `main` as the options say."""
    chosen = ["framed"] if options.framed else [options.transport]
    transports = ["buffered", "framed"] if chosen == ["both"] else chosen

    def work():
        for transport in transports:
            answers = Answers()
            open_connection = partial(
                Connection, options.host, options.port, framed=transport == "framed"
            )
            scenario(open_connection, answers)
            print(f"{transport}: {answers.count} answers as they are due")
            # A check that compares nothing has not passed.
            if not answers.count:
                sys.exit(f"{NAME}: nothing was compared")

    program.run(options, NAME, work, [Difference, *failures])
