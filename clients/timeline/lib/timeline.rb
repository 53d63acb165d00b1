# frozen_string_literal: true

require_relative 'monthly_rows'

# Short messages, and the lists in which they are read.
module Timeline
  # That cannot be done; the text says why.
  class TimelineError < StandardError; end

  # `id` is a TimeUUID: when it was written.
  Tweet = Struct.new(:id, :author, :text)

  # Reads and writes timelines.
  #
  #   Tweets       row: user/month     columns: id -> text, newest first
  #   TweetMonths  row: user           columns: months, newest first
  #   Home         row: reader/month   columns: id -> author, newest first
  #   HomeMonths   row: reader         columns: months, newest first
  #   Following    row: user           columns: whom he follows
  #   Followers    row: user           columns: who follows him
  class Service
    KEYSPACE = 'Timeline'
    PAGE_SIZE = 20
    # A tweet has at most so many characters.
    MOST_CHARACTERS = 140
    # Followers that are read at once; each gets a tweet by a write of its own.
    FOLLOWERS_PAGE = 500
    private_constant :FOLLOWERS_PAGE

    attr_reader :keyspace

    def initialize(keyspace)
      @keyspace = keyspace
      @tweets = MonthlyRows.new(keyspace, 'Tweets', 'TweetMonths')
      @home = MonthlyRows.new(keyspace, 'Home', 'HomeMonths')
    end

    # Writes

    # Publishes a text now, and returns the tweet.
    def tweet(author, text)
      raise TimelineError, 'a user needs a name' if author.empty?

      unless text.size.between?(1, MOST_CHARACTERS)
        raise TimelineError, "a tweet has 1 to #{MOST_CHARACTERS} characters, not #{text.size}"
      end

      tweet = Tweet.new(Alexandra::TimeUUID.now, author, text)
      publish([tweet])
      tweet
    end

    # Writes tweets and delivers them to the followers of their authors. The tweets come first: who
    # is told of one can read it.
    def publish(tweets)
      @tweets.write(tweets.map { |tweet| Item.new(tweet.author, tweet.id.bytes, tweet.text) })
      deliver(tweets)
    end

    # Puts tweets into the home timelines of all followers. To be repeated when it has failed, for
    # a second delivery is the same as the first.
    def deliver(tweets)
      tweets.group_by(&:author).each do |author, written|
        followers(author).each_slice(FOLLOWERS_PAGE) do |readers|
          @home.write(readers.flat_map { |reader| references(reader, written) })
        end
      end
    end

    # Deletes a tweet. The references to it go too, as far as they are known; a reader skips those
    # that are left over.
    def delete(author, id)
      column = @tweets.get(author, id.bytes) or raise TimelineError, "no tweet #{id} of #{author}"

      # Not less than the tweet's own timestamp, which the clock of another machine has made.
      stamp = [@keyspace.timestamp, column.timestamp].max
      @tweets.delete([Item.new(author, id.bytes)], stamp)
      followers(author).each_slice(FOLLOWERS_PAGE) do |readers|
        @home.delete(readers.map { |reader| Item.new(reader, id.bytes) }, stamp)
      end
    end

    # From now on a reader gets what an author writes, and at once the newest page of it.
    def follow(reader, author)
      raise TimelineError, 'a user needs a name' if reader.empty? || author.empty?
      raise TimelineError, 'nobody follows himself' if reader == author

      follow_all([[reader, author]])
      # After the author has the new follower: what is written meanwhile comes one way or the other.
      newest, = show(author)
      @home.write(references(reader, newest))
    end

    # Enters pairs of reader and author, without what the authors have written before.
    def follow_all(pairs)
      stamp = @keyspace.timestamp
      change(pairs) { |name| @keyspace.put(name, '', stamp) }
    end

    # A reader gets no more of an author. What was delivered stays.
    def unfollow(reader, author)
      stamp = @keyspace.timestamp
      change([[reader, author]]) { |name| @keyspace.delete(stamp, names: [name]) }
    end

    # Reads. A page is a list of tweets, newest first, and the id where the next begins, or nil.

    # What a user has written.
    def show(author, start: nil, size: PAGE_SIZE)
      written(author, newest: start ? start.bytes : '', size: size)
    end

    # What those have written whom a user follows.
    def home(reader, start: nil, size: PAGE_SIZE)
      received(reader, newest: start ? start.bytes : '', size: size)
    end

    # What a user has written, or received, from one moment on and before another, in Unix time.
    # The next page begins at `start`.
    def between(user, from, before, home: false, start: nil, size: PAGE_SIZE)
      raise TimelineError, 'the first moment must be before the second' unless from < before

      bounds = { newest: start ? start.bytes : Moments.before(before),
                 oldest: Moments.from(from), size: size }
      home ? received(user, **bounds) : written(user, **bounds)
    end

    # The same for the last minutes up to and with a moment.
    def recent(user, seconds: 600, now: Time.now, home: false, start: nil, size: PAGE_SIZE)
      between(user, now.to_r - seconds, now.to_r + Moments::STEP,
              home: home, start: start, size: size)
    end

    # The newest tweet of a user, or nil.
    def last(author)
      show(author, size: 1).first.first
    end

    # The oldest tweet of a user, or nil.
    def first(author)
      column = @tweets.first(author)
      tweet_of(author, column) if column
    end

    # How many tweets of a user there are in each month, newest month first. The server reads all
    # of them to count them.
    def count(author)
      @tweets.count(author)
    end

    # A tweet, or nil.
    def find(author, id)
      column = @tweets.get(author, id.bytes)
      tweet_of(author, column) if column
    end

    # Whom a user follows, in the order of names.
    def following(user)
      names('Following', user)
    end

    # Who follows a user, in the order of names.
    def followers(user)
      names('Followers', user)
    end

    private

    def written(author, **bounds)
      columns, following = @tweets.page(author, **bounds)
      [columns.map { |column| tweet_of(author, column) }, id_of(following)]
    end

    # References lead to tweets that may have been deleted since, so a page may take several rounds.
    def received(reader, newest:, size:, oldest: '')
      tweets = []
      while newest && tweets.size <= size
        columns, newest = @home.page(reader, newest: newest, oldest: oldest,
                                             size: size + 1 - tweets.size)
        tweets += resolve(columns)
      end
      [tweets.first(size), tweets[size]&.id]
    end

    # The tweets to which columns of Home refer, in the same order.
    def resolve(columns)
      items = columns.map { |column| Item.new(@keyspace.text(column.value), column.name) }
      found = @tweets.find(items)
      items.filter_map do |item|
        column = found[[item.owner, item.name]]
        tweet_of(item.owner, column) if column
      end
    end

    def references(reader, tweets)
      tweets.map { |tweet| Item.new(reader, tweet.id.bytes, tweet.author) }
    end

    # Both sides of pairs of reader and author.
    def change(pairs, &mutation)
      pairs.each_slice(FOLLOWERS_PAGE) do |some|
        changes = Hash.new { |rows, user| rows[user] = {} }
        some.each do |reader, author|
          (changes[reader]['Following'] ||= []) << mutation.call(author)
          (changes[author]['Followers'] ||= []) << mutation.call(reader)
        end
        @keyspace.mutate(changes)
      end
    end

    def names(family, user)
      @keyspace.each(user, family, page: FOLLOWERS_PAGE)
               .lazy.map { |column| @keyspace.text(column.name) }
    end

    def tweet_of(author, column)
      Tweet.new(id_of(column.name), author, @keyspace.text(column.value))
    end

    def id_of(name)
      Alexandra::TimeUUID.new(name) if name
    end
  end
end
