"""The Thrift bindings, generated from `cassandra.thrift` where they are missing or out of date.

Importing this module needs two things of the machine: the Thrift library for Python and, for the
first run only, the Thrift compiler. Where one is missing the import fails with an ImportError
that says what to install.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_HERE = Path(__file__).resolve().parent.parent
_ROOT = _HERE.parent.parent

# Another IDL, say that of an older server, can be named by the environment.
IDL = Path(os.environ.get("CASSANDRA_IDL", _ROOT / "cassandra.thrift"))
GENERATED = _HERE / "gen-py"


def _generate():
    """Runs the compiler, unless the bindings at hand were made from this very IDL.

    The work is done aside and moved into place, so that two runs at a time do not meet.
    """
    try:
        idl = IDL.read_bytes()
    except OSError as error:
        raise ImportError(f"cannot read the interface definition: {error}") from None
    made_from = GENERATED / IDL.name
    if made_from.is_file() and made_from.read_bytes() == idl:
        return
    if shutil.which("thrift") is None:
        raise ImportError(
            f"no Thrift compiler here to make the bindings; run {_ROOT}/tests/setup.sh"
            " (on Debian: apt-get install thrift-compiler)"
        )
    with tempfile.TemporaryDirectory(prefix="gen-py-", dir=_HERE) as aside:
        made = subprocess.run(
            ["thrift", "--gen", "py", "-o", aside, str(IDL)], capture_output=True, text=True
        )
        if made.returncode != 0:
            raise ImportError(f"the Thrift compiler refuses {IDL}:\n{made.stdout}{made.stderr}")
        fresh = Path(aside, "gen-py")
        (fresh / IDL.name).write_bytes(idl)
        if GENERATED.exists():
            GENERATED.rename(Path(aside, "old"))
        try:
            fresh.rename(GENERATED)
        except OSError:
            # Another process was faster. What it made will do if it is complete.
            if not made_from.is_file():
                raise


try:
    import thrift  # noqa: F401
except ImportError:
    raise ImportError(
        f"{sys.executable} has no Thrift library; run {_ROOT}/tests/setup.sh"
        " (on Debian: apt-get install python3-thrift, and use /usr/bin/python3)"
    ) from None

_generate()
sys.path.insert(0, str(GENERATED))

from cassandra import Cassandra  # noqa: E402
from cassandra import ttypes  # noqa: E402

__all__ = ["Cassandra", "ttypes"]
