# frozen_string_literal: true

require_relative 'bindings'

module Alexandra
  # One keyspace over one Thrift client: the calls that applications make most, in short.
  #
  # Row keys are text; names and values of columns are bytes. What is not here is a call of
  # `client`.
  class Keyspace
    include CassandraThrift

    # As many columns as a slice returns if it is not told otherwise.
    WHOLE_ROW = 100

    attr_reader :client, :name, :consistency

    def initialize(client, name, consistency: ConsistencyLevel::ONE)
      @client = client
      @name = name
      @consistency = consistency
      @last_timestamp = 0
    end

    # Microseconds; never the same twice, so that of two changes the later one wins.
    def timestamp
      now = Process.clock_gettime(Process::CLOCK_REALTIME, :microsecond)
      @last_timestamp = [now, @last_timestamp + 1].max
    end

    # Writes and deletes in several rows: `{ key => { column family => [mutation] } }`.
    # `put`, `put_super` and `delete` make mutations. All of one row are seen at once or not at all;
    # several rows are never one step.
    def mutate(changes)
      @client.batch_mutate(@name, changes, @consistency)
    end

    # The value of one column; nil where there is none.
    def get(key, family, column, super_column: nil)
      path = ColumnPath.new(column_family: family, super_column: super_column&.b,
                            column: column&.b)
      @client.get(@name, key, path, @consistency).column.value
    rescue NotFoundException
      nil
    end

    # Columns of one row, or of one of its super columns, in their order: Column, or SuperColumn
    # where the family has such and none is named. The bounds are those of `between`.
    def slice(key, family, super_column: nil, **bounds)
      parent = ColumnParent.new(column_family: family, super_column: super_column&.b)
      found = @client.get_slice(@name, key, parent, between(**bounds), @consistency)
      found.map { |each| either(each) }
    end

    # The same for several rows in one call; an empty list for a key that has no row.
    def slices(keys, family, super_column: nil, **bounds)
      return {} if keys.empty?

      parent = ColumnParent.new(column_family: family, super_column: super_column&.b)
      found = @client.multiget_slice(@name, keys.uniq, parent, between(**bounds), @consistency)
      found.to_h { |key, columns| [text(key), columns.map { |each| either(each) }] }
    end

    # Yields the columns of a row of any width, and reads them a page at a time.
    def each(key, family, start: '', page: WHOLE_ROW, **bounds)
      unless block_given?
        return enum_for(__method__, key, family, start: start, page: page, **bounds)
      end

      while start
        # A page starts with the first column that the one before left, or where that was.
        found = slice(key, family, start: start, count: page + 1, **bounds)
        found.first(page).each { |column| yield column }
        start = found[page]&.name
      end
    end

    # How many columns a row has. The server reads them all to count them.
    def count(key, family, super_column: nil)
      parent = ColumnParent.new(column_family: family, super_column: super_column&.b)
      @client.get_count(@name, key, parent, @consistency)
    end

    # Deletes a row, one of its super columns, or one column.
    def remove(key, family, column: nil, super_column: nil)
      path = ColumnPath.new(column_family: family, super_column: super_column&.b,
                            column: column&.b)
      @client.remove(@name, key, path, timestamp, @consistency)
    end

    # The predicate of a slice: both bounds belong to it, and an empty one is an open end. A
    # reversed slice begins with its greatest name, so `start` is the greater bound.
    def between(start: '', finish: '', reversed: false, count: WHOLE_ROW)
      range = SliceRange.new(start: start.b, finish: finish.b, reversed: reversed, count: count)
      SlicePredicate.new(slice_range: range)
    end

    # The mutation that writes one column.
    def put(name, value, timestamp)
      written = column(name, value, timestamp)
      Mutation.new(column_or_supercolumn: ColumnOrSuperColumn.new(column: written))
    end

    # The mutation that writes columns, `{ name => value }`, into one super column.
    def put_super(name, columns, timestamp)
      inner = columns.map { |inner_name, value| column(inner_name, value, timestamp) }
      written = SuperColumn.new(name: name.b, columns: inner)
      Mutation.new(column_or_supercolumn: ColumnOrSuperColumn.new(super_column: written))
    end

    # The mutation that deletes what is as old or older: a row, a super column, or the named.
    def delete(timestamp, names: nil, super_column: nil)
      named = names && SlicePredicate.new(column_names: names.map(&:b))
      deletion = Deletion.new(timestamp: timestamp, super_column: super_column&.b,
                              predicate: named)
      Mutation.new(deletion: deletion)
    end

    # Names and values are bytes on the wire; this says that some are text.
    def text(bytes)
      bytes.dup.force_encoding(Encoding::UTF_8)
    end

    private

    # Copies, for the library takes away the encoding of what it writes as bytes: the same string
    # could not be a row key afterwards.
    def column(name, value, timestamp)
      Column.new(name: name.b, value: value.b, timestamp: timestamp)
    end

    def either(found)
      found.column || found.super_column
    end
  end
end
