"""The Thrift bindings, generated from `cassandra.thrift` where they are missing or out of date.

Importing this module needs two things of the machine: the Thrift library for Python and, for the
first run only, the Thrift compiler. Where one is missing the import fails with an ImportError
that says what to install.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent.parent
_ROOT = _HERE.parent.parent

# Another IDL, say that of an older server, can be named by the environment.
IDL = Path(os.environ.get("CASSANDRA_IDL", _ROOT / "cassandra.thrift"))
GENERATED = _HERE / "gen-py"
# The compiler calls the package `cassandra`, which is the name of the CQL driver's too.
_PACKAGE = GENERATED / "cassandra_thrift"


def _bring_up_to_date():
    """Runs the compiler, unless the bindings at hand were made from this very IDL."""
    try:
        idl = IDL.read_bytes()
    except OSError as error:
        raise ImportError(f"cannot read the interface definition: {error}") from None
    folder = os.open(_HERE, os.O_RDONLY)
    try:
        # Of several first runs at a time one does the work and the others wait for it.
        fcntl.flock(folder, fcntl.LOCK_EX)
        made_from = _PACKAGE / "cassandra.thrift"
        if not made_from.is_file() or made_from.read_bytes() != idl:
            _generate()
            # Written last: its presence says that the rest is complete.
            made_from.write_bytes(idl)
    finally:
        os.close(folder)


def _generate():
    shutil.rmtree(GENERATED, ignore_errors=True)
    try:
        made = subprocess.run(
            ["thrift", "--gen", "py", "-o", str(_HERE), str(IDL)], capture_output=True, text=True
        )
    except FileNotFoundError:
        raise ImportError(
            f"no Thrift compiler here to make the bindings; run {_ROOT}/tests/setup.sh"
            " (on Debian: apt-get install thrift-compiler)"
        ) from None
    if made.returncode != 0:
        raise ImportError(f"the Thrift compiler refuses {IDL}:\n{made.stdout}{made.stderr}")
    (GENERATED / "cassandra").rename(_PACKAGE)


try:
    import thrift.protocol.TProtocol  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"{sys.executable} has no Thrift library ({error}); run {_ROOT}/tests/setup.sh"
        " (on Debian: apt-get install python3-thrift python3-six, and use /usr/bin/python3)"
    ) from None

_bring_up_to_date()
sys.path.insert(0, str(GENERATED))

from cassandra_thrift import Cassandra  # noqa: E402
from cassandra_thrift import ttypes  # noqa: E402

__all__ = ["Cassandra", "ttypes"]
