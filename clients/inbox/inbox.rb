#!/usr/bin/ruby
# frozen_string_literal: true

# Mail of many users that can be searched, on Cassandra. `inbox.rb --help` tells the commands.

require 'optparse'

begin
  require_relative '../ruby/lib/alexandra/connection'
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
    ['widths', '', '[--fill yes] [--times N] [--longest N]', 'fill, then measure lists kept in other ways']
  ].freeze

  def self.usage
    lines = TABLE.flat_map do |name, arguments, options, about|
      ["  #{[name, options, arguments].reject(&:empty?).join(' ')}", "        #{about}"]
    end
    ['usage: inbox.rb [--host H] [--port P] [--framed] COMMAND ...',
     'A text that is left out is read from standard input.', *lines].join("\n")
  end

  # The command of these words, with its options taken out of them; nil where there is none.
  def self.parse(words)
    row = TABLE.assoc(words.shift) or return nil
    given = {}
    parser = OptionParser.new("usage: inbox.rb #{row[0]} #{row[2]} #{row[1]}")
    row[2].scan(/--([\w-]+)/) { |(name)| parser.on("--#{name} V") { |value| given[name] = value } }
    parser.parse!(words)
    most = row[1].end_with?('...') ? Float::INFINITY : row[1].split.size
    least = row[1].split.count { |each| !each.start_with?('[') }
    return nil unless words.size.between?(least, most)

    [row[0], words, given]
  end

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
    seed = seed_of({ 'messages' => '100000' }.merge(given))
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
    Integer(given.fetch(name, default)).tap do |value|
      raise InboxError, "--#{name} must be positive" unless value.positive?
    end
  end

  def start(given)
    TimeUUID.parse(given['from']) if given.key?('from')
  end
end

def main
  # Names and texts may be in any script, whatever the locale says.
  Encoding.default_external = Encoding::UTF_8
  words = ARGV.map { |word| word.dup.force_encoding(Encoding::UTF_8) }
  where = { host: '127.0.0.1', port: 9160, framed: false }
  parser = OptionParser.new(Commands.usage) do |options|
    options.on('--host H') { |value| where[:host] = value }
    options.on('--port P', Integer) { |value| where[:port] = value }
    options.on('--framed') { where[:framed] = true }
    options.on('--help') { return puts(Commands.usage) }
  end
  parser.order!(words)
  name, arguments, given = Commands.parse(words) || abort(Commands.usage)
  way = { framed: where[:framed] }
  Alexandra::Connection.open(where[:host], where[:port], **way) do |client, traffic|
    puts Commands.new(client, traffic).public_send(name, *arguments, given)
  end
rescue Thrift::TransportException => e
  absent = e.type == Thrift::TransportException::NOT_OPEN
  fault = absent ? 'no server at' : 'lost the connection to'
  abort "inbox.rb: #{fault} #{where[:host]}:#{where[:port]}: #{e.message}"
rescue CassandraThrift::InvalidRequestException => e
  abort "inbox.rb: the server refuses: #{e.why}"
rescue CassandraThrift::UnavailableException
  abort 'inbox.rb: too few servers of the ring are up'
rescue CassandraThrift::TimedOutException
  abort 'inbox.rb: the ring did not answer in time'
rescue Thrift::ApplicationException => e
  abort "inbox.rb: the server failed: #{e.message}"
rescue Inbox::InboxError, OptionParser::ParseError, ArgumentError => e
  abort "inbox.rb: #{e.message}"
end

main
