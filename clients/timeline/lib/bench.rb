# frozen_string_literal: true

require_relative '../../ruby/lib/alexandra/figures'
require_relative 'timeline'

module Timeline
  # How long each kind of read takes, with its calls and bytes, over data that are there.
  #
  # The queries take turns, so that what else the machine does meets all of them alike. The first
  # two are the yardstick: a call that reads nothing, and one that reads one column.
  class Bench
    NAME = '%-33s '

    def initialize(service, traffic, seed, now: Seed::UNTIL)
      @service = service
      @traffic = traffic
      @seed = seed
      @now = now
      @chance = Random.new(1)
      @reader = seed.users.first
    end

    # Measures so many rounds of all queries, and returns a table.
    def run(rounds)
      costs = queries.transform_values { Alexandra::Figures::Cost.new(@traffic) }
      rounds.times do
        # Anybody of the first tenth, who have most to show.
        @reader = @seed.users[@chance.rand([@seed.users.size / 10, 1].max)]
        queries.each { |name, query| costs[name].measure(&query) }
      end
      rows = costs.map { |name, cost| format(NAME, name) + cost.row(cost.received) }
      [format(NAME, 'query') + Alexandra::Figures::HEADING, *rows].join("\n")
    end

    private

    def queries
      @queries ||= {
        'describe_version' => -> { @service.keyspace.client.describe_version },
        'one tweet' => -> { @service.find(@reader, known(@reader)) },
        'show, newest page' => -> { @service.show(@reader) },
        'show, a page in the middle' => -> { @service.show(@reader, start: known(@reader)) },
        'home, newest page' => -> { @service.home(@reader) },
        'home, gathered from all followed' => -> { gather(@reader) },
        'last ten minutes' => -> { @service.recent(@reader, now: @now) },
        'last ten minutes of home' => -> { @service.recent(@reader, now: @now, home: true) },
        'between, three months' => -> { @service.between(@reader, @now - 90 * 86_400, @now) },
        'first tweet' => -> { @service.first(@reader) },
        'count' => -> { @service.count(@reader) },
        'tweet' => -> { @service.tweet(scribe, 'One of those who are not followed.') }
      }
    end

    # The id of some tweet of a user.
    def known(user)
      @known ||= @seed.tweets.group_by(&:author)
      @known.fetch(user).sample(random: @chance).id
    end

    # What `home` would be without a delivery: the newest page of each author, of which a page is
    # left. The bench follows them by the seed, which spares a call that would be due.
    def gather(reader)
      @followed ||= @seed.follows.group_by(&:first)
      authors = @followed.fetch(reader).map(&:last)
      authors.flat_map { |author| @service.show(author).first }
             .max_by(Service::PAGE_SIZE) { |tweet| tweet.id.seconds }
    end

    # Who writes in the bench, so that the data of the seed stay as they are.
    def scribe
      'scribe'
    end
  end
end
