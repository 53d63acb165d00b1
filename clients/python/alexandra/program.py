"""What the programs here have in common: options that find the server, and ends with a reason."""

import argparse
import os
import sys

from thrift.Thrift import TApplicationException
from thrift.transport.TTransport import TTransportException

from .bindings import ttypes


def parser(name, description):
    """A parser with the options that every program has."""
    made = argparse.ArgumentParser(prog=name, description=description)
    made.add_argument("--host", default="127.0.0.1")
    made.add_argument("--port", type=int, default=9160)
    made.add_argument("--framed", action="store_true", help="framed instead of buffered")
    return made


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


def show(lines):
    """Prints lines, and stops without a complaint when nobody reads on, as with `| head`."""
    for line in lines:
        try:
            print(line, flush=True)
        except BrokenPipeError:
            # At its end Python would try to write the rest.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return
