"""What the programs here have in common: options that find the server, and ends with a reason."""

import argparse
import os
import sys
import time

from thrift.Thrift import TApplicationException
from thrift.transport.TTransport import TTransportException

from .bindings import ttypes


# Numbers of the interface have 32 bits and a sign.
MOST = 2**31 - 1
# Processes that one program starts; more of them only wait for one another.
MOST_PROCESSES = 256


def number(least, most=MOST, kind=int):
    """A type of arguments: a number from `least` to `most`; a whole one if not told otherwise."""
    what = "a whole number" if kind is int else "a number"

    def parse(text):
        try:
            found = kind(text)
        except ValueError:
            found = None
        # Of what is not a number, which a float can be, no comparison holds.
        if found is None or not least <= found <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not {what} from {least} to {most}")
        return found

    return parse


port = number(1, 65535)


def parser(name, description):
    """A parser with the options that every program has."""
    made = server_parser(name, description, 9160)
    made.add_argument("--framed", action="store_true", help="framed instead of buffered")
    return made


def server_parser(name, description, default_port):
    """A parser with the options that find a server, whatever is spoken to it."""
    made = _Parser(prog=name, description=description)
    made.add_argument("--host", type=_host, default="127.0.0.1")
    made.add_argument("--port", type=port, default=default_port)
    return made


def commands(made):
    """Gives a parser commands, of which one is required. Returns a function that adds one.

    That takes its name, the function that runs it, a description, and the names of arguments, and
    returns the parser of the command.
    """
    added = made.add_subparsers(metavar="COMMAND", required=True)

    def command(name, run, about, *arguments):
        sub = added.add_parser(name, help=about, description=about)
        sub.set_defaults(run=run)
        for argument in arguments:
            sub.add_argument(argument)
        return sub

    return command


class _Parser(argparse.ArgumentParser):
    """Refuses arguments that are not UTF-8: Python hands them on as text that nobody can send."""

    def parse_args(self, args=None, namespace=None):
        for argument in sys.argv[1:] if args is None else args:
            try:
                argument.encode()
            except UnicodeEncodeError:
                self.error(f"an argument is not UTF-8: {argument!r}")
        return super().parse_args(args, namespace)


def _host(text):
    try:
        # As it is done on the way to the name service.
        text.encode("idna")
    except UnicodeError:
        raise argparse.ArgumentTypeError(f"{text!r} cannot be the name of a host") from None
    return text


def run(options, name, work, failures=()):
    """Does the work; ends the program with exit code 1 and the reason when it cannot be done.

    `failures` are the exceptions of the application, whose text is the reason.
    """
    where = f"{options.host}:{options.port}"
    # Names and texts may be in any script, whatever the locale says.
    sys.stdout.reconfigure(encoding="utf-8")
    sys.stderr.reconfigure(encoding="utf-8")
    try:
        work()
    except TTransportException as error:
        if error.type == TTransportException.NOT_OPEN:
            sys.exit(f"{name}: no server at {where}: {error.message}")
        sys.exit(f"{name}: lost the connection to {where}: {error.message}")
    except ConnectionError as error:
        # The library passes on what the system says to who writes.
        sys.exit(f"{name}: lost the connection to {where}: {error.strerror}")
    except tuple(failures) as error:
        sys.exit(f"{name}: {error}")
    except ttypes.InvalidRequestException as error:
        sys.exit(f"{name}: the server refuses: {error.why}")
    except ttypes.UnavailableException:
        sys.exit(f"{name}: too few servers of the ring are up")
    except ttypes.TimedOutException:
        sys.exit(f"{name}: the ring did not answer in time")
    except TApplicationException as error:
        sys.exit(f"{name}: the server failed: {error.message}")


def progress(text):
    """Writes over the line before on a terminal; elsewhere that would be one endless line."""
    if sys.stdout.isatty():
        print(f"\r{text}", end="", flush=True)


def show(lines):
    """Prints lines, and stops without a complaint when nobody reads on, as with `| head`."""
    for line in lines:
        try:
            print(line, flush=True)
        except BrokenPipeError:
            # At its end Python would try to write the rest.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return


def moment(microseconds):
    """A moment of Unix time as text, in UTC."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(microseconds // 1_000_000))
