# frozen_string_literal: true

require 'digest'
require_relative '../alexandra/keyspace'
require_relative '../alexandra/time_uuid'
require_relative 'months'
require_relative 'paging'

module Bloggy
  # The blog cannot do that; the text says why.
  class BlogError < StandardError; end

  # One entry, with its author's attributes where the author is known.
  Entry = Struct.new(:slug, :title, :body, :author, :author_attributes, :tags, :published,
                     keyword_init: true) do
    # The entry of a row; nil where it is not a whole one.
    def self.of(slug, row, author_attributes)
      # Who edits what another deletes leaves half an entry.
      return nil unless Blog::NEEDED.all? { |column| row.key?(column) }

      new(slug: slug, title: row['title'], body: row['body'], author: row['author'],
          author_attributes: author_attributes, published: row['pubDate'].to_i,
          tags: row['tags'].split(',').reject(&:empty?))
    end

    # The rows of TaggedPosts in which it belongs.
    def lists
      [Blog::FRONT_PAGE, Blog.author_list(author), *tags]
    end
  end

  # What a reader said; `id` is its place in time.
  Comment = Struct.new(:id, :commenter, :email, :text, :written, keyword_init: true)

  # The blog itself, over one Thrift client: authors, entries, tags and comments as rows and
  # columns.
  #
  #   Authors       row: full name         columns: numPosts, email, twitter, bio ...
  #   BlogEntries   row: slug              columns: title, body, author, tags, pubDate, slug
  #   TaggedPosts   row: a list            column:  time UUID -> slug
  #   Comments      row: slug              super column: time UUID -> commenter, email, ...
  #
  # The lists are one for each tag, one for each author (`__author__:` and the name), and one with
  # every entry, the front page: `__notag__`.
  #
  # Several rows are never written in one step. What counts is the row of the entry: who reads a
  # list leaves out what has no entry, or one that does not belong there, and `Recount` mends the
  # lists.
  class Blog
    include Alexandra

    KEYSPACE = 'BloggyAppy'
    FRONT_PAGE = '__notag__'
    PAGE_SIZE = 10
    COMMENTS_PAGE_SIZE = 50
    # The columns that make an entry, and those that make a comment.
    NEEDED = %w[title body author tags pubDate].freeze
    COMMENT = %w[commenter email comment commentTime].freeze
    # Lists that are not those of a tag begin like this.
    RESERVED = '__'
    WIDE = 1000
    private_constant :COMMENT, :RESERVED, :WIDE

    # The row of TaggedPosts that lists the entries of an author.
    def self.author_list(name)
      "__author__:#{name}"
    end

    # `Hello, World!` becomes `hello-world`.
    def self.slug_of(title)
      slug = title.downcase.gsub(/[^a-z0-9]+/, '-').gsub(/\A-|-\z/, '')
      raise BlogError, 'this title gives no slug; choose one' if slug.empty?

      slug
    end

    attr_reader :keyspace

    def initialize(client)
      @keyspace = Keyspace.new(client, KEYSPACE)
    end

    # Authors

    # Registers an author, or changes the attributes that are given.
    def save_author(name, attributes = {})
      raise BlogError, 'an author needs a name' if name.empty?

      attributes = { 'numPosts' => '0' }.merge(attributes) if author(name).empty?
      @keyspace.mutate(name => { 'Authors' => columns_of(attributes, @keyspace.timestamp) })
    end

    # The attributes of an author; none at all for one who is not known.
    def author(name)
      rows('Authors', [name])[name]
    end

    # Entries

    # Publishes an entry and returns its slug.
    def post(title:, body:, author:, tags: [], slug: nil)
      slug ||= Blog.slug_of(title)
      tags = checked(tags)
      if entries([slug]).any?
        raise BlogError, "there is an entry #{slug} already; give this one another slug"
      end

      attributes = author(author)
      raise BlogError, "no author #{author}; register first" if attributes.empty?

      name = TimeUUID.now
      entry = { 'title' => title, 'body' => body, 'author' => author, 'tags' => tags.join(','),
                'pubDate' => name.seconds.to_s, 'slug' => slug }
      publish(name, entry, tags, attributes)
      slug
    end

    # Changes some of the columns of an entry: title, body, and tags, which is a list.
    #
    # The new tags list the entry first and the old ones forget it last, so that it is in all of its
    # lists at any time. An old one that is not reached is seen by nobody.
    def edit(slug, values)
      entry = entry(slug)
      stamp = @keyspace.timestamp
      tags = checked(values['tags']) if values.key?('tags')
      enlist(entry, tags, stamp) if tags
      values = values.merge('tags' => tags.join(',')) if tags
      @keyspace.mutate(slug => { 'BlogEntries' => columns_of(values, stamp) })
      unlist(entry, entry.tags - tags, stamp) if tags
    end

    # One entry.
    def entry(slug)
      entries([slug]).first or raise BlogError, "no entry #{slug}"
    end

    # Takes an entry out of every list, and then deletes it with its comments.
    #
    # In this order, for only while there is an entry it is known where it is listed: a deletion
    # that breaks off can be repeated. The entry and its comments have one key, and go at once.
    def delete_entry(slug)
      entry = entry(slug)
      stamp = @keyspace.timestamp
      unlist(entry, entry.lists, stamp)
      whole_row = [@keyspace.delete(stamp)]
      changes = { slug => { 'BlogEntries' => whole_row, 'Comments' => whole_row } }
      unless entry.author_attributes.empty?
        count_post(changes, entry.author, entry.author_attributes, -1, stamp)
      end
      @keyspace.mutate(changes)
    end

    # Lists of entries, newest first. A page takes three calls: one slice gives the slugs, one
    # multiget the entries, one more their authors. Unless it is the first page, as many find the
    # neighbour on its other side. `place` is `start`, `finish` or neither.

    # A page of the entries of a tag, or of all.
    def page(tag: FRONT_PAGE, size: PAGE_SIZE, **place)
      list(tag).page(size, **place)
    end

    # A page of the entries of an author. Those of an older version of this program are listed after
    # a `Recount`.
    def by_author(name, size: PAGE_SIZE, **place)
      list(Blog.author_list(name)).page(size, **place)
    end

    # A page of the entries of a month: a part of the front page's row.
    def of_month(month, size: PAGE_SIZE, **place)
      low, high = bounds(month)
      other = place.values.compact.find { |name| Months.of(name) != month }
      raise BlogError, "#{other} is not of #{month}" if other

      list(FRONT_PAGE, low, high).page(size, **place)
    end

    # The months in which there are entries, newest first, with their numbers. It reads the names of
    # all entries, a thousand at a time: there is no `get_count` of a part of a row.
    def archive
      @keyspace.each(FRONT_PAGE, 'TaggedPosts', page: WIDE, reversed: true)
               .map { |column| Months.of(TimeUUID.new(column.name)) }.tally
    end

    # Comments

    # Adds a comment, now or at a given Unix time, and returns its id.
    def comment(slug, commenter:, email:, text:, written: nil)
      entry(slug)
      name = written ? TimeUUID.at(written) : TimeUUID.now
      values = { 'commenter' => commenter, 'email' => email, 'comment' => text,
                 'commentTime' => name.seconds.to_s }
      added = @keyspace.put_super(name.bytes, values, @keyspace.timestamp)
      @keyspace.mutate(slug => { 'Comments' => [added] })
      name
    end

    # A page of the comments of an entry, oldest first.
    def comments(slug, size: COMMENTS_PAGE_SIZE, **place)
      fetch = lambda do |name, forward, count|
        @keyspace.slice(slug, 'Comments', start: name, reversed: !forward, count: count)
      end
      Paging.new(fetch) { |columns| read_comments(columns) }.page(size, **place)
    end

    # Takes one comment away.
    def delete_comment(slug, id)
      if @keyspace.slice(slug, 'Comments', super_column: id.bytes, count: 1).empty?
        raise BlogError, "no comment #{id} on #{slug}"
      end

      @keyspace.remove(slug, 'Comments', super_column: id.bytes)
    end

    # Numbers. The server reads a whole row to count it. What it counts is there, which a number in
    # a column only tells if no two have changed it at a time.

    # How many entries a tag lists, or the front page.
    def count_tag(tag)
      @keyspace.count(tag, 'TaggedPosts')
    end

    # How many entries an author's list has. Compare numPosts.
    def count_author(name)
      @keyspace.count(Blog.author_list(name), 'TaggedPosts')
    end

    # How many comments an entry has.
    def count_comments(slug)
      @keyspace.count(slug, 'Comments')
    end

    # What these share with `Recount`

    # Whole rows as hashes of text; an empty one for each key that has no row.
    def rows(family, keys)
      @keyspace.slices(keys, family).transform_values { |columns| text_of(columns) }
    end

    # Columns as a hash of text.
    def text_of(columns)
      columns.to_h { |each| [text(each.name), text(each.value)] }
    end

    # The mutations that write texts.
    def columns_of(values, stamp)
      values.map { |name, value| @keyspace.put(name, value, stamp) }
    end

    # The names under which a list has an entry. The name's moment and the publication date are the
    # same, so one second is all to look at.
    def listed(row, entry)
      start, finish = TimeUUID.bounds(entry.published).map(&:bytes)
      @keyspace.each(row, 'TaggedPosts', start: start, finish: finish, page: WIDE)
               .select { |column| text(column.value) == entry.slug }
               .map(&:name)
    end

    # The name under which an entry is listed, and is to be listed elsewhere. For one that is in no
    # list this is always the same, and not that of another entry.
    def name_of(entry)
      found = listed(FRONT_PAGE, entry).first
      return found if found

      tail = Digest::MD5.digest(entry.slug)[0, 8]
      tail.setbyte(0, (tail.getbyte(0) & 0x3F) | 0x80)
      TimeUUID.at(entry.published).bytes[0, 8] + tail
    end

    private

    def publish(name, entry, tags, author_attributes)
      stamp = @keyspace.timestamp
      slug = entry.fetch('slug')
      changes = { slug => { 'BlogEntries' => columns_of(entry, stamp) } }
      # Comments that came too late, on an entry of this slug that has been deleted.
      late = @keyspace.slice(slug, 'Comments', count: 1)
      changes[slug]['Comments'] = [@keyspace.delete(stamp)] if late.any?
      [FRONT_PAGE, Blog.author_list(entry.fetch('author')), *tags].each do |row|
        (changes[row] ||= {})['TaggedPosts'] = [@keyspace.put(name.bytes, slug, stamp)]
      end
      count_post(changes, entry.fetch('author'), author_attributes, +1, stamp)
      @keyspace.mutate(changes)
    end

    # Those of the slugs that have an entry, in the same order, with their authors.
    def entries(slugs)
      found = rows('BlogEntries', slugs)
      # A list can name an entry that is just being written or deleted.
      present = slugs.uniq.select { |slug| NEEDED.all? { |column| found[slug].key?(column) } }
      authors = rows('Authors', present.map { |slug| found[slug]['author'] })
      present.map { |slug| Entry.of(slug, found[slug], authors[found[slug]['author']]) }
    end

    # A list, which may be bounded by two names.
    def list(row, low = '', high = '')
      fetch = lambda do |name, forward, count|
        first, last = forward ? [high, low] : [low, high]
        @keyspace.slice(row, 'TaggedPosts', start: name.empty? ? first : name, finish: last,
                                            reversed: forward, count: count)
      end
      Paging.new(fetch) do |columns|
        found = entries(columns.map { |column| text(column.value) })
                .select { |entry| entry.lists.include?(row) }.to_h { |entry| [entry.slug, entry] }
        columns.map { |column| [column.name, found[text(column.value)]] }.select(&:last)
      end
    end

    def bounds(month)
      Months.bounds(month)
    rescue ArgumentError => e
      raise BlogError, e.message
    end

    # Tags that can be stored and read again, each once.
    def checked(tags)
      tags.each do |tag|
        raise BlogError, "not a tag: \"#{tag}\"" if tag.strip.empty? || tag.include?(',')
        raise BlogError, "a tag may not begin with __: #{tag}" if tag.start_with?(RESERVED)
      end
      tags.uniq
    end

    # Puts an entry into some lists.
    def enlist(entry, rows, stamp)
      listed = { 'TaggedPosts' => [@keyspace.put(name_of(entry), entry.slug, stamp)] }
      @keyspace.mutate(rows.to_h { |row| [row, listed] })
    end

    # Takes an entry out of some lists.
    def unlist(entry, rows, stamp)
      names = rows.to_h { |row| [row, listed(row, entry)] }.reject { |_, found| found.empty? }
      @keyspace.mutate(names.transform_values do |found|
        { 'TaggedPosts' => [@keyspace.delete(stamp, names: found)] }
      end)
    end

    # Counts an entry with its author. Two posts at the same moment may count as one: there were no
    # counters in those days.
    def count_post(changes, author, attributes, step, stamp)
      number = [0, attributes.fetch('numPosts', '0').to_i + step].max
      (changes[author] ||= {})['Authors'] = columns_of({ 'numPosts' => number.to_s }, stamp)
    end

    # Pairs of name and comment, of whole ones.
    def read_comments(super_columns)
      super_columns.filter_map do |each|
        values = text_of(each.columns)
        next unless COMMENT.all? { |column| values.key?(column) }

        [each.name, Comment.new(id: TimeUUID.new(each.name), commenter: values['commenter'],
                                email: values['email'], text: values['comment'],
                                written: values['commentTime'].to_i)]
      end
    end

    def text(bytes)
      @keyspace.text(bytes)
    end
  end
end
