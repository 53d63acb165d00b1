#!/usr/bin/ruby
# frozen_string_literal: true

# Fills a small timeline and compares every answer with a plain model of the same data.
#
# Exits with 1 at the first difference and says which. Each run has users of its own, so it can be
# repeated on a server that already holds data.

require 'delegate'

begin
  require_relative '../ruby/lib/alexandra/checking'
  require_relative 'lib/model'
  require_relative 'lib/seed'
  require_relative 'lib/timeline'
rescue LoadError => e
  abort "check.rb: #{e.message}"
end

# A client that loses its connection at a chosen write: it counts down with each batch.
class Breaking < SimpleDelegator
  attr_accessor :left

  def batch_mutate(...)
    raise Thrift::TransportException, 'lost' if (self.left -= 1).negative?

    super
  end
end

# One pass over one connection: the service, the model, and users that no other pass has.
class Run < Alexandra::Pass
  include Timeline

  attr_reader :service, :model, :seed, :chance, :client

  def initialize(client, traffic, number)
    super(traffic)
    @client = client
    @service = Service.new(Alexandra::Keyspace.new(client, Service::KEYSPACE))
    @model = Model.new
    @id = Process.clock_gettime(Process::CLOCK_REALTIME, :nanosecond).to_s(16)
    @seed = Seed.new(users: 16, tweets: 240, months: 26, seed: number, prefix: "#{@id}/ü-")
    @chance = Random.new(number)
  end

  # A user of this pass.
  def user(name)
    "#{name} #{@id}"
  end

  # All pages in a row; the block reads one, from an id on.
  def pages
    all = []
    start = nil
    loop do
      page, start = yield start
      all += page
      return all unless start
    end
  end

  # Writes tweets, here and into the model.
  def publish(tweets)
    service.publish(tweets)
    model.publish(tweets)
  end

  # A tweet of any moment.
  def tweet_at(author, moment, text = 'x')
    Tweet.new(Alexandra::TimeUUID.at(moment), author, text)
  end
end

# The scenario, step by step.
module Scenario
  STEPS = %i[fill timelines homes intervals midnight years gaps counts deletions followers
             interruptions present refusals].freeze

  module_function

  # The same users and tweets, by the service and into the model.
  def fill(run)
    run.seed.follows.each { |reader, author| run.model.enter(reader, author) }
    run.model.publish(run.seed.tweets)
    run.seed.fill(run.service)
    same = Array.new(2) { Timeline::Seed.new(users: 9, tweets: 50, seed: 7).tweets }
    run.same('the same seed', same[0], same[1])
    run.same('and another', same[0] == Timeline::Seed.new(users: 9, tweets: 50).tweets, false)
  end

  # What each has written, in pages of any size.
  def timelines(run)
    run.seed.users.each do |user|
      due = run.model.show(user)
      [1, 7, 20].each do |size|
        next if size == 1 && due.size > 30

        got = run.pages { |start| run.service.show(user, start: start, size: size) }
        run.same("timeline of #{user} by #{size}", got, due)
      end
      run.same("last of #{user}", run.service.last(user), due.first)
      run.same("first of #{user}", run.service.first(user), due.last)
    end
    run.same('no timeline', run.service.show(run.user('nobody')), [[], nil])
    run.same('no first', run.service.first(run.user('nobody')), nil)
  end

  # What each has received, in pages.
  def homes(run)
    run.seed.users.each do |user|
      got = run.pages { |start| run.service.home(user, start: start, size: 17) }
      run.same("home of #{user}", got, run.model.home(user))
    end
  end

  # Intervals that begin and end anywhere, and those that do at the very moment of a tweet.
  def intervals(run)
    moments = run.seed.tweets.map { |tweet| Timeline::Model.moment(tweet.id) }
    40.times do |number|
      user = run.seed.users[number % 5]
      written = run.model.show(user)
      ends = Array.new(2) { moments.sample(random: run.chance) + (number % 3) - 1 }
      ends[number % 2] = Timeline::Model.moment(written.sample(random: run.chance).id)
      from, before = ends.sort
      next if from == before

      home = number % 4 == 3
      due = run.model.between(user, from, before, home: home)
      got = run.pages do |start|
        run.service.between(user, from, before, home: home, start: start, size: 9)
      end
      run.same("#{user} from #{from} before #{before}", got, due)
    end
  end

  # The last ten minutes five minutes after a month began: of two rows, by one call.
  def midnight(run)
    now = Timeline::Seed::UNTIL
    user = run.seed.users[0]
    run.publish([-350, -250].map { |seconds| run.tweet_at(user, now.to_r + seconds) })
    due = run.model.between(user, now.to_r - 600, now.to_r + Rational(1, 10_000_000))
    months = due.map { |tweet| Time.at(tweet.id.seconds).utc.month }.uniq
    run.same('there are tweets of both months', months, [12, 11])
    got = nil
    calls = run.calls { got, = run.service.recent(user, now: now, size: 100) }
    run.same('the last ten minutes', got, due)
    run.same('calls', calls, 1)
    paged = run.pages { |start| run.service.recent(user, now: now, start: start, size: 1) }
    run.same('the last ten minutes, one by one', paged, due)
    got = run.pages do |start|
      run.service.recent(user, now: now, home: true, start: start, size: 3)
    end
    due = run.model.between(user, now.to_r - 600, now.to_r + Rational(1, 10_000_000), home: true)
    run.same('the last ten minutes received', got, due)
    run.same('there are some', due.empty?, false)
  end

  # The moments on both sides of a year's beginning, to the step.
  def years(run)
    user = run.user('january')
    midnight = Time.utc(2010).to_r
    step = Rational(1, 10_000_000)
    tweets = [-600 - step, -600, -step, 0, step].map { |each| run.tweet_at(user, midnight + each) }
    run.publish(tweets)
    all = tweets.reverse
    run.same('all', run.service.show(user).first, all)
    run.same('at midnight', run.service.recent(user, now: midnight).first, all[1..3])
    run.same('a step before', run.service.recent(user, now: midnight - step).first, all[2..4])
    run.same('a step after', run.service.recent(user, now: midnight + step).first, all[0..2])
    run.same('one moment', run.service.between(user, midnight, midnight + step).first, [all[1]])
    run.same('counted', run.service.count(user), { '2010-01' => 2, '2009-12' => 3 })
  end

  # Months without a tweet cost nothing, however many they are.
  def gaps(run)
    user = run.user('hermit')
    reader = run.user("hermit's reader")
    run.service.follow_all([[reader, user]])
    run.model.enter(reader, user)
    run.publish([1980, 1995, 2010].map { |year| run.tweet_at(user, Time.utc(year, 3).to_r) })
    got = nil
    calls = run.calls { got = run.service.show(user) }
    run.same('thirty years', got, [run.model.show(user), nil])
    run.same('calls', calls, 3)
    calls = run.calls { got = run.service.home(reader) }
    run.same('thirty years received', got, [run.model.home(reader), nil])
    run.same('calls of a home', calls, 4)
    run.same('calls for the first', run.calls { run.service.first(user) }, 2)
    calls = run.calls do
      got = run.service.between(user, Time.utc(1981).to_r, Time.utc(2000).to_r)
    end
    run.same('nineteen years', got, [run.model.show(user)[1, 1], nil])
    run.same('calls for nineteen years', calls, 2)
  end

  # Numbers by month.
  def counts(run)
    run.seed.users.first(8).each do |user|
      run.same("counts of #{user}", run.service.count(user), run.model.count(user))
    end
    run.same('of nobody', run.service.count(run.user('nobody')), {})
  end

  # What was deleted is nowhere, and pages are as full as before.
  def deletions(run)
    run.seed.tweets.sample(40, random: run.chance).each do |tweet|
      run.service.delete(tweet.author, tweet.id)
      run.model.delete(tweet.id)
    end
    # A whole month of somebody, and references that the deletion did not reach.
    user = run.seed.users[0]
    whole = run.model.show(user).select { |tweet| Time.at(tweet.id.seconds).utc.month == 11 }
    whole.each do |tweet|
      run.service.delete(user, tweet.id)
      run.model.delete(tweet.id)
    end
    run.service.deliver(whole)
    timelines(run)
    homes(run)
    counts(run)
    reader = run.model.followers(user).first
    run.same('a full page', run.service.home(reader, size: 10).first.size, 10)
    id = whole.first.id
    run.refused('twice', Timeline::TimelineError, "no tweet #{id} of #{user}") do
      run.service.delete(user, id)
    end
    run.same('a deleted tweet', run.service.find(user, id), nil)
  end

  # Following brings the newest page; what comes after unfollowing does not come.
  def followers(run)
    author = run.seed.users[0]
    reader = run.user('newcomer')
    run.service.follow(reader, author)
    run.model.follow(reader, author)
    run.same('the first home', run.service.home(reader), [run.model.home(reader), nil])
    run.same('which is a page', run.model.home(reader).size, 20)
    run.publish([run.tweet_at(author, Time.utc(2010, 12, 2).to_r, 'while followed')])
    run.service.unfollow(reader, author)
    run.model.unfollow(reader, author)
    run.publish([run.tweet_at(author, Time.utc(2010, 12, 3).to_r, 'after that')])
    got = run.pages { |start| run.service.home(reader, start: start, size: 6) }
    run.same('after unfollowing', got, run.model.home(reader))
    run.seed.users.first(6).each do |user|
      run.same("followers of #{user}", run.service.followers(user).to_a, run.model.followers(user))
      run.same("followed by #{user}", run.service.following(user).to_a, run.model.following(user))
    end
  end

  # A write that breaks off anywhere hides no tweet, and a second delivery completes it.
  def interruptions(run)
    readers = Array.new(3) { |number| run.user("reader #{number}") }
    5.times do |writes|
      author = run.user("author #{writes}")
      run.service.follow_all(readers.map { |reader| [reader, author] })
      readers.each { |reader| run.model.enter(reader, author) }
      breaking = Breaking.new(run.client)
      breaking.left = writes
      service = Timeline::Service.new(
        Alexandra::Keyspace.new(breaking, Timeline::Service::KEYSPACE)
      )
      tweet = run.tweet_at(author, Time.utc(2005, writes + 1).to_r)
      # Index and tweets, index and references: four writes.
      broken = attempt { service.publish([tweet]) }
      run.same("broken off after #{writes}", broken, writes < 4)
      interrupted(run, tweet, writes)
    end
    readers.each do |reader|
      run.same("home of #{reader}", run.service.home(reader).first, run.model.home(reader))
    end
  end

  def interrupted(run, tweet, writes)
    got = run.service.find(tweet.author, tweet.id)
    run.same('the tweet', got, writes < 2 ? nil : tweet)
    run.same('in its timeline', run.service.show(tweet.author).first, [got].compact)
    return unless got

    run.service.deliver([tweet])
    run.model.publish([tweet])
  end

  def attempt
    yield
    false
  rescue Thrift::TransportException
    true
  end

  # What is written now, as a user does.
  def present(run)
    author = run.user('zoë')
    reader = run.user('岩')
    run.service.follow(reader, author)
    texts = ['Guten Morgen, größer!', '上善若水', '🔑' * 140]
    written = texts.map { |text| run.service.tweet(author, text) }
    run.same('texts', run.service.recent(author).first.map(&:text), texts.reverse)
    run.same('received', run.service.recent(reader, home: true).first, written.reverse)
    run.service.delete(author, written[1].id)
    run.same('without one', run.service.home(reader).first.map(&:text), texts.values_at(2, 0))
    run.same('found', run.service.find(author, written[0].id), written[0])
    ahead(run, author)
  end

  # What a machine has written whose clock is an hour ahead can be deleted all the same.
  def ahead(run, author)
    keyspace = Alexandra::Keyspace.new(run.client, Timeline::Service::KEYSPACE)
    keyspace.define_singleton_method(:timestamp) { super() + 3_600_000_000 }
    tweet = Timeline::Service.new(keyspace).tweet(author, 'from tomorrow')
    run.service.delete(author, tweet.id)
    run.same('one from tomorrow', run.service.find(author, tweet.id), nil)
  end

  def refusals(run)
    kind = Timeline::TimelineError
    user = run.user('a')
    { 'too long' => 'x' * 141, 'empty' => '' }.each do |what, text|
      why = "a tweet has 1 to 140 characters, not #{text.size}"
      run.refused(what, kind, why) { run.service.tweet(user, text) }
    end
    run.refused('no name', kind, 'a user needs a name') { run.service.tweet('', 'x') }
    run.refused('himself', kind, 'nobody follows himself') { run.service.follow(user, user) }
    why = 'the first moment must be before the second'
    run.refused('backwards', kind, why) { run.service.between(user, 2, 2) }
  end
end

# Each transport has other users and tweets.
NUMBERS = { 'buffered' => 1, 'framed' => 2 }.freeze

Alexandra::Checking.main do |server, transport|
  server.open do |client, traffic|
    Run.new(client, traffic, NUMBERS.fetch(transport)).tap do |run|
      run.steps(Scenario::STEPS) { |step| Scenario.public_send(step, run) }
    end
  end
end
