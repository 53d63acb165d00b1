# frozen_string_literal: true

require_relative 'weblog'

module Bloggy
  # Mends what interrupted, lost and concurrent writes leave, and lists what older versions wrote.
  #
  # It reads all rows of the keyspace in ranges, and takes the entries for the truth: what is in
  # their rows belongs into the lists and is counted with its author.
  class Recount
    include CassandraThrift

    # What was read and what was mended.
    Report = Struct.new(:entries, :authors, :listed, :unlisted, :recounted)

    # What is not older is left alone: somebody may be about to write the rest of it.
    GRACE_SECONDS = 3600
    PAGE = 100
    private_constant :PAGE

    def initialize(blog, grace: GRACE_SECONDS)
      @blog = blog
      @keyspace = blog.keyspace
      @grace = grace
    end

    # Lists every entry where it belongs and nothing else, and corrects every numPosts. All is
    # written as of the time before it was read, so that what others write meanwhile holds.
    def run
      @stamp = @keyspace.timestamp
      @report = Report.new(0, 0, 0, 0, 0)
      posts = list_entries
      first = @keyspace.between(count: 1)
      rows('TaggedPosts', first) { |row, _| @report.unlisted += unlist(row) }
      rows('Authors', first) { |author, _| correct(author, posts[author].to_s) }
      @report
    end

    private

    # Puts all entries into their lists, and returns how many each author has.
    def list_entries
      posts = Hash.new(0)
      needed = SlicePredicate.new(column_names: Blog::NEEDED.map(&:b))
      rows('BlogEntries', needed) do |slug, columns|
        entry = Entry.of(slug, @blog.text_of(columns), {}) or next

        @report.entries += 1
        @report.listed += list(entry)
        posts[entry.author] += 1
      end
      posts
    end

    def correct(author, number)
      @report.authors += 1
      return if @blog.author(author)['numPosts'] == number

      @report.recounted += 1
      changed = @blog.columns_of({ 'numPosts' => number }, @stamp)
      @keyspace.mutate(author => { 'Authors' => changed })
    end

    # Yields keys and columns of all rows that have some, and reads them a page at a time.
    def rows(family, predicate)
      parent = ColumnParent.new(column_family: family)
      start = ''
      loop do
        range = KeyRange.new(start_key: start, end_key: '', count: PAGE)
        found = @keyspace.client.get_range_slices(@keyspace.name, parent, predicate, range,
                                                  @keyspace.consistency)
        found.each do |each|
          key = @keyspace.text(each.key)
          # A page begins with the last row of the one before, and deleted rows have no columns.
          yield key, each.columns.map(&:column) unless key == start || each.columns.empty?
        end
        return if found.size < PAGE

        start = @keyspace.text(found.last.key)
      end
    end

    # Puts an entry into those of its lists that do not have it; returns how many these were.
    def list(entry)
      missing = entry.lists.uniq.select { |row| @blog.listed(row, entry).empty? }
      return 0 if missing.empty?

      listed = { 'TaggedPosts' => [@keyspace.put(@blog.name_of(entry), entry.slug, @stamp)] }
      @keyspace.mutate(missing.to_h { |row| [row, listed] })
      missing.size
    end

    # Takes out of a list what does not belong there; returns how much that was.
    def unlist(row)
      late = (Time.now - @grace).to_r * 1_000_000
      @keyspace.each(row, 'TaggedPosts', page: PAGE).each_slice(PAGE).sum do |some|
        belonging = belonging(row, some.map { |column| slug(column) }.uniq)
        wrong = some.reject { |column| belonging.include?(slug(column)) || column.timestamp > late }
        # By its own timestamp, so that a name that is written anew meanwhile stays.
        gone = wrong.map { |column| @keyspace.delete(column.timestamp, names: [column.name]) }
        @keyspace.mutate(row => { 'TaggedPosts' => gone }) unless gone.empty?
        gone.size
      end
    end

    # Those of the slugs whose entry belongs into a list.
    def belonging(row, slugs)
      rows = @blog.rows('BlogEntries', slugs.reject(&:empty?))
      entries = rows.filter_map { |slug, columns| Entry.of(slug, columns, {}) }
      entries.select { |entry| entry.lists.include?(row) }.map(&:slug)
    end

    def slug(column)
      @keyspace.text(column.value).scrub
    end
  end
end
