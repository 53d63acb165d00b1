# frozen_string_literal: true

module Timeline
  # What a timeline has to answer, from plain lists in memory: no rows, no months, no bounds. The
  # check compares every answer with this.
  class Model
    # Moments in steps of 100 ns, as the 60 bits of an id say them.
    def self.steps(id)
      low, mid, high = id.bytes.unpack('Nnn')
      ((high & 0x0FFF) << 48) | (mid << 32) | low
    end

    # The same in Unix time.
    def self.moment(id)
      Rational(steps(id) - 0x01B21DD213814000, 10_000_000)
    end

    def initialize
      @tweets = {}
      @delivered = Hash.new { |all, reader| all[reader] = {} }
      @followers = Hash.new { |all, author| all[author] = [] }
    end

    def publish(tweets)
      tweets.each do |tweet|
        @tweets[tweet.id] = tweet
        @followers[tweet.author].each { |reader| @delivered[reader][tweet.id] = true }
      end
    end

    def enter(reader, author)
      @followers[author] |= [reader]
    end

    def follow(reader, author)
      enter(reader, author)
      show(author).first(Service::PAGE_SIZE).each { |tweet| @delivered[reader][tweet.id] = true }
    end

    def unfollow(reader, author)
      @followers[author] -= [reader]
    end

    def delete(id)
      @tweets.delete(id)
    end

    def followers(author)
      @followers[author].sort
    end

    def following(reader)
      @followers.select { |_, readers| readers.include?(reader) }.keys.sort
    end

    def show(author)
      newest_first(@tweets.values.select { |tweet| tweet.author == author })
    end

    def home(reader)
      newest_first(@tweets.values_at(*@delivered[reader].keys).compact)
    end

    def between(user, from, before, home: false)
      (home ? home(user) : show(user)).select do |tweet|
        (from...before).cover?(Model.moment(tweet.id))
      end
    end

    def count(author)
      show(author).group_by { |tweet| Time.at(Model.moment(tweet.id)).utc.strftime('%Y-%m') }
                  .transform_values(&:size)
    end

    private

    def newest_first(tweets)
      tweets.sort_by { |tweet| [Model.steps(tweet.id), tweet.id.bytes] }.reverse
    end
  end
end
