# frozen_string_literal: true

require_relative '../alexandra/time_uuid'

module Bloggy
  # What is shown at once, where the next page starts, and until where the one before goes.
  Page = Struct.new(:items, :following, :preceding)

  # Pages of a row of any width, forwards and back.
  #
  # A place between two pages is the name of a column: the one with which the next page begins
  # (`start`), or with which the page before ends (`finish`). It stays right whatever is written or
  # deleted meanwhile, which a page number would not.
  class Paging
    # `fetch` reads columns from a name on, which may be empty: it is called with the name, whether
    # forward, and a number. The block makes pairs of name and item of columns, and leaves out those
    # that lead nowhere.
    def initialize(fetch, &resolve)
      @fetch = fetch
      @resolve = resolve
    end

    # A page from `start` on, or until `finish`, or the first one.
    def page(size, start: nil, finish: nil)
      return first(size, start) unless finish

      items, preceding = walk(size, finish, forward: false)
      # There is no full page any more before that place: the first page is where one arrives.
      return first(size, nil) if items.size < size

      Page.new(items.reverse, beyond(finish, forward: true), preceding)
    end

    private

    def first(size, start)
      items, following = walk(size, start, forward: true)
      Page.new(items, following, start && beyond(start, forward: false))
    end

    # Items from a name on, and the name of the one behind them.
    def walk(size, start, forward:, fetch: @fetch)
      # That one is read as well, for a column that leads nowhere is no place to go to.
      found = []
      name = start ? start.bytes : ''
      while name && found.size <= size
        wanted = size + 1 - found.size
        columns = fetch.call(name, forward, wanted + 1)
        found += @resolve.call(columns.first(wanted))
        name = columns[wanted]&.name
      end
      following = Alexandra::TimeUUID.new(found[size].first) if found.size > size
      [found.first(size).map(&:last), following]
    end

    # The name of the next item behind a place, in one of the directions.
    def beyond(place, forward:)
      behind = lambda do |name, *way, count|
        # The column of that place may be gone, so it is left out by its name.
        @fetch.call(name, *way, count + 1).reject { |column| column.name == place.bytes }
                                          .first(count)
      end
      walk(0, place, forward: forward, fetch: behind).last
    end
  end
end
