# frozen_string_literal: true

require 'set'
require_relative '../../ruby/lib/alexandra/keyspace'
require_relative 'moments'

module Timeline
  # One column to write: whose it is, its name (the bytes of a time UUID), and its value.
  Item = Struct.new(:owner, :name, :value)

  # A list by time that grows for ever, cut into one row for each month of its owner. A row index,
  # the owner's row of another column family, has the months that exist.
  #
  # Both families are in descending order, so the newest is where a slice begins.
  class MonthlyRows
    # Mutations in one call. A call with a hundred thousand of them would keep the server from
    # answering others, and one that fails is repeated whole.
    BATCH = 500
    # Months that are read from the index, and from the rows, in one call.
    INDEX_PAGE = 24
    MOST_MONTHS = 12
    # Months that this process knows to be in the index, until it forgets them all.
    MOST_KNOWN = 100_000
    private_constant :BATCH, :INDEX_PAGE, :MOST_MONTHS, :MOST_KNOWN

    def initialize(keyspace, family, index)
      @keyspace = keyspace
      @family = family
      @index = index
      @known = Set.new
    end

    # Writes items. Whatever fails may have written some of them, and can be repeated.
    def write(items)
      register(items)
      stamp = @keyspace.timestamp
      apply(items) { |item| @keyspace.put(item.name, item.value, stamp) }
    end

    # Deletes items, as they were at a timestamp and before.
    def delete(items, timestamp)
      # Their months stay in the index, see `register`.
      apply(items) { |item| @keyspace.delete(timestamp, names: [item.name]) }
    end

    # A page of an owner's columns, newest first, and the name where the next one begins, if any.
    # The bounds are names of columns, which belong to the page; an empty one is an open end.
    def page(owner, size:, newest: '', oldest: '')
      found = []
      groups(owner, newest, oldest).each do |months|
        # The bounds hold in every month, for names are moments and months are not.
        bounds = { start: newest, finish: oldest, count: size + 1 - found.size }
        rows = @keyspace.slices(months.map { |month| key(owner, month) }, @family, **bounds)
        found += months.flat_map { |month| rows[key(owner, month)] }
        break if found.size > size
      end
      [found.first(size), found[size]&.name]
    end

    # The oldest column of an owner, or nil.
    def first(owner)
      months(owner, reversed: true).each do |month|
        column, = @keyspace.slice(key(owner, month), @family, reversed: true, count: 1)
        return column if column
      end
      nil
    end

    # How many columns an owner has in each month, newest month first.
    def count(owner)
      months(owner).to_h { |month| [month, @keyspace.count(key(owner, month), @family)] }
                   .reject { |_, number| number.zero? }
    end

    # One column, or nil.
    def get(owner, name)
      row = key(owner, Moments.month(name))
      @keyspace.slice(row, @family, start: name, finish: name, count: 1).first
    end

    # Those of the items that are there, as columns by owner and name, in one call.
    def find(items)
      return {} if items.empty?

      owners = items.to_h { |item| [key(item.owner, Moments.month(item.name)), item.owner] }
      found = multiget(owners.keys, items.map(&:name).uniq).flat_map do |row, columns|
        columns.map { |each| [[owners[@keyspace.text(row)], each.column.name], each.column] }
      end
      found.to_h
    end

    private

    # A month has always seven characters, so names may contain any character.
    def key(owner, month)
      "#{owner}/#{month}"
    end

    # Puts the months of items into the index, before the items: a month too many costs an empty
    # slice, one too few would hide what it has. For the same reason no month is ever taken out:
    # who finds it empty cannot know who is about to write into it.
    def register(items)
      months = items.map { |item| [item.owner, Moments.month(item.name)] }.uniq
      unknown = months.reject { |month| @known.include?(month) }
      stamp = @keyspace.timestamp
      unknown.each_slice(BATCH) do |some|
        changes = some.group_by(&:first).transform_values do |of_owner|
          { @index => of_owner.map { |_, month| @keyspace.put(month, '', stamp) } }
        end
        @keyspace.mutate(changes)
      end
      @known.clear if @known.size > MOST_KNOWN
      @known.merge(unknown)
    end

    # Columns by their names. Each row is asked for all of them; no two rows have the same.
    def multiget(keys, names)
      parent = CassandraThrift::ColumnParent.new(column_family: @family)
      named = CassandraThrift::SlicePredicate.new(column_names: names)
      @keyspace.client.multiget_slice(@keyspace.name, keys, parent, named, @keyspace.consistency)
    end

    def apply(items)
      items.each_slice(BATCH) do |some|
        rows = some.group_by { |item| key(item.owner, Moments.month(item.name)) }
        @keyspace.mutate(
          rows.transform_values { |of_row| { @family => of_row.map { |item| yield item } } }
        )
      end
    end

    # The months to read, group by group. Each group is one call: the first has one month, since
    # that is enough for most pages, and the others double, for who seldom tweets.
    def groups(owner, newest, oldest)
      near = neighbours(newest, oldest)
      return [near] if near

      Enumerator.new do |groups|
        group = []
        most = 1
        months(owner, newest: newest, oldest: oldest).each do |month|
          group << month
          next if group.size < most

          groups << group
          group = []
          most = [most * 2, MOST_MONTHS].min
        end
        groups << group unless group.empty?
      end
    end

    # The one or two months between two names; nil if there are more. Both are read in one call
    # then, without asking the index: ten minutes may well begin in the month before.
    def neighbours(newest, oldest)
      return nil if newest.empty? || oldest.empty?

      last = Moments.month(newest)
      first = Moments.month(oldest)
      return [last] if first == last

      [last, first] if Moments.following(first) == last
    end

    # The months of an owner that exist, newest first.
    def months(owner, newest: '', oldest: '', reversed: false)
      bounds = { start: newest, finish: oldest }.transform_values do |name|
        name.empty? ? '' : Moments.month(name)
      end
      @keyspace.each(owner, @index, page: INDEX_PAGE, reversed: reversed, **bounds)
               .lazy.map { |column| @keyspace.text(column.name) }
    end
  end
end
