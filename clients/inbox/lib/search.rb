# frozen_string_literal: true

require_relative '../../ruby/lib/alexandra/keyspace'
require_relative 'message'

module Inbox
  # A list of messages that a user's row holds, cut into hours: those with a word (Terms), or those
  # exchanged with a person (Interactions), of which `direction` may select the half.
  List = Struct.new(:family, :name, :direction) do
    def takes?(value)
      direction.nil? || value == direction
    end

    # The super column of the hour of a message.
    def hour(id)
      "#{name}/#{Hour.of(id)}"
    end
  end

  # Searches in the row of one user. All of them find ids, newest first.
  class Search
    include CassandraThrift

    # Directions that `from:ada`, `to:ada` and `with:ada` select.
    PEOPLE = { 'from' => 'from', 'to' => 'to', 'with' => nil }.freeze

    # The lists whose common messages a query wants: `ring from:ada` are two.
    def self.lists(query)
      lists = query.split.flat_map do |part|
        field, name = part.split(':', 2)
        next [person(name, PEOPLE[field])] if PEOPLE.key?(field) && !name.to_s.empty?

        Words.of(part).map { |word| List.new('Terms', word) }
      end
      raise InboxError, 'no word to search for' if lists.empty?

      lists.uniq
    end

    def self.person(name, direction = nil)
      List.new('Interactions', name, direction)
    end

    # So many candidates of one list are looked up at once in the others.
    def initialize(keyspace, user, candidates: 100)
      @keyspace = keyspace
      @user = user
      @candidates = candidates
    end

    # The newest `count` messages that stand in all of the lists, from `start` on.
    def find(lists, start, count)
      return walk(lists.first, start, count).first(count) if lists.one?

      walks = lists.to_h do |list|
        [list, walk(list, start, @candidates).each_slice(@candidates)]
      end
      # The list that reaches back furthest with its first candidates is the rarest: it has the
      # fewest candidates for the others to refuse.
      rarest = lists.min_by { |list| rarity(walks[list]) }
      among(walks[rarest], lists - [rarest], count)
    end

    private

    # The ids of one list, read as they are taken: `page` hours at once. No hour that is there is
    # empty, so as many ids as hours are one call, however rare the word is; and as hours are
    # bounded, so is what is read of a frequent one.
    def walk(list, start, page)
      return enum_for(__method__, list, start, page) unless block_given?

      newest = start ? list.hour(start) : "#{list.name}/~"
      bounds = { start: newest, finish: "#{list.name}/", reversed: true, page: page }
      @keyspace.each(@user, list.family, **bounds) do |hour|
        hour.columns.reverse_each do |column|
          next unless list.takes?(column.value)

          id = TimeUUID.new(column.name)
          yield id unless start && newer?(id, start)
        end
      end
    end

    def newer?(one, other)
      (Inbox.place(one) <=> Inbox.place(other)).positive?
    end

    # Sorts lists by the first candidates of their walks: those that end there, then the others.
    def rarity(walk)
      first = walk.peek
      first.size < @candidates ? [1, first.size] : [2, *Inbox.place(first.last)]
    rescue StopIteration
      [0]
    end

    def among(walk, others, count)
      found = []
      # The loop ends with the walk.
      loop do
        candidates = walk.next
        found.concat(held(others, candidates))
        break if found.size >= count
      end
      found.first(count)
    end

    # Those of the ids that all of the lists hold: one call for each column family, by the names of
    # the hours in question.
    def held(lists, ids)
      lists.group_by(&:family).each do |family, of_family|
        break if ids.empty?

        names = of_family.flat_map { |list| ids.map { |id| list.hour(id) } }.uniq
        hours = named(family, names).to_h { |hour| [@keyspace.text(hour.name), hour.columns] }
        of_family.each { |list| ids = in_hours(list, ids, hours) }
      end
      ids
    end

    def in_hours(list, ids, hours)
      names = ids.map { |id| list.hour(id) }.uniq
      columns = names.flat_map { |name| hours.fetch(name, []) }
      taken = columns.select { |column| list.takes?(column.value) }
      ids & taken.map { |column| TimeUUID.new(column.name) }
    end

    def named(family, names)
      parent = ColumnParent.new(column_family: family)
      wanted = SlicePredicate.new(column_names: names)
      @keyspace.client.get_slice(@keyspace.name, @user, parent, wanted, @keyspace.consistency)
               .map(&:super_column)
    end
  end
end
