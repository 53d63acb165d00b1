#!/usr/bin/python3
"""Tweets by user and month, in CQL. See `timeline-cql.py --help`."""

import sys
from datetime import datetime, timezone
from pathlib import Path
from uuid import UUID

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

try:
    from alexandra import cql, program
    from monthly.tweets import PAGE, Drafts, Place, ThriftRows, Timeline
except ImportError as missing:
    sys.exit(f"timeline-cql.py: {missing}")

NAME = "timeline-cql.py"


class TimelineError(Exception):
    """It cannot be done; the text says why."""


def main():
    """Runs one command; the exit code is 1 when it could not be done."""
    options = _parser().parse_args()

    def work():
        with cql.connect(options.host, options.port) as session:
            options.run(session, options)

    program.run(options, NAME, work, [TimelineError, *cql.FAILURES])


def _parser():
    parser = program.server_parser(NAME, "Tweets by user and month, in CQL.", cql.PORT)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(name, run, about, **arguments):
        sub = commands.add_parser(name, help=about, description=about)
        sub.set_defaults(run=run)
        sub.add_argument("user")
        for argument, kind in arguments.items():
            sub.add_argument(argument, type=kind)
        return sub

    interval = {"since": _moment, "before": _moment}
    command("tweet", _tweet, "publish a text", text=str)
    show = command("show", _show, "what a user has written, newest first")
    between = command("between", _between,
                      "from one moment on and before another, as 2010-12-01T00:05:00", **interval)
    count = command("count", _count, "how many tweets there are in each month")
    command("delete", _delete, "delete all from one moment on and before another", **interval)
    draft = command("draft", _draft, "keep a text for a time", text=str)
    command("drafts", _drafts, "the drafts of a user, and the seconds that they are kept")
    command("publish", _publish, "make a tweet of a draft", draft=UUID)
    for sub in (show, between, count):
        sub.add_argument("--thrift-rows", action="store_true",
                         help="what timeline.rb has written")
    show.add_argument("--from", dest="place", type=Place.parse, help="where a page begins")
    show.add_argument("--size", type=program.number(1), default=PAGE)
    draft.add_argument("--seconds", type=program.number(1), default=3600)
    return parser


def _reader(session, options):
    return ThriftRows(session) if options.thrift_rows else Timeline(session)


def _tweet(session, options):
    print(_line(Timeline(session).tweet(options.user, options.text)))


def _show(session, options):
    tweets, place = _reader(session, options).page(options.user, options.size, options.place)
    program.show(map(_line, tweets))
    if place:
        print(f"\nOlder ones: --from {place}")


def _between(session, options):
    found = _reader(session, options).newest(options.user, options.since, options.before)
    program.show(map(_line, found))


def _count(session, options):
    for month, count in _reader(session, options).count(options.user).items():
        print(f"{month}  {count}")


def _delete(session, options):
    Timeline(session).delete(options.user, options.since, options.before)


def _draft(session, options):
    print(Drafts(session, Timeline(session)).save(options.user, options.text, options.seconds))


def _drafts(session, options):
    for draft in Drafts(session, Timeline(session)).of(options.user):
        print(f"{draft.id}  {draft.seconds:>6} s  {draft.body}")


def _publish(session, options):
    tweet = Drafts(session, Timeline(session)).publish(options.user, options.draft)
    if not tweet:
        raise TimelineError(f"no draft {options.draft} of {options.user}")
    print(_line(tweet))


def _line(tweet):
    return f"{tweet.at:%Y-%m-%d %H:%M:%S} {tweet.user}: {tweet.body} [{tweet.id}]"


def _moment(text):
    """A moment of UTC, if it does not say otherwise."""
    at = datetime.fromisoformat(text)
    return at.astimezone(timezone.utc).replace(tzinfo=None) if at.tzinfo else at


if __name__ == "__main__":
    main()
