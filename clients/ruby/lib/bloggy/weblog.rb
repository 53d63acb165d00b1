# frozen_string_literal: true

require_relative '../alexandra/keyspace'
require_relative '../alexandra/time_uuid'

module Bloggy
  # The blog cannot do that; the text says why.
  class BlogError < StandardError; end

  # One entry, with its author's attributes where the author is known.
  Entry = Struct.new(:slug, :title, :body, :author, :author_attributes, :tags, :published,
                     keyword_init: true)

  # What a reader said; `id` is its place in time.
  Comment = Struct.new(:id, :commenter, :email, :text, :written, keyword_init: true)

  # The blog itself, over one Thrift client: authors, entries, tags and comments as rows and
  # columns.
  #
  #   Authors       row: full name         columns: numPosts, email, twitter, bio ...
  #   BlogEntries   row: slug              columns: title, body, author, tags, pubDate, slug
  #   TaggedPosts   row: tag               column:  time UUID -> slug
  #   Comments      row: slug              super column: time UUID -> commenter, email, ...
  #
  # Row `__notag__` of TaggedPosts holds every entry: it is the front page.
  class Blog
    include Alexandra

    KEYSPACE = 'BloggyAppy'
    FRONT_PAGE = '__notag__'
    PAGE_SIZE = 10
    COMMENTS_SHOWN = 1000
    # The columns that make an entry.
    NEEDED = %w[title body author tags pubDate].freeze
    private_constant :NEEDED

    # `Hello, World!` becomes `hello-world`.
    def self.slug_of(title)
      slug = title.downcase.gsub(/[^a-z0-9]+/, '-').gsub(/\A-|-\z/, '')
      raise BlogError, 'this title gives no slug; choose one' if slug.empty?

      slug
    end

    def initialize(client)
      @keyspace = Keyspace.new(client, KEYSPACE)
    end

    # Registers an author, or changes the attributes that are given.
    def save_author(name, attributes = {})
      raise BlogError, 'an author needs a name' if name.empty?

      attributes = { 'numPosts' => author(name).fetch('numPosts', '0') }.merge(attributes)
      @keyspace.mutate(name => { 'Authors' => columns(attributes, @keyspace.timestamp) })
    end

    # The attributes of an author; none at all for one who is not known.
    def author(name)
      rows('Authors', [name])[name]
    end

    # Publishes an entry and returns its slug.
    def post(title:, body:, author:, tags: [], slug: nil)
      slug ||= Blog.slug_of(title)
      unless rows('BlogEntries', [slug])[slug].empty?
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

    # Changes some of the columns of an entry: title, body.
    def edit(slug, values)
      entry(slug)
      @keyspace.mutate(slug => { 'BlogEntries' => columns(values, @keyspace.timestamp) })
    end

    # One entry.
    def entry(slug)
      entries([slug]).first or raise BlogError, "no entry #{slug}"
    end

    # A page of entries, newest first, and the name where the next page starts, if any.
    # One slice gives the slugs, one multiget the entries, one more their authors.
    def page(tag: FRONT_PAGE, start: nil, size: PAGE_SIZE)
      found = @keyspace.slice(tag, 'TaggedPosts', start: start ? start.bytes : '',
                                                  reversed: true, count: size + 1)
      following = TimeUUID.new(found[size].name) if found.size > size
      [entries(found.first(size).map { |column| text(column.value) }), following]
    end

    # Takes an entry out of every list, with its comments.
    def delete_entry(slug)
      entry = entry(slug)
      stamp = @keyspace.timestamp
      whole_row = [@keyspace.delete(stamp)]
      changes = { slug => { 'BlogEntries' => whole_row, 'Comments' => whole_row } }
      [FRONT_PAGE, *entry.tags].each do |row|
        names = listed(row, entry)
        next if names.empty?

        (changes[row] ||= {})['TaggedPosts'] = [@keyspace.delete(stamp, names: names)]
      end
      unless entry.author_attributes.empty?
        count_post(changes, entry.author, entry.author_attributes, -1, stamp)
      end
      @keyspace.mutate(changes)
    end

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

    # The comments of an entry, oldest first.
    def comments(slug)
      @keyspace.slice(slug, 'Comments', count: COMMENTS_SHOWN).map { |each| read_comment(each) }
    end

    # Takes one comment away.
    def delete_comment(slug, id)
      if @keyspace.slice(slug, 'Comments', super_column: id.bytes, count: 1).empty?
        raise BlogError, "no comment #{id} on #{slug}"
      end

      @keyspace.remove(slug, 'Comments', super_column: id.bytes)
    end

    private

    def publish(name, entry, tags, author_attributes)
      stamp = @keyspace.timestamp
      slug = entry.fetch('slug')
      changes = { slug => { 'BlogEntries' => columns(entry, stamp) } }
      [FRONT_PAGE, *tags].each do |row|
        (changes[row] ||= {})['TaggedPosts'] = [@keyspace.put(name.bytes, slug, stamp)]
      end
      count_post(changes, entry.fetch('author'), author_attributes, +1, stamp)
      @keyspace.mutate(changes)
    end

    # Those of the slugs that have an entry, in the same order, with their authors.
    def entries(slugs)
      found = rows('BlogEntries', slugs)
      # A list can name an entry that is just being written or deleted, for several rows are never
      # one step here; and who edits what another deletes leaves half an entry.
      present = slugs.uniq.select { |slug| NEEDED.all? { |column| found[slug].key?(column) } }
      authors = rows('Authors', present.map { |slug| found[slug]['author'] })
      present.map do |slug|
        row = found[slug]
        Entry.new(slug: slug, title: row['title'], body: row['body'], author: row['author'],
                  author_attributes: authors[row['author']], published: row['pubDate'].to_i,
                  tags: row['tags'].split(',').reject(&:empty?))
      end
    end

    # Whole rows as hashes of text; an empty one for each key that has no row.
    def rows(family, keys)
      @keyspace.slices(keys, family).transform_values do |row|
        row.to_h { |each| [text(each.name), text(each.value)] }
      end
    end

    # The names under which a row of TaggedPosts lists an entry. The name's moment and the
    # publication date are the same, so one second is all to look at.
    def listed(row, entry)
      start, finish = TimeUUID.bounds(entry.published)
      @keyspace.slice(row, 'TaggedPosts', start: start.bytes, finish: finish.bytes)
               .select { |column| text(column.value) == entry.slug }
               .map(&:name)
    end

    # Counts an entry with its author. Two posts at the same moment may count as one: there were no
    # counters in those days.
    def count_post(changes, author, attributes, step, stamp)
      number = [0, attributes.fetch('numPosts', '0').to_i + step].max
      (changes[author] ||= {})['Authors'] = columns({ 'numPosts' => number.to_s }, stamp)
    end

    def read_comment(super_column)
      values = super_column.columns.to_h { |each| [text(each.name), text(each.value)] }
      Comment.new(id: TimeUUID.new(super_column.name), commenter: values['commenter'],
                  email: values['email'], text: values['comment'],
                  written: values['commentTime'].to_i)
    end

    def columns(values, stamp)
      values.map { |name, value| @keyspace.put(name, value, stamp) }
    end

    def text(bytes)
      @keyspace.text(bytes)
    end
  end
end
