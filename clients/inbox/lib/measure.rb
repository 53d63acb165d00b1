# frozen_string_literal: true

require_relative '../../ruby/lib/alexandra/figures'
require_relative 'mail'
require_relative 'seed'

module Inbox
  # Measures every query of the inbox on mail that was seeded. Queries are different each time, the
  # same in each run, and take turns, so that what else the machine does meets all alike.
  class Measure
    # Ranks of words: those of most messages, of one in a hundred, of one in thousands.
    FREQUENT = (0...5).freeze
    MIDDLING = (100...300).freeze
    RARE = (3000...10_000).freeze
    NAME = '%-32s '

    def initialize(mail, traffic, seed)
      @mail = mail
      @traffic = traffic
      @seed = seed
      @random = Random.new(1)
      # The first is chosen most often, as the sender and as a recipient.
      @most = seed.users.first
      @letters = seed.each.first(1000).cycle
      @sent = []
      @mails = {}
    end

    # The lines of a table, after so many rounds of all queries.
    def run(rounds)
      queries = yardsticks.merge(pages, words, several_words, people, writes)
      taken = queries.transform_values { Alexandra::Figures::Cost.new(@traffic) }
      rounds.times do
        queries.each do |name, (subject, query)|
          # What is asked for is chosen before the clock runs.
          given = subject.call
          taken[name].measure { query.call(*given) }
        end
      end
      [format(NAME, 'query') + Alexandra::Figures::HEADING,
       *taken.map { |name, cost| format(NAME, name) + cost.row(cost.carried) }]
    end

    private

    # Each of these returns what is to be chosen and what is done with it, by name.

    # What any call costs here, and the least one that reads.
    def yardsticks
      keyspace = @mail.keyspace
      { '(describe_version)' => [-> {}, -> { keyspace.client.describe_version }],
        '(get of one column)' => [-> { some_mail.last.id.to_s },
                                  ->(id) { keyspace.get(id, 'Messages', 'subject') }] }
    end

    def pages
      { 'mailbox, newest page' => [-> { user }, ->(user) { @mail.mailbox(user) }],
        'mailbox, a later page' => [-> { some_mail },
                                    ->(user, each) { @mail.mailbox(user, start: each.id) }],
        'thread' => [-> { some_mail }, ->(user, each) { @mail.thread(user, each.thread) }],
        'message' => [-> { some_mail.last.id }, ->(id) { @mail.message(id) }] }
    end

    def words
      { 'a rare word' => search { word(RARE) }, 'a middling word' => search { word(MIDDLING) },
        'a frequent word' => search { word(FREQUENT) },
        'a frequent word, most mail' => search(-> { @most }) { word(FREQUENT) } }
    end

    def several_words
      { 'two frequent words' => search { "#{word(FREQUENT)} #{Seed.word(FREQUENT.end)}" },
        'a frequent and a rare word' => search { "#{word(FREQUENT)} #{word(RARE)}" },
        'two middling words' => search { middling },
        'two frequent words, most mail' => search(-> { @most }) {
          "#{word(FREQUENT)} #{Seed.word(FREQUENT.end)}"
        },
        'two middling words, most mail' => search(-> { @most }) { middling } }
    end

    def people
      pair = -> { user.then { |user| [user, partner(user)] } }
      asked = lambda do
        pair.call.then { |user, other| [user, "from:#{other} #{word(FREQUENT)}"] }
      end
      { 'interactions' => [pair, ->(user, other) { @mail.with(user, other) }],
        'from somebody, frequent word' => [asked, ->(user, text) { @mail.search(user, text) }] }
    end

    # Each message that is sent is deleted again.
    def writes
      deliver = lambda do |letter|
        @sent << @mail.send_message(from: letter.from, to: letter.to, subject: letter.subject,
                                    body: letter.body)
      end
      { 'delivery' => [-> { [@letters.next] }, deliver],
        'deletion' => [-> { @sent.pop.id }, ->(id) { @mail.delete(id) }] }
    end

    def search(whose = -> { user }, &text)
      [-> { [whose.call, text.call] }, ->(user, query) { @mail.search(user, query) }]
    end

    def user
      @seed.users.sample(random: @random)
    end

    def partner(user)
      @seed.circle(user).sample(random: @random)
    end

    def word(ranks)
      Seed.word(@random.rand(ranks))
    end

    def middling
      "#{word(MIDDLING)} #{word(MIDDLING)}"
    end

    # Somebody, and one of his newest hundred messages.
    def some_mail
      user = self.user
      @mails[user] ||= @mail.mailbox(user, size: 100).items
      raise InboxError, "no mail of #{user}: seed first, with these users" if @mails[user].empty?

      [user, @mails[user].sample(random: @random)]
    end
  end
end
