# frozen_string_literal: true

require_relative '../../ruby/lib/alexandra/figures'
require_relative 'mail'

module Inbox
  # The newest page of one list, by how long the list is and by how it is kept: in one super
  # column, in one for each day or hour, or in a row of its own. It tells why the lists are cut.
  #
  # The lists have nothing to do with mail: they only stand in its column families.
  class Widths
    WIDTHS = [100, 1_000, 10_000, 100_000].freeze
    PER_DAY = 20
    BATCH = 2_000
    COUNT = Mail::PAGE_SIZE + 1
    NAME = '%<width>9d in %<kept>-20s '
    # Users and messages cannot be called so.
    SCRATCH = '/widths/'
    LIST = List.new('Terms', 'word').freeze
    # How a list can be kept.
    ONE = 'one super column'
    DAYS = 'one a day'
    HOURS = 'one an hour'
    ROW = 'a row'
    private_constant :SCRATCH, :LIST, :ONE, :DAYS, :HOURS, :ROW

    def initialize(keyspace, traffic, longest)
      @keyspace = keyspace
      @traffic = traffic
      @widths = WIDTHS.select { |width| width <= longest }
    end

    # Writes the lists, and tells of each length.
    def fill
      @widths.map do |width|
        ids(width).each_slice(BATCH) { |ids| @keyspace.mutate(lists(width, ids)) }
        "#{width} messages in a list of each kind"
      end
    end

    # The lines of a table, after reading the newest page of each list so many times, in turns.
    def run(times)
      lists = @widths.product(readers.keys)
      taken = lists.to_h { |list| [list, Alexandra::Figures::Cost.new(@traffic)] }
      times.times do
        taken.each { |(width, kept), cost| cost.measure { read(width, kept) } }
      end
      rows = taken.map do |(width, kept), cost|
        format(NAME, width: width, kept: kept) + cost.row(cost.carried)
      end
      [format('%-33s ', 'list') + Alexandra::Figures::HEADING, *rows]
    end

    private

    def read(width, kept)
      found = readers.fetch(kept).call(key(width, kept))
      raise InboxError, 'there are no lists: fill first' unless found.size == COUNT
    end

    def readers
      @readers ||= {
        ONE => lambda do |key|
          @keyspace.slice(key, 'Terms', super_column: LIST.name, reversed: true, count: COUNT)
        end,
        DAYS => ->(key) { Search.new(@keyspace, key).find([LIST], nil, COUNT) },
        HOURS => ->(key) { Search.new(@keyspace, key).find([LIST], nil, COUNT) },
        ROW => ->(key) { @keyspace.slice(key, 'Messages', reversed: true, count: COUNT) }
      }
    end

    # The lists have rows of their own, for a wide super column makes its neighbours slow as well.
    def key(width, kept)
      "#{SCRATCH}#{width}/#{kept}"
    end

    # Messages at even intervals, so many a day, and the same each time.
    def ids(width)
      first = Seed::SPAN.begin
      Array.new(width) { |number| TimeUUID.bounds(first + (number * 86_400 / PER_DAY)).first }
    end

    def lists(width, ids)
      stamp = @keyspace.timestamp
      hours = ids.map { |id| [LIST.hour(id), { id.bytes => '' }] }
      days = hours.map { |name, columns| [name.split('T').first, columns] }
      supers = { ONE => [[LIST.name, ids.to_h { |id| [id.bytes, ''] }]], DAYS => days,
                 HOURS => hours }
      changes = supers.to_h do |kept, lists|
        written = lists.map { |name, columns| @keyspace.put_super(name, columns, stamp) }
        [key(width, kept), { 'Terms' => written }]
      end
      # The names of Messages are text.
      row = ids.map { |id| @keyspace.put(format('%020d', Inbox.place(id).first), '', stamp) }
      changes.merge(key(width, ROW) => { 'Messages' => row })
    end
  end
end
