# frozen_string_literal: true

require_relative 'timeline'

module Timeline
  # Users, who follow each other, and their tweets: for the same numbers always the same, ids too.
  #
  # As in life a few are followed by many and write most, and most users are silent for months.
  class Seed
    WORDS = %w[ring row column node token hash gossip hint seed key slice super bloom commit log
               memory table disk flush compact read write repair quorum replica coffee rain].freeze
    FOLLOWED = 10
    # One tweet in so many is of the last twenty minutes, and so on both sides of the last hour.
    RECENT_SHARE = 50
    RECENT_SECONDS = 1200
    BATCH = 200
    private_constant :WORDS, :FOLLOWED, :RECENT_SHARE, :RECENT_SECONDS, :BATCH

    # Five minutes after the first of a month began, so that its last ten minutes are in two rows.
    UNTIL = Time.utc(2010, 12, 1, 0, 5)

    attr_reader :users, :follows, :tweets

    def initialize(users: 100, tweets: 5000, months: 24, seed: 1, before: UNTIL, prefix: 'user')
      @chance = Random.new(seed)
      @until = before.to_i
      @users = Array.new(users) { |number| "#{prefix}#{number}" }
      @totals = totals(users)
      @months = Array.new(months) { |back| month_before(before, back) }
      @follows = choose_follows
      @active = Array.new(users) { |number| active_months(number) }
      @tweets = Array.new(tweets) { |number| make_tweet(number) }
                     .sort_by { |tweet| [tweet.id.seconds, tweet.id.bytes] }
    end

    # Writes everything, and yields how many tweets there are so far.
    def fill(service)
      service.follow_all(follows)
      tweets.each_slice(BATCH).with_index do |some, index|
        service.publish(some)
        yield (index * BATCH) + some.size if block_given?
      end
    end

    private

    # The user of rank n has a weight of 1/n: these are the sums up to each user.
    def totals(users)
      sum = 0.0
      Array.new(users) { |number| sum += 1.0 / (number + 1) }
    end

    def someone
      chosen = @chance.rand * @totals.last
      @totals.bsearch_index { |total| total > chosen } || (@totals.size - 1)
    end

    def choose_follows
      users.each_index.flat_map do |reader|
        authors = Array.new(FOLLOWED) { someone }.uniq - [reader]
        authors.map { |author| [users[reader], users[author]] }
      end
    end

    # The second in which a month began, so many months before the present one.
    def month_before(moment, back)
      number = (moment.year * 12) + moment.month - 1 - back
      Time.utc(number / 12, (number % 12) + 1).to_i
    end

    # The first user writes in every month, each other in some of them.
    def active_months(number)
      all = @months.each_index.to_a
      number.zero? ? all : all.sample([all.size / 4, 1].max, random: @chance)
    end

    def make_tweet(number)
      author = someone
      steps = (number % RECENT_SHARE).zero? ? recent : ordinary(author)
      words = Array.new(@chance.rand(3..12)) { WORDS.sample(random: @chance) }
      Tweet.new(id_at(Rational(steps, 10_000_000)), users[author], "#{words.join(' ')} ##{number}")
    end

    def recent
      (@until * 10_000_000) - @chance.rand(RECENT_SECONDS * 10_000_000)
    end

    def ordinary(author)
      back = @active[author].sample(random: @chance)
      first = @months[back]
      after = back.zero? ? @until : @months[back - 1]
      @chance.rand((first * 10_000_000)...(after * 10_000_000))
    end

    # Clock sequence and node by chance, with the bits that say that they are.
    def id_at(unix_time)
      tail = @chance.bytes(8)
      tail.setbyte(0, (tail.getbyte(0) & 0x3F) | 0x80)
      tail.setbyte(2, tail.getbyte(2) | 0x01)
      Alexandra::TimeUUID.new(Alexandra::TimeUUID.at(unix_time).bytes[0, 8] + tail)
    end
  end
end
