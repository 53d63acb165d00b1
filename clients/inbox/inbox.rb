#!/usr/bin/ruby
# frozen_string_literal: true

# Mail of many users that can be searched, on Cassandra. `inbox.rb --help` tells the commands.

begin
  require_relative '../ruby/lib/alexandra/program'
  require_relative 'lib/mail'
  require_relative 'lib/measure'
  require_relative 'lib/seed'
  require_relative 'lib/text'
  require_relative 'lib/widths'
rescue LoadError => e
  abort "inbox.rb: #{e.message}"
end

# The commands: arguments in, lines of text out.
class Commands
  include Inbox

  # Command, its arguments, its options, what it does.
  TABLE = [
    ['seed', '', '--messages N [--users N] [--seed N] [--batch N]', 'fill in mail of a seed'],
    ['mailbox', 'USER', '[--from ID]', 'what a user has sent or received, newest first'],
    ['thread', 'USER ID', '[--from ID]', 'a conversation of a user'],
    ['message', 'ID', '', 'one message'],
    ['search', 'USER WORDS...', '[--from ID]',
     'messages with all words; from:X, to:X, with:X for those of a person'],
    ['with', 'USER OTHER', '[--from ID]', 'what two users have written to each other'],
    ['send', '[TEXT]', '--from USER --to USER,USER --subject S [--reply-to ID]', 'send a message'],
    ['delete', 'ID', '', 'take a message away from all who have it'],
    ['bench', '', '[--times N] [--users N] [--seed N]', 'measure the queries on mail of a seed'],
    ['widths', '', '[--fill yes] [--times N] [--longest N]',
     'fill, then measure lists kept in other ways']
  ].freeze

  def initialize(client, traffic)
    @mail = Mail.new(client)
    @traffic = traffic
  end

  def seed(given)
    raise InboxError, 'seed needs --messages' unless given.key?('messages')

    begun = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    seed = seed_of(given)
    seed.each.each_slice(number(given, 'batch', 50)) { |messages| @mail.deliver(messages) }
    seconds = Process.clock_gettime(Process::CLOCK_MONOTONIC) - begun
    [format('%d messages for %d users in %.1f s: %d calls, %.1f MB', seed.messages,
            seed.users.size, seconds, @traffic.calls, @traffic.sent / 1e6)]
  end

  def mailbox(user, given)
    [Text.list("Mail of #{user}", @mail.mailbox(user, start: start(given)))]
  end

  def thread(user, id, given)
    [Text.thread(@mail.thread(user, TimeUUID.parse(id), start: start(given)))]
  end

  def message(id, _given)
    [Text.message(@mail.message(TimeUUID.parse(id)))]
  end

  def search(user, *words, given)
    query = words.join(' ')
    [Text.list("Mail of #{user} with #{query}", @mail.search(user, query, start: start(given)))]
  end

  def with(user, other, given)
    [Text.list("#{user} and #{other}", @mail.with(user, other, start: start(given)))]
  end

  def send(text = nil, given)
    missing = %w[from to subject].find { |name| !given.key?(name) }
    raise InboxError, "send needs --#{missing}" if missing

    answered = given['reply-to'] && TimeUUID.parse(given['reply-to'])
    sent = @mail.send_message(from: given['from'], to: given['to'].split(','), reply_to: answered,
                              subject: given['subject'], body: text || $stdin.read.strip)
    ["Sent: #{sent.id}"]
  end

  def delete(id, _given)
    @mail.delete(TimeUUID.parse(id))
    ["Deleted: #{id}"]
  end

  def bench(given)
    seed = seed_of({ 'messages' => 100_000 }.merge(given))
    Measure.new(@mail, @traffic, seed).run(number(given, 'times', 500))
  end

  def widths(given)
    widths = Widths.new(@mail.keyspace, @traffic, number(given, 'longest', 100_000))
    given.key?('fill') ? widths.fill : widths.run(number(given, 'times', 100))
  end

  private

  def seed_of(given)
    Seed.new(messages: number(given, 'messages'), users: number(given, 'users', 400),
             seed: number(given, 'seed', 1))
  end

  def number(given, name, default = nil)
    given.fetch(name, default).tap do |value|
      raise InboxError, "--#{name} must be positive" unless value.positive?
    end
  end

  def start(given)
    TimeUUID.parse(given['from']) if given.key?('from')
  end
end

program = Alexandra::Program.new(
  'inbox.rb', 'A text that is left out is read from standard input.', Commands::TABLE,
  [Inbox::InboxError]
)
program.main { |client, traffic| Commands.new(client, traffic) }
