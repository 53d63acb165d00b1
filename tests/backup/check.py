#!/usr/bin/python3
"""Checks contrib/backup with a real restic: a machine is lost, and restored from the repository.

What is there after a restore is compared with all acknowledged writes, cell by cell. Then backups
that cannot succeed have to say so, and to leave nothing half done. See docs/backup.md.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/monitoring"))

import load  # noqa: E402
from history import History  # noqa: E402
from ring import Failed, Node, Ports, configure, is_root, say, wait_for  # noqa: E402

BACKUP = ROOT / "contrib/backup/backup.sh"


def main():
    """Runs the check; the exit code is 1 if something does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=Path, help="the program `alexandra`")
    parser.add_argument("--keep", action="store_true", help="keep logs and data")
    options = parser.parse_args()
    if not shutil.which("restic"):
        sys.exit("there is no restic here: run tests/setup.sh --all")
    # The node must not outlive the check.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    directory = Path(tempfile.mkdtemp(prefix="alexandra-backup-"))
    machine = Machine(options.program.resolve(), directory)
    try:
        check(machine)
    except Failed as failure:
        say(f"failed: {failure}\nlogs are in {directory}")
        sys.exit(1)
    finally:
        machine.node.end()
    if not options.keep:
        shutil.rmtree(directory)


class Machine:
    """A node with an archive, and a repository beside it."""

    def __init__(self, program, directory):
        self.repository = directory / "repository"
        (directory / "password").write_text("secret\n")
        (directory / "bin").mkdir()
        (directory / "bin/alexandra").symlink_to(program)
        self.node = Node(str(program), directory, Ports(), 1)
        self.archive = self.node.directory / "archive"
        self.environment = os.environ | {
            "PATH": f"{directory / 'bin'}:{os.environ['PATH']}",
            "RESTIC_REPOSITORY": str(self.repository),
            "RESTIC_PASSWORD_FILE": str(directory / "password"),
            "RESTIC_CACHE_DIR": str(directory / "cache"),
            "CONFIG": str(self.node.config),
            "NODETOOL": f"-h {self.node.address} -p {self.node.ports.admin}",
        }
        self.install()
        self.run("restic", "init", "--quiet")

    def install(self):
        """Writes the configuration."""
        node, ports = self.node, self.node.ports
        self.archive.mkdir(parents=True)
        settings = {
            "CommitLogRotationThresholdInMB": 1, "CommitLogArchiveDirectory": self.archive,
            "ListenAddress": node.address,
            "ThriftAddress": node.address, "AdminAddress": node.address,
            "CqlAddress": node.address, "Seed": node.address, "StoragePort": ports.storage,
            "ThriftPort": ports.thrift, "AdminPort": ports.admin, "CqlPort": ports.cql,
        }
        node.config.write_text(configure((ROOT / "storage-conf.xml").read_text(), settings))

    def run(self, *command, **environment):
        """Runs a command on this machine; raises Failed unless it succeeds."""
        ended = self.attempt(*command, **environment)
        if ended.returncode:
            raise Failed(f"{' '.join(map(str, command))}: {ended.stdout}")
        return ended.stdout

    def attempt(self, *command, **environment):
        """Runs a command on this machine, which may fail."""
        return subprocess.run(
            command, cwd=self.node.directory, env=self.environment | environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300, check=False,
        )

    def backup(self, kind):
        """Makes a backup; says and returns how many bytes the repository has more then."""
        before = self.size()
        self.run(BACKUP, kind)
        added = self.size() - before
        say(f"backup.sh {kind}: {added} bytes added")
        self.no_snapshot_is_left()
        return added

    def size(self):
        """Bytes of the files of the repository."""
        return sum(it.stat().st_size for it in self.repository.rglob("*") if it.is_file())

    def backups(self):
        """How many backups the repository has."""
        return len(json.loads(self.run("restic", "snapshots", "--json", "--no-lock")))

    def no_snapshot_is_left(self):
        """Fails if a backup has left its snapshot on this machine."""
        left = [it for it in self.node.directory.rglob("*-backup")
                if re.fullmatch(r"\d+-backup", it.name)]
        if left:
            raise Failed(f"a snapshot was left: {left}")

    def segments(self):
        """Archived segments of the commit log."""
        return set(self.archive.rglob("*.alog"))

    def lose(self):
        """Removes all that the node has on this machine."""
        self.node.end(signal.SIGKILL)
        shutil.rmtree(self.node.directory)
        self.node.directory.mkdir()

    def fetch(self):
        """Fetches the last backups to an empty machine; returns the command that restores them."""
        for kind in ("snapshot", "log"):
            self.run("restic", "restore", "latest", "--quiet", "--tag", f"alexandra-{kind}",
                     "--target", "/")
        return ["alexandra", "restore", "--config", self.node.config, "--snapshot", "backup",
                "--archive", self.archive]


def check(machine):
    """The story: two losses of the machine, then backups that fail."""
    machine.node.start()
    with load.connect(machine.node) as client:
        history = History(client)
        history.write(4000)
        # Those of an operator, with tags that are nearly that of the backup.
        others = ["before-backup", "backup-2", "backup of ann"]
        for tag in others:
            (machine.node.directory / f"data/data/Keyspace1/snapshots/1-{tag}").mkdir(parents=True)
        first = machine.backup("snapshot")
        history.write(400)
        if machine.backup("snapshot") > first // 2:
            raise Failed("the second backup was not incremental")
        history.write(1500)
        time.sleep(1)
        middle, moment = len(history.writes), time.time()
        time.sleep(1)
        archived = write_until_archived(machine, history)
        machine.backup("log")
        history.write(20)
    machine.lose()
    restore = machine.fetch()
    for tag in others:
        if list(machine.node.directory.rglob(f"*-{tag}")):
            raise Failed(f"the snapshot {tag} of an operator was sent")
    refused = machine.attempt(*restore)
    if not refused.returncode or refused.stdout.count(".alog") != 1:
        raise Failed(f"the lost segment was not named: {refused.stdout}")
    say(machine.run(*restore, "--accept-commitlog-loss").strip())
    machine.node.start()
    found = compare(machine, history, archived, len(history.writes))
    say(f"restored {found} of {len(history.writes)} writes; {archived} had been archived")
    machine.lose()
    say(machine.run(*machine.fetch(), "--until", str(int(moment * 1000))).strip())
    machine.node.start()
    compare(machine, history, middle, middle)
    say(f"restored to the moment after {middle} writes")
    machine.run("alexandra", "snapshot", "clear", "--config", machine.node.config, "--name",
                "backup")
    refuse(machine)


def write_until_archived(machine, history):
    """Writes until all writes of before are archived; returns how many those are."""
    written = len(history.writes)
    # The last of these writes are in the newest one, or before.
    newest = max(it.name for it in machine.node.directory.rglob("*.alog"))

    def is_archived():
        history.write(100)
        return any(it.name == newest for it in machine.segments())

    wait_for("segments are archived", is_archived)
    return written


def compare(machine, history, least, most):
    """The number of writes, from the first on, that are there; fails if there is no such number."""
    with load.connect(machine.node) as client:
        found = history.find(client, least, most)
    if found is None:
        raise Failed(f"the data are not those after any of the writes {least} to {most}")
    return found


def refuse(machine):
    """Backups that fail: exit code, message, nothing left on the machine, repository unharmed."""
    backups = machine.backups()

    def fails(what, message, **environment):
        ended = machine.attempt(BACKUP, "snapshot", **environment)
        said = ended.stdout.strip()
        if not ended.returncode or message not in said:
            raise Failed(f"{what}: exit code {ended.returncode}, {said}")
        machine.no_snapshot_is_left()
        line = next(it for it in said.splitlines() if message in it)
        say(f"{what}: exit code {ended.returncode}, {line}")

    wrong = machine.repository.with_name("wrong")
    wrong.write_text("wrong\n")
    fails("wrong password", "wrong password", RESTIC_PASSWORD_FILE=str(wrong))
    fails("no repository", "unable to open", RESTIC_REPOSITORY=str(wrong.with_name("none")))
    if is_root():
        snapshots = machine.node.directory / "data/data/Keyspace1/snapshots"
        with mounted(snapshots):
            fails("snapshot of a server fails", "cross-device")
        small = machine.repository.with_name("small")
        with mounted(small):
            machine.run("restic", "init", "--quiet", RESTIC_REPOSITORY=str(small))
            fails("full repository", "no space left", RESTIC_REPOSITORY=str(small))
    else:
        say("not tried, for want of root: snapshot that fails, full repository")
    machine.node.end()
    fails("no server", "Error connecting")
    machine.node.start()
    if machine.backups() != backups:
        raise Failed("a backup that failed is in the repository")
    machine.backup("snapshot")
    if machine.backups() != 2:
        raise Failed("of a day, one backup of each kind is kept, and no other")


@contextlib.contextmanager
def mounted(directory):
    """A small file system of its own at this place."""
    directory.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", directory], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", directory], check=True)


if __name__ == "__main__":
    main()
