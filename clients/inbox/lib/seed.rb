# frozen_string_literal: true

require 'digest'
require_relative 'message'

module Inbox
  # Mail that was never written: the same messages for the same seed, so that a check knows them
  # and a measurement can be repeated.
  #
  # Words follow Zipf's law, and so do, more flatly, the users: some get much more than others. A
  # user writes mostly to a circle of his own. Half of the messages are answers.
  class Seed
    FIRST = %w[ada alan anna boris carl clara david edith emil frida georg grace hanna hugo ida
               jonas karl lea lena linus mara max nora oskar otto paula rosa ruth tim zoe].freeze
    LAST = %w[adams arendt bauer berg brandt curie diaz engel fischer frank gauss haas hopper
              jansen keller klein kramer lang lind maier noether otto peters roth sommer stein
              turing vogel weber wolf].freeze
    SYLLABLES = %w[ba be bo da di do fa fe ga go ha ka ke ki la le lo ma me mi mo na ne no pa pe
                   ra re ri ro sa se si so ta te ti to va ve].freeze
    VOCABULARY = 20_000
    CIRCLE = 15
    # Answers are to one of so many messages before.
    RECENT = 200
    # From 1 January 2009 to 1 December 2010.
    SPAN = (1_230_768_000..1_291_161_600).freeze

    # A number of 1 to `size`, less one, the k-th of them with a weight of 1/k**exponent.
    class Zipf
      def initialize(size, exponent)
        sum = 0.0
        @steps = Array.new(size) { |index| sum += 1.0 / ((index + 1)**exponent) }
      end

      def pick(random)
        point = random.rand * @steps.last
        @steps.bsearch_index { |step| step > point }
      end
    end

    attr_reader :users, :messages

    # `suffix` makes users of their own for each of several seeds in one keyspace.
    def initialize(messages:, users: 400, seed: 1, span: SPAN, suffix: '')
      most = FIRST.size * LAST.size
      least = CIRCLE + 2
      raise InboxError, "from #{least} to #{most} users" unless users.between?(least, most)

      @messages = messages
      @span = span
      @seed = seed
      # Ids of one seed are no others' either.
      @tail = suffix.empty? ? "\0" * 8 : Digest::MD5.digest(suffix)[0, 8]
      names = FIRST.product(LAST).map { |pair| pair.join('.') + suffix }
      @users = names.shuffle(random: Random.new(seed)).first(users)
      @writers = Zipf.new(users, 0.7)
      @words = Zipf.new(VOCABULARY, 1.0)
    end

    # The word of a rank, the most frequent first.
    def self.word(rank)
      number = rank + SYLLABLES.size
      number.digits(SYLLABLES.size).map { |digit| SYLLABLES[digit] }.join
    end

    # All messages, oldest first.
    def each
      return enum_for(__method__) unless block_given?

      random = Random.new(@seed)
      recent = []
      @messages.times do |number|
        message = write(random, id(random, number), recent)
        recent.shift if recent.size == RECENT
        recent << message
        yield message
      end
    end

    # Others to whom a user writes more often than to the rest.
    def circle(user)
      place = users.index(user)
      (1..CIRCLE).map { |step| users[(place + step) % users.size] }
    end

    private

    def id(random, number)
      seconds = @span.begin + (@span.end - @span.begin) * number / @messages
      tail = random.bytes(8).bytes.zip(@tail.bytes).map { |one, other| one ^ other }.pack('C*')
      tail.setbyte(0, 0x80 | (tail.getbyte(0) & 0x3F))
      moment = TimeUUID.at(seconds + Rational(number % 1000, 1000)).bytes[0, 8]
      TimeUUID.new(moment + tail)
    end

    def write(random, id, recent)
      earlier = recent[random.rand(RECENT)]
      return answer(random, id, earlier) if earlier && one_in(random, 2)

      from = users[@writers.pick(random)]
      to = Array.new(one_in(random, 3) ? 1 + random.rand(4) : 1) { recipient(random, from) }
      Message.new(id: id, thread: id, from: from, to: to.uniq, subject: text(random, 2..6),
                  body: text(random, 8..50))
    end

    # One of the recipients answers, to all or to the sender only.
    def answer(random, id, message)
      from = message.to[random.rand(message.to.size)]
      to = one_in(random, 2) ? message.participants - [from] : [message.from]
      Message.new(id: id, thread: message.thread, from: from, to: to,
                  subject: "Re: #{message.subject.delete_prefix('Re: ')}",
                  body: text(random, 8..50))
    end

    def recipient(random, from)
      return circle(from)[random.rand(CIRCLE)] unless one_in(random, 3)

      loop do
        other = users[@writers.pick(random)]
        return other unless other == from
      end
    end

    def text(random, length)
      Array.new(random.rand(length)) { Seed.word(@words.pick(random)) }.join(' ')
    end

    def one_in(random, number)
      random.rand(number).zero?
    end
  end
end
