#!/usr/bin/python3
"""Tweets in CQL, in tables of their own and in rows that Thrift wrote; compares with lists.

Exits with 1 at the first difference and says which. Each run has users of its own, so it can be
repeated on a server that already holds data.
"""

import random
import sys
import time
from datetime import datetime, timedelta, timezone
from itertools import islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

try:
    from alexandra import cql, timeuuid
    from alexandra.keyspace import Keyspace, put
    from monthly.tweets import FIRST, LAST, Drafts, Month, Place, ThriftRows, Timeline, Tweet
except ImportError as missing:
    sys.exit(f"check_cql.py: {missing}")

TWEETS = 100
MILLISECOND = timedelta(milliseconds=1)
# Moments at which months and years end and begin, long gaps between them, and a crowded month.
MOMENTS = [
    datetime(1980, 3, 1), datetime(1995, 2, 28, 23, 59, 59, 999_000), datetime(1995, 3, 1),
    datetime(2009, 12, 31, 23, 59, 59, 999_000), datetime(2010, 1, 1),
    datetime(2010, 1, 1, 0, 0, 0, 1000), datetime(2038, 1, 19, 3, 14, 8),
    *(datetime(2010, 11, 1) + number * timedelta(hours=3) for number in range(40)),
]


class Run:
    """A user, how his tweets are read, and which are due."""

    def __init__(self, answers, reader, name):
        self.answers, self.reader = answers, reader
        self.user = f"{name}/zoë-{time.time_ns():x}"
        self.chance = random.Random(1)
        self.due = []

    def make(self):
        """Tweets at moments of all kinds, no two at the same one; newest first in `due`."""
        since = datetime(2010, 1, 1)
        scattered = {since + timedelta(minutes=self.chance.randrange(60 * 24 * 365))
                     for _ in range(TWEETS)}
        moments = sorted({*MOMENTS, *scattered}, reverse=True)
        self.due = [self.tweet(at) for at in moments]
        return self.due

    def tweet(self, at):
        """A tweet at a moment."""
        unix_time = at.replace(tzinfo=timezone.utc).timestamp()
        return Tweet(self.user, at, timeuuid.at(unix_time), f"größer, 上善若水: {at}")

    def everything(self):
        """All that can be read."""
        same, due = self.answers.same, self.due
        same("all", list(self.reader.newest(self.user)), due)
        same("the first three", list(islice(self.reader.newest(self.user, size=2), 3)), due[:3])
        for size in (3, 40, len(due), len(due) + 1):
            same(f"pages of {size}", self.pages(size), due)
        months = [Month.of(tweet.at) for tweet in due]
        counts = {month: months.count(month) for month in dict.fromkeys(months)}
        same("counts", list(self.reader.count(self.user).items()), list(counts.items()))
        same("of nobody", self.reader.page("nobody"), ([], None))
        same("counts of nobody", self.reader.count("nobody"), {})

    def pages(self, size):
        """All tweets by pages, each asked for by a place that was text in between."""
        tweets, place = self.reader.page(self.user, size)
        found = list(tweets)
        while place:
            self.answers.same("a full page", len(tweets), size)
            tweets, place = self.reader.page(self.user, size, Place.parse(str(place)))
            found += tweets
        return found

    def intervals(self):
        """Intervals that end at the moments of tweets, and a millisecond beside them."""
        moments = [tweet.at for tweet in self.due]
        for number in range(30):
            since, before = sorted(self.chance.sample(moments, 2))
            since += (number % 3 - 1) * MILLISECOND
            due = [tweet for tweet in self.due if since <= tweet.at < before]
            found = list(self.reader.newest(self.user, since, before, size=9))
            self.answers.same(f"from {since} before {before}", found, due)
        first = self.due[-1]
        found = list(self.reader.newest(self.user, FIRST, first.at + MILLISECOND))
        self.answers.same("the first", found, [first])


def thrift_rows(open_connection, session, answers):
    """What Thrift writes as timeline.rb does, CQL reads; and the other way round."""
    run = Run(answers, ThriftRows(session), "thrift")
    with open_connection() as client:
        keyspace = Keyspace(client, "Timeline")
        stamp, changes = keyspace.timestamp(), {}
        months = {str(Month.of(tweet.at)) for tweet in run.make()}
        index = [put(month.encode(), b"", stamp) for month in months]
        keyspace.mutate({run.user: {"TweetMonths": index}})
        for tweet in run.due:
            column = put(tweet.id.bytes, tweet.body.encode(), stamp)
            row = changes.setdefault(f"{run.user}/{Month.of(tweet.at)}", {"Tweets": []})
            row["Tweets"].append(column)
        keyspace.mutate(changes)
        run.everything()
        run.intervals()
        gone = run.due.pop()
        keyspace.remove(f"{run.user}/{Month.of(gone.at)}", "Tweets", gone.id.bytes)
        run.everything()
        # In the same month, so that the index has it.
        added = run.tweet(datetime(2010, 11, 30, 23, 59, 59))
        row = f"{run.user}/2010-11"
        session.execute('INSERT INTO "Timeline"."Tweets" (month, id, value) VALUES (%s, %s, %s)',
                        [row, added.id, added.body])
        due = [tweet for tweet in run.due if Month.of(tweet.at) == (2010, 11)]
        due = sorted([*due, added], key=lambda tweet: tweet.at, reverse=True)
        found = [(column.name, column.value.decode())
                 for column in keyspace.each(row, "Tweets")]
        answers.same("by Thrift", found, [(tweet.id.bytes, tweet.body) for tweet in due])


def own_tables(session, answers):
    """Tables made for CQL, with deletions."""
    run = Run(answers, Timeline(session), "own")
    run.reader.publish(run.make())
    run.everything()
    run.intervals()
    for since, before in [
        (datetime(2010, 11, 3), datetime(2010, 11, 3, 6)),
        (datetime(2009, 12, 1), datetime(2010, 3, 15, 12)),
        (run.due[0].at, run.due[0].at + MILLISECOND),
        (datetime(2011, 5, 1), datetime(2012, 1, 1)),
    ]:
        run.reader.delete(run.user, since, before)
        run.due = [tweet for tweet in run.due if not since <= tweet.at < before]
        run.everything()
    run.intervals()
    # What is written after a deletion of its time is there.
    again = run.tweet(datetime(2010, 1, 1))
    run.reader.publish([again])
    run.due = sorted([*run.due, again], key=lambda tweet: tweet.at, reverse=True)
    run.everything()
    answers.same("one by one", run.pages(1), run.due)
    run.reader.delete(run.user, FIRST, LAST)
    answers.same("nothing left", list(run.reader.newest(run.user)), [])
    answers.same("no counts left", run.reader.count(run.user), {})
    written = [run.reader.tweet(run.user, f"number {number}") for number in range(30)]
    answers.same("written now", list(run.reader.newest(run.user)), written[::-1])


def drafts(session, answers):
    """Drafts go away in time; those that are published stay as tweets."""
    timeline = Timeline(session)
    kept, user = Drafts(session, timeline), f"draft-{time.time_ns():x}"
    short = kept.save(user, "for a second", 1)
    long = kept.save(user, "for an hour", 3600)
    other = kept.save(user, "not published", 3600)
    found = kept.of(user)
    answers.same("drafts", [draft.id for draft in found][:2], [other, long])
    answers.same("time left", [3590 < draft.seconds <= 3600 for draft in found[:2]], [True] * 2)
    time.sleep(2.1)
    answers.same("after its time", [draft.id for draft in kept.of(user)], [other, long])
    answers.same("to publish what is gone", kept.publish(user, short), None)
    tweet = kept.publish(user, long)
    answers.same("published", list(timeline.newest(user)), [tweet])
    answers.same("its text", tweet.body, "for an hour")
    answers.same("drafts left", [draft.id for draft in kept.of(user)], [other])


def scenario(open_connection, session, answers):
    """Rows that Thrift wrote, the tables made for CQL, drafts."""
    thrift_rows(open_connection, session, answers)
    own_tables(session, answers)
    drafts(session, answers)


if __name__ == "__main__":
    cql.check(__doc__.split("\n")[0], scenario)
