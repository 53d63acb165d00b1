"""Tweets of users in CQL, a partition for each month, newest first.

    tweets          usuario, year, month   timestamp -> tweet_id, body
    tweet_months    usuario                year, month
    "Tweets"        month: user/2010-11    id -> value          the rows of timeline.rb
    "TweetMonths"   key: user              column1: 2010-11     its index

Moments are datetimes of UTC without a zone, as the driver has them, and whole milliseconds.
Intervals include their first moment and exclude their last.
"""

import time
from datetime import datetime, timedelta
from typing import NamedTuple, Optional
from uuid import UUID

from alexandra import timeuuid
from alexandra.cql import ask_all, run_all

KEYSPACE = '"Timeline"'
PAGE = 20
# All that is ever tweeted is between them.
FIRST, LAST = datetime(1970, 1, 1), datetime(3000, 1, 1)

_MILLISECOND = timedelta(milliseconds=1)


class Tweet(NamedTuple):
    """A text that a user has written at a moment."""

    user: str
    at: datetime
    id: UUID
    body: str


class Month(NamedTuple):
    """A month of UTC."""

    year: int
    month: int

    @classmethod
    def of(cls, at):
        """The month of a moment."""
        return cls(at.year, at.month)

    @classmethod
    def parse(cls, text):
        """The month of its text; ValueError where it is none."""
        return cls.of(datetime.strptime(text, "%Y-%m"))

    def __str__(self):
        return f"{self.year:04}-{self.month:02}"


class Place(NamedTuple):
    """Where the next page begins: in a month, after what the server calls the paging state."""

    month: Month
    state: Optional[bytes] = None

    @classmethod
    def parse(cls, text):
        """The place of its text; ValueError where it is none."""
        month, _, state = text.partition(":")
        return cls(Month.parse(month), bytes.fromhex(state) or None)

    def __str__(self):
        return f"{self.month}:{(self.state or b'').hex()}"


class Reader:
    """Reads what users have written.

    A subclass has the statements: MONTHS of a user between two months, TWEETS of a month between
    two moments, COUNT of a month. It says how their values are made: `_months_of(row)`,
    `_month(month)`, `_partition(user, month)`.
    """

    def __init__(self, session):
        self._session = session
        self._months = session.prepare(self.MONTHS)
        self._tweets = session.prepare(self.TWEETS)
        self._count = session.prepare(self.COUNT)

    def page(self, user, size=PAGE, place=None, since=FIRST, before=LAST):
        """A page of tweets, newest first, and the place where the next one begins, or None.

        It goes back over as many months as it takes. The last page may be empty.
        """
        tweets = []
        newest = place.month if place else Month.of(before)
        months = self.months(user, Month.of(since), newest)
        for month in months:
            state = place.state if place and place.month == month else None
            select = self._tweets.bind([*self._partition(user, month), since, before])
            select.fetch_size = size - len(tweets)
            found = self._session.execute(select, paging_state=state)
            tweets += [Tweet(user, *row) for row in found.current_rows]
            if found.has_more_pages:
                return tweets, Place(month, found.paging_state)
            if len(tweets) == size:
                following = next(months, None)
                return tweets, following and Place(following)
        return tweets, None

    def newest(self, user, since=FIRST, before=LAST, size=PAGE):
        """Yields tweets of an interval, newest first, and reads a page when it is needed."""
        place = None
        while True:
            tweets, place = self.page(user, size, place, since, before)
            yield from tweets
            if not place:
                return

    def months(self, user, oldest=Month.of(FIRST), newest=Month.of(LAST)):
        """Yields months in which a user has tweeted, newest first. Some may be empty by now."""
        bounds = [*self._month(oldest), *self._month(newest)]
        return map(self._month_of, self._session.execute(self._months, [user, *bounds]))

    def count(self, user):
        """How many tweets of a user there are in each month, newest month first."""
        months = list(self.months(user))
        counts = (self._count.bind(self._partition(user, month)) for month in months)
        found = [count.one()[0] for count in ask_all(self._session, counts)]
        return {month: count for month, count in zip(months, found) if count}


class ThriftRows(Reader):
    """The tweets that timeline.rb has written over Thrift."""

    MONTHS = (f'SELECT column1 FROM {KEYSPACE}."TweetMonths"'
              " WHERE key = ? AND column1 >= ? AND column1 <= ?")
    TWEETS = (f'SELECT toTimestamp(id), id, value FROM {KEYSPACE}."Tweets"'
              " WHERE month = ? AND id >= minTimeuuid(?) AND id < minTimeuuid(?)")
    COUNT = f'SELECT count(*) FROM {KEYSPACE}."Tweets" WHERE month = ?'

    def _month_of(self, row):
        return Month.parse(row[0])

    def _month(self, month):
        return [str(month)]

    def _partition(self, user, month):
        return [f"{user}/{month}"]


class Timeline(Reader):
    """Tables made for CQL: writes and deletes too."""

    MONTHS = (f"SELECT year, month FROM {KEYSPACE}.tweet_months WHERE usuario = ?"
              " AND (year, month) >= (?, ?) AND (year, month) <= (?, ?)")
    _MONTH = "WHERE usuario = ? AND year = ? AND month = ?"
    _BETWEEN = f"{_MONTH} AND timestamp >= ? AND timestamp < ?"
    TWEETS = f"SELECT timestamp, tweet_id, body FROM {KEYSPACE}.tweets {_BETWEEN}"
    COUNT = f"SELECT count(*) FROM {KEYSPACE}.tweets {_MONTH}"

    def __init__(self, session):
        session.execute(
            f"CREATE TABLE IF NOT EXISTS {KEYSPACE}.tweets (usuario text, year int, month int,"
            " timestamp timestamp, tweet_id timeuuid, body text,"
            " PRIMARY KEY ((usuario, year, month), timestamp))"
            " WITH CLUSTERING ORDER BY (timestamp DESC)")
        session.execute(
            f"CREATE TABLE IF NOT EXISTS {KEYSPACE}.tweet_months (usuario text, year int,"
            " month int, PRIMARY KEY (usuario, year, month))"
            " WITH CLUSTERING ORDER BY (year DESC, month DESC)")
        super().__init__(session)
        self._enter = session.prepare(
            f"INSERT INTO {KEYSPACE}.tweet_months (usuario, year, month) VALUES (?, ?, ?)")
        self._insert = session.prepare(
            f"INSERT INTO {KEYSPACE}.tweets (usuario, year, month, timestamp, tweet_id, body)"
            " VALUES (?, ?, ?, ?, ?, ?)")
        self._delete = session.prepare(f"DELETE FROM {KEYSPACE}.tweets {self._BETWEEN}")
        self._last = FIRST

    def tweet(self, user, body):
        """Publishes a text now, and returns the tweet.

        The key of a tweet is its moment: of two in one millisecond only one would stay. So this
        object takes none twice.
        """
        now = FIRST + time.time_ns() // 1_000_000 * _MILLISECOND
        self._last = at = max(now, self._last + _MILLISECOND)
        tweet = Tweet(user, at, timeuuid.now(), body)
        self.publish([tweet])
        return tweet

    def publish(self, tweets):
        """Writes tweets, many at a time.

        Their months are entered first: a month too many costs an empty page, one too few would
        hide tweets.
        """
        months = {(tweet.user, *Month.of(tweet.at)) for tweet in tweets}
        run_all(self._session, map(self._enter.bind, months))
        run_all(self._session, (
            self._insert.bind([*self._partition(tweet.user, Month.of(tweet.at)), *tweet[1:]])
            for tweet in tweets
        ))

    def delete(self, user, since, before):
        """Deletes the tweets of an interval: one deletion in each month, whatever it has."""
        run_all(self._session, (
            self._delete.bind([*self._partition(user, month), since, before])
            for month in self.months(user, Month.of(since), Month.of(before))
        ))

    def _month_of(self, row):
        return Month(*row)

    def _month(self, month):
        return month

    def _partition(self, user, month):
        return [user, *month]


class Draft(NamedTuple):
    """A text that is not published yet, and for how many seconds it is still kept."""

    id: UUID
    body: str
    seconds: int


class Drafts:
    """Texts of users that go away by themselves when nobody publishes them in time."""

    def __init__(self, session, timeline):
        session.execute(
            f"CREATE TABLE IF NOT EXISTS {KEYSPACE}.drafts (usuario text, draft_id timeuuid,"
            " body text, PRIMARY KEY (usuario, draft_id))"
            " WITH CLUSTERING ORDER BY (draft_id DESC)")
        self._session = session
        self._timeline = timeline
        self._insert = session.prepare(
            f"INSERT INTO {KEYSPACE}.drafts (usuario, draft_id, body) VALUES (?, ?, ?)"
            " USING TTL ?")
        self._all = session.prepare(
            f"SELECT draft_id, body, TTL(body) FROM {KEYSPACE}.drafts WHERE usuario = ?")
        one = f"FROM {KEYSPACE}.drafts WHERE usuario = ? AND draft_id = ?"
        self._one = session.prepare(f"SELECT body {one}")
        self._delete = session.prepare(f"DELETE {one}")

    def save(self, user, body, seconds):
        """Keeps a text for so many seconds, and returns its id."""
        draft = timeuuid.now()
        self._session.execute(self._insert, [user, draft, body, seconds])
        return draft

    def of(self, user):
        """The drafts of a user, newest first."""
        return [Draft(*row) for row in self._session.execute(self._all, [user])]

    def publish(self, user, draft):
        """Makes a tweet of a draft, and returns it; None where there is no such draft."""
        found = self._session.execute(self._one, [user, draft]).one()
        if not found:
            return None
        tweet = self._timeline.tweet(user, found.body)
        self._session.execute(self._delete, [user, draft])
        return tweet
