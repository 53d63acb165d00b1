#!/usr/bin/ruby
# frozen_string_literal: true

# Short messages on Cassandra, in rows by user and month. `timeline.rb --help` tells the commands.

require 'time'

begin
  require_relative '../ruby/lib/alexandra/program'
  require_relative 'lib/bench'
  require_relative 'lib/seed'
  require_relative 'lib/timeline'
rescue LoadError => e
  abort "timeline.rb: #{e.message}"
end

# The commands: arguments in, text out.
class Commands
  include Timeline

  # Command, its arguments, its options, what it does.
  TABLE = [
    ['tweet', 'USER [TEXT]', '', 'publish a text, and deliver it to those who follow'],
    ['show', 'USER', '[--from ID] [--size N]', 'what a user has written, newest first'],
    ['home', 'USER', '[--from ID] [--size N]', 'what those have written whom a user follows'],
    ['recent', 'USER', '[--home] [--minutes N] [--at TIME] [--from ID] [--size N]',
     'the last minutes: ten, up to now'],
    ['between', 'USER FROM BEFORE', '[--home] [--from ID] [--size N]',
     'from one moment on and before another, as 2010-12-01T00:05:00Z'],
    ['count', 'USER', '', 'how many tweets there are in each month, the first and the last'],
    ['follow', 'USER AUTHOR', '', 'get what an author writes'],
    ['unfollow', 'USER AUTHOR', '', 'get no more of it'],
    ['delete', 'USER ID', '', 'delete a tweet'],
    ['deliver', 'USER ID', '', 'deliver a tweet again, when the first time has failed'],
    ['seed', '', '[--users N] [--tweets N] [--months N] [--seed N]', 'fill in users and tweets'],
    ['bench', '', '[--users N] [--tweets N] [--months N] [--seed N] [--rounds N]',
     'measure reads of what the same seed has filled in']
  ].freeze

  def initialize(service, traffic)
    @service = service
    @traffic = traffic
  end

  def tweet(user, text = nil, _given)
    "Tweeted: #{@service.tweet(user, text || $stdin.read.strip).id}"
  end

  def show(user, given)
    page(*@service.show(user, **place(given)))
  end

  def home(user, given)
    page(*@service.home(user, **place(given)))
  end

  def recent(user, given)
    now = given.key?('at') ? moment(given['at']) : Time.now
    page(*@service.recent(user, seconds: given.fetch('minutes', 10) * 60, now: now,
                                home: given.key?('home'), **place(given)))
  end

  def between(user, from, before, given)
    bounds = [from, before].map { |text| moment(text).to_r }
    page(*@service.between(user, *bounds, home: given.key?('home'), **place(given)))
  end

  def count(user, _given)
    months = @service.count(user)
    return 'Nothing here yet.' if months.empty?

    [*months.map { |month, number| "#{month}  #{number}" }, "all      #{months.values.sum}",
     "first    #{line(@service.first(user))}", "last     #{line(@service.last(user))}"].join("\n")
  end

  def follow(user, author, _given)
    @service.follow(user, author)
    "#{user} follows #{@service.following(user).to_a.join(', ')}"
  end

  def unfollow(user, author, _given)
    @service.unfollow(user, author)
    "#{user} follows #{@service.following(user).to_a.join(', ')}"
  end

  def delete(user, id, _given)
    @service.delete(user, id_of(id))
    "Deleted: #{id}"
  end

  def deliver(user, id, _given)
    tweet = @service.find(user, id_of(id)) or raise TimelineError, "no tweet #{id} of #{user}"
    @service.deliver([tweet])
    "Delivered: #{id}"
  end

  def seed(given)
    seed = seed_of(given)
    seed.fill(@service)
    "#{seed.users.size} users, #{seed.follows.size} pairs of who follows whom, " \
      "#{seed.tweets.size} tweets from #{seed.users.first} to #{seed.users.last}"
  end

  def bench(given)
    seed = seed_of(given.except('rounds'))
    rounds = given['rounds'] || 300
    raise TimelineError, "--rounds #{rounds}: at least 1" unless rounds.positive?

    newest = seed.tweets.last
    unless @service.find(newest.author, newest.id)
      raise TimelineError, 'this seed was not filled in: run the command seed with the same numbers'
    end

    Bench.new(@service, @traffic, seed).run(rounds)
  end

  private

  def seed_of(given)
    name, number = given.find { |_, value| value.is_a?(Integer) && !value.positive? }
    raise TimelineError, "--#{name} #{number}: at least 1" if name

    Seed.new(**given.transform_keys(&:to_sym))
  end

  def place(given)
    place = { size: given.fetch('size', Service::PAGE_SIZE) }
    raise TimelineError, 'a page has at least one tweet' unless place[:size].positive?

    place[:start] = id_of(given['from']) if given.key?('from')
    place
  end

  def page(tweets, following)
    lines = tweets.map { |tweet| line(tweet) }
    lines = ['Nothing here yet.'] if tweets.empty?
    lines << '' << "Older ones: --from #{following}" if following
    lines.join("\n")
  end

  def line(tweet)
    written = Time.at(tweet.id.seconds).utc.strftime('%Y-%m-%d %H:%M:%S')
    "#{written} #{tweet.author}: #{tweet.text} [#{tweet.id}]"
  end

  def id_of(text)
    Alexandra::TimeUUID.parse(text)
  end

  # Time UUIDs begin in 1582; nobody tweeted before 1970.
  def moment(text)
    Time.iso8601(text).tap do |time|
      raise TimelineError, "not after 1970: #{text}" unless time.to_i.positive?
    end
  end
end

program = Alexandra::Program.new(
  'timeline.rb', 'A text that is left out is read from standard input.', Commands::TABLE,
  [Timeline::TimelineError]
)
program.main do |client, traffic|
  keyspace = Alexandra::Keyspace.new(client, Timeline::Service::KEYSPACE)
  Commands.new(Timeline::Service.new(keyspace), traffic)
end
