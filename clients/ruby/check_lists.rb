# frozen_string_literal: true

# The steps of check.rb for what a blog does with its lists: pages either way, tags that change,
# authors, months, numbers, and what is left when a write breaks off.

require 'delegate'
require_relative 'lib/bloggy/recount'

# The connection broke.
class Lost < StandardError; end

# A client whose batches are written row by row, of which it only reaches the first.
#
# For a batch is not one step: when it fails, some of its rows may have been written.
class Breaking < SimpleDelegator
  def initialize(client, rows, backwards)
    super(client)
    @left = rows
    @backwards = backwards
  end

  # Row by row, in one order or the other.
  def batch_mutate(keyspace, changes, consistency)
    keys = changes.keys.sort_by(&:b)
    keys.reverse! if @backwards
    keys.each do |key|
      raise Lost if @left.zero?

      @left -= 1
      super(keyspace, { key => changes[key] }, consistency)
    end
  end
end

# Changes that break off after each of their writes.
module Interruptions
  # More rows than any change of the blog writes here.
  MOST_WRITES = 8

  module_function

  # Yields a blog whose connection breaks, and what tells this time from others; then whether it
  # broke goes to `after`.
  def breaks(run, change, after)
    [false, true].product((0...MOST_WRITES).to_a).map do |backwards, rows|
      lost = begin
        change.call(Bloggy::Blog.new(Breaking.new(run.client, rows, backwards)),
                    "#{rows}-#{backwards}")
        false
      rescue Lost
        true
      end
      after.call
      lost
    end.uniq
  end

  # Each is repeated if there is still an entry, but for those that have not done anything.
  def deletions(run)
    tags = [run.name('gone'), run.name('going')]
    left = []
    slug = nil
    change = lambda do |blog, number|
      slug = Lists.posted(run, "gone-#{number}-#{run.id}", tags)
      run.blog.comment(slug, commenter: 'R', email: 'r@example.org', text: 'text')
      blog.delete_entry(slug)
    end
    breaks(run, change, -> { after_deletion(run, tags, slug, left) })
  end

  def after_deletion(run, tags, slug, left)
    tags.flat_map { |tag| Lists.slugs(run.blog.page(tag: tag)) }.uniq.each do |each|
      run.same('what is listed can be read', run.blog.entry(each).slug, each)
    end
    there = run.blog.rows('BlogEntries', [slug])[slug].any?
    run.same('with an entry go its comments', run.blog.comments(slug).items.size, there ? 1 : 0)
    if slug.start_with?('gone-0')
      left << slug
    elsif there
      run.blog.delete_entry(slug)
    end
    counts = tags.map { |tag| run.blog.count_tag(tag) }
    run.same('only those are listed', counts, [left.size] * 2)
  end

  def changes_of_tags(run)
    old, kept, new = %w[before always after].map { |tag| run.name(tag) }
    slug = Lists.posted(run, "changing-#{run.id}", [old, kept])
    change = lambda do |blog, _|
      run.blog.edit(slug, 'tags' => [old, kept])
      blog.edit(slug, 'tags' => [kept, new])
    end
    after = lambda do
      tags = run.blog.entry(slug).tags
      run.same('one or the other', [[old, kept], [kept, new]].include?(tags), true)
      listing = [old, kept, new].select { |tag| Lists.slugs(run.blog.page(tag: tag)) == [slug] }
      run.same('and listed like that', listing, tags)
      run.blog.edit(slug, 'tags' => [kept, new])
    end
    breaks(run, change, after)
  end

  def posts(run)
    tag = run.name('posted')
    change = lambda do |blog, number|
      blog.post(title: 'Title', body: 'Body', author: run.name('Arthur Dent'), tags: [tag],
                slug: "new-#{number}-#{run.id}")
    end
    after = lambda do
      Lists.slugs(run.blog.page(tag: tag, size: 100)).each do |slug|
        run.same('what is listed can be read', run.blog.entry(slug).slug, slug)
      end
    end
    breaks(run, change, after)
  end
end

# The steps.
module Lists
  KEYSPACE = Bloggy::Blog::KEYSPACE
  ONE = CassandraThrift::ConsistencyLevel::ONE
  STEPS = %i[tags_follow paging comment_pages entries_of_authors archive interrupted].freeze
  # Tags whose entries have been interrupted.
  BROKEN = %w[gone going posted].freeze

  module_function

  def slugs(page)
    page.items.map(&:slug)
  end

  def posted(run, slug, tags, author = run.name('Arthur Dent'))
    run.blog.post(title: 'Title', body: 'Body', author: author, tags: tags, slug: slug)
  end

  # Whoever changes the tags of an entry changes its lists.
  def tags_follow(run)
    old, kept, new = %w[old kept new].map { |tag| run.name(tag) }
    slug = posted(run, "tags-#{run.id}", [old, kept, old])
    run.same('each tag once', run.blog.entry(slug).tags, [old, kept])
    run.blog.edit(slug, 'title' => 'Other', 'tags' => [kept, new])
    entry = run.blog.entry(slug)
    run.same('tags and title', [entry.tags, entry.title], [[kept, new], 'Other'])
    listed = [old, kept, new].map { |tag| slugs(run.blog.page(tag: tag)) }
    run.same('the lists', listed, [[], [slug], [slug]])
    counts = [old, kept, new].map { |tag| run.blog.count_tag(tag) }
    run.same('their numbers', counts, [0, 1, 1])
    run.blog.edit(slug, 'tags' => [old])
    run.same('back again', slugs(run.blog.page(tag: old)), [slug])
    run.blog.edit(slug, 'tags' => [])
    run.same('none at all', run.blog.entry(slug).tags, [])
    run.same('still on the front page', slugs(run.blog.page).include?(slug), true)
    refused_tags(run, slug)
    run.blog.delete_entry(slug)
  end

  def refused_tags(run, slug)
    ['__notag__', 'a,b', ' ', ''].each do |tag|
      run.refused('no tag', Bloggy::BlogError) { run.blog.edit(slug, 'tags' => [tag]) }
      run.refused('no tag', Bloggy::BlogError) { posted(run, "x-#{run.id}", [tag]) }
    end
  end

  # Pages are full and the same in both directions, also where a list leads nowhere.
  def paging(run)
    tag = run.name('mixed')
    all = Array.new(11) do |number|
      slug = posted(run, "mixed-#{number}-#{run.id}", [tag])
      run.insert(tag, 'TaggedPosts', Alexandra::TimeUUID.now.bytes, 'nowhere', 1)
      # It exists, and does not belong here.
      run.insert(tag, 'TaggedPosts', Alexandra::TimeUUID.now.bytes, run.slugs[5], 1)
      slug
    end
    due = all.reverse.each_slice(3).to_a
    there_and_back(run, due, :slug) { |place| run.blog.page(tag: tag, size: 3, **place) }
    second = run.blog.listed(tag, run.blog.entry(all[-2])).first
    page = run.blog.page(tag: tag, finish: Alexandra::TimeUUID.new(second), size: 3)
    run.same('the first page is full', slugs(page), due.first)
    all.each { |slug| run.blog.delete_entry(slug) }
    run.same('an empty list', run.blog.page(tag: tag).items, [])
  end

  # So are those of comments, oldest first; an old slug begins without any.
  def comment_pages(run)
    slug = posted(run, "discussed-#{run.id}", [])
    texts = Array.new(8) { |number| "Comment #{number}" }
    texts.each_with_index do |text, number|
      run.blog.comment(slug, commenter: 'R', email: 'r@example.org', text: text,
                             written: 1_262_304_000 + number)
    end
    due = texts.each_slice(3).to_a
    there_and_back(run, due, :text) { |place| run.blog.comments(slug, size: 3, **place) }
    run.same('number of comments', run.blog.count_comments(slug), 8)
    run.blog.delete_entry(slug)
    run.same('number of none', run.blog.count_comments(slug), 0)
    late(run, slug)
  end

  # A half comment and a half entry that come too late, and then another entry.
  def late(run, slug)
    path = CassandraThrift::ColumnPath.new(
      column_family: 'Comments', super_column: Alexandra::TimeUUID.now.bytes, column: 'comment'
    )
    run.client.insert(KEYSPACE, slug, path, 'late', run.blog.keyspace.timestamp, ONE)
    run.insert(slug, 'BlogEntries', 'title', 'late', run.blog.keyspace.timestamp)
    run.same('half a comment is none', run.blog.comments(slug).items, [])
    run.same('the slug is free', posted(run, slug, []), slug)
    run.same('and has no comments', run.blog.count_comments(slug), 0)
    run.blog.delete_entry(slug)
  end

  # The pages that the block reads, forwards and back.
  def there_and_back(run, due, field)
    read = ->(**place) { yield place }
    of = ->(pages) { pages.map { |page| page.items.map(&field) } }
    pages = [read.call]
    pages << read.call(start: pages.last.following) while pages.last.following && pages.size < 20
    run.same('pages', of.call(pages), due)
    run.same('before the first', pages.first.preceding, nil)
    pages.each_cons(2) do |before, page|
      run.same('the page before', read.call(finish: page.preceding).items, before.items)
      run.same('and forth again', read.call(finish: page.preceding).following.nil?, false)
    end
    back = [pages.last]
    back << read.call(finish: back.last.preceding) while back.last.preceding && back.size < 20
    run.same('back', of.call(back), due.reverse)
  end

  # Each author has a list; those of an older version get it by a recount.
  def entries_of_authors(run)
    name = run.name('Ford')
    run.blog.save_author(name, 'email' => 'ford@example.org')
    all = Array.new(3) { |number| posted(run, "ford-#{number}-#{run.id}", [], name) }
    run.same('his entries', slugs(run.blog.by_author(name)), all.reverse)
    run.blog.save_author(name, 'bio' => 'hitchhiker')
    run.same('his number', run.blog.author(name)['numPosts'], '3')
    run.blog.delete_entry(all.pop)
    run.same('without one', slugs(run.blog.by_author(name)), all.reverse)
    numbers = [run.blog.count_author(name), run.blog.author(name)['numPosts']]
    run.same('his numbers', numbers, [2, '2'])
    recounted(run, name, all)
  end

  def recounted(run, name, all)
    path = CassandraThrift::ColumnPath.new(column_family: 'TaggedPosts')
    stamp = run.blog.keyspace.timestamp
    run.client.remove(KEYSPACE, Bloggy::Blog.author_list(name), path, stamp, ONE)
    run.blog.save_author(name, 'numPosts' => '99')
    # Three of one second, of which nothing but the entries was written.
    unlisted = Array.new(3) { |number| "unlisted-#{number}-#{run.id}" }
    unlisted.each { |slug| as_of(run, slug, 1_234_567_890, name, listed: false) }
    run.same('as it was of old', run.blog.by_author(name).items, [])
    Bloggy::Recount.new(run.blog).run
    found = slugs(run.blog.by_author(name))
    run.same('after a recount', found.first(2), all.reverse)
    run.same('those of one second', found.drop(2).sort, unlisted)
    run.same('his number', run.blog.author(name)['numPosts'], '5')
    run.same('his other attributes', run.blog.author(name)['bio'], 'hitchhiker')
  end

  # Months are parts of the front page's row.
  def archive(run)
    before = run.blog.archive
    midnight = 1_262_304_000 # 2010 begins.
    all = [-2, -1, 0, 1, (31 * 86_400) - 1, 31 * 86_400].to_h do |seconds|
      as_of(run, "#{seconds}-#{run.id}", midnight + seconds, run.name('Arthur Dent'))
      ["#{seconds}-#{run.id}", Time.at(midnight + seconds).utc.strftime('%Y-%m')]
    end
    due = all.keys.reverse.group_by { |slug| all[slug] }
    after = run.blog.archive
    more = due.to_h { |month, _| [month, after[month] - before.fetch(month, 0)] }
    run.same('more in each month', more, due.transform_values(&:size))
    run.same('newest month first', after.keys, after.keys.sort.reverse)
    due.each { |month, slugs| month_page(run, month, slugs) }
    refused_months(run, midnight)
    all.each_key { |slug| run.blog.delete_entry(slug) }
    run.same('as before', run.blog.archive, before)
  end

  def month_page(run, month, due)
    page = run.blog.of_month(month, size: 2)
    own = slugs(page) & due
    while page.following
      page = run.blog.of_month(month, start: page.following, size: 2)
      own += slugs(page) & due
    end
    run.same("entries of #{month}", own, due)
    page = run.blog.of_month(month, finish: page.preceding, size: 2) if page.preceding
    names = page.items.map { |entry| Alexandra::TimeUUID.new(run.blog.name_of(entry)) }
    run.same('none of others', names.map { |name| Bloggy::Months.of(name) }.uniq, [month])
  end

  def refused_months(run, midnight)
    %w[2010-13 2010 x].each do |month|
      run.refused('no month', Bloggy::BlogError) { run.blog.of_month(month) }
    end
    other = Alexandra::TimeUUID.at(midnight)
    run.refused('other month', Bloggy::BlogError) { run.blog.of_month('2009-12', start: other) }
  end

  # An entry as an older version wrote it, at another time: its author has no list.
  def as_of(run, slug, published, author, listed: true)
    values = { 'title' => 't', 'body' => 'b', 'author' => author, 'tags' => '',
               'pubDate' => published.to_s, 'slug' => slug }
    stamp = run.blog.keyspace.timestamp
    values.each { |name, value| run.insert(slug, 'BlogEntries', name, value.dup, stamp) }
    return unless listed

    name = Alexandra::TimeUUID.at(published).bytes
    run.insert(Bloggy::Blog::FRONT_PAGE, 'TaggedPosts', name, slug.dup, stamp)
  end

  # A change that breaks off anywhere shows nothing wrong, and can be repeated or mended.
  def interrupted(run)
    %i[deletions changes_of_tags posts].each do |change|
      broken = Interruptions.public_send(change, run)
      run.same('some broke off, some did not', broken.to_set, Set[true, false])
    end
    # Some entries are in no list any more, and some lists have what does not belong there.
    Bloggy::Recount.new(run.blog, grace: 0).run
    done = Bloggy::Recount.new(run.blog, grace: 0).run
    run.same('all is mended', [done.listed, done.unlisted, done.recounted], [0, 0, 0])
    run.same('and no number is wrong', *numbers(run))
    shown = BROKEN.map { |tag| run.blog.page(tag: run.name(tag), size: 100).items.size }
    counted = %w[before always after].chain(BROKEN).map { |tag| run.blog.count_tag(run.name(tag)) }
    run.same('as many as are shown', counted, [0, 1, 1, *shown])
    # The next run has less to recount.
    BROKEN.flat_map { |tag| slugs(run.blog.page(tag: run.name(tag), size: 100)) }.uniq
          .each { |slug| run.blog.delete_entry(slug) }
  end

  # What the authors' columns say, and what the front page does, entry by entry.
  def numbers(run)
    names = ['Zoë Müller', 'Arthur Dent', 'Ford'].map { |name| run.name(name) }
    page = run.blog.page(size: 100)
    authors = page.items.map(&:author)
    while page.following
      page = run.blog.page(start: page.following, size: 100)
      authors += page.items.map(&:author)
    end
    [names.map { |name| run.blog.author(name)['numPosts'] },
     names.map { |name| authors.count(name).to_s }]
  end
end
