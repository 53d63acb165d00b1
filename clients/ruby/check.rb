#!/usr/bin/ruby
# frozen_string_literal: true

# Runs a whole scenario against a server and compares every answer with what is due.
#
# Exits with 1 at the first difference and says which. Each run has names of its own, so it can be
# repeated on a server that already holds data; only nobody else may post at the same time.

begin
  require_relative 'lib/alexandra/checking'
  require_relative 'check_lists'
  require_relative 'lib/bloggy/weblog'
rescue LoadError => e
  abort "check.rb: #{e.message}"
end

# One pass over one connection: the client, the blog, and names that no other pass has.
class Run < Alexandra::Pass
  include CassandraThrift

  KEYSPACE = Bloggy::Blog::KEYSPACE
  ONE = ConsistencyLevel::ONE

  attr_reader :client, :blog, :slugs, :id

  def initialize(client)
    super()
    @client = client
    @blog = Bloggy::Blog.new(client)
    @id = Process.clock_gettime(Process::CLOCK_REALTIME, :nanosecond).to_s(16)
    @slugs = []
  end

  # A name of this pass.
  def name(text)
    "#{text} #{id}"
  end

  # The calls, with the arguments that are always the same here.

  def insert(key, family, name, value, timestamp)
    client.insert(KEYSPACE, key, path(family, name), value, timestamp, ONE)
  end

  def get(key, family, name)
    client.get(KEYSPACE, key, path(family, name), ONE).column
  end

  # The value of a column; nil where there is none.
  def value(key, family, name)
    get(key, family, name).value
  rescue NotFoundException
    nil
  end

  def slice(key, parent, start: '', finish: '', reversed: false, count: 100)
    client.get_slice(KEYSPACE, key, parent, range(start, finish, reversed, count), ONE)
  end

  # Only the names of a slice of columns.
  def names(key, parent, **range)
    slice(key, parent, **range).map { |each| each.column.name }
  end

  def parent(family, super_column = nil)
    ColumnParent.new(column_family: family, super_column: super_column)
  end

  def path(family, name)
    ColumnPath.new(column_family: family, column: name)
  end

  def range(start, finish, reversed, count)
    SlicePredicate.new(slice_range: SliceRange.new(start: start, finish: finish,
                                                   reversed: reversed, count: count))
  end
end

# The scenario, step by step.
module Scenario
  include CassandraThrift

  STEPS = %i[the_server time_uuids authors front_page tag_page comments edits deletions
             late_writes slices rows old_batch bytes_of_all_kinds refusals].freeze
  KEYSPACE = Run::KEYSPACE
  ONE = Run::ONE
  MARSHAL = 'org.apache.cassandra.db.marshal.'

  module_function

  # The server presents itself as the old one did.
  def the_server(run)
    known = run.client.describe_keyspaces.to_a
    run.same('describe_keyspaces', [KEYSPACE, 'system'] - known, [])
    families = run.client.describe_keyspace(KEYSPACE)
    kinds = %w[Authors Comments].map { |family| families.fetch(family)['Type'] }
    run.same('types', kinds, %w[Standard Super])
    run.same('CompareWith', families['TaggedPosts']['CompareWith'], "#{MARSHAL}TimeUUIDType")
    run.same('CompareSubcolumnsWith', families['Comments']['CompareSubcolumnsWith'],
             "#{MARSHAL}BytesType")
    run.same('version', run.client.get_string_property('version').match?(/\A\d+\./), true)
    request = AuthenticationRequest.new(credentials: { 'username' => 'u', 'password' => 'p' })
    run.same('login', run.client.login(KEYSPACE, request), nil)
  end

  # What the blog makes of moments is what the server will sort.
  def time_uuids(run)
    ascending = Array.new(1000) { Alexandra::TimeUUID.now.bytes.unpack('Nnn').reverse }
    run.same('ascending', ascending.each_cons(2).all? { |a, b| (a <=> b).negative? }, true)
    epoch = Alexandra::TimeUUID.at(0)
    run.same('the Unix epoch', epoch.to_s[0, 18], '13814000-1dd2-11b2')
    run.same('back again', Alexandra::TimeUUID.at(1_262_304_000.75).seconds, 1_262_304_000)
    run.same('its variant', epoch.bytes.getbyte(8) >> 6, 0b10)
    run.same('read and written', Alexandra::TimeUUID.parse(epoch.to_s), epoch)
    first, last = Alexandra::TimeUUID.bounds(0).map { |each| each.bytes.unpack1('N') }
    run.same('bounds', last - first, 9_999_999)
  end

  # Authors come and change.
  def authors(run)
    zoe = run.name('Zoë Müller')
    run.same('an unknown author', run.blog.author(zoe), {})
    run.blog.save_author(zoe, 'email' => 'zoe@example.org', 'bio' => 'größer als nichts')
    run.blog.save_author(run.name('Arthur Dent'), 'twitter' => 'arthur')
    run.blog.save_author(zoe, 'email' => 'z@example.org')
    due = { 'numPosts' => '0', 'email' => 'z@example.org', 'bio' => 'größer als nichts' }
    run.same('an author', run.blog.author(zoe), due)
    run.refused('a post by a stranger', Bloggy::BlogError) do
      run.blog.post(title: 't', body: 'b', author: run.name('nobody'), slug: run.name('t'))
    end
  end

  # Twelve entries: the newest ten on the first page, the other two at the top of the next.
  def front_page(run)
    12.times do |number|
      tags = [run.name('all')]
      tags << run.name('even') if number.even?
      author = run.name((number % 3).zero? ? 'Zoë Müller' : 'Arthur Dent')
      run.slugs << run.blog.post(title: "Entry #{number}", body: "Body #{number}\nñ",
                                 author: author, tags: tags, slug: "entry-#{number}-#{run.id}")
    end
    page = run.blog.page
    run.same('order of the front page', page.items.map(&:slug), run.slugs.last(10).reverse)
    newest_entry(run, page.items.first)
    following = run.blog.page(start: page.following)
    run.same('the next page', following.items.first(2).map(&:slug), run.slugs.first(2).reverse)
    run.refused('a slug that is taken', Bloggy::BlogError) do
      run.blog.post(title: 't', body: 'b', author: run.name('Arthur Dent'), slug: run.slugs[0])
    end
  end

  def newest_entry(run, newest)
    run.same('title', newest.title, 'Entry 11')
    run.same('body', newest.body, "Body 11\nñ")
    run.same('tags', newest.tags, [run.name('all')])
    run.same('author', newest.author, run.name('Arthur Dent'))
    run.same("author's attributes", newest.author_attributes,
             { 'numPosts' => '8', 'twitter' => 'arthur' })
    now = Process.clock_gettime(Process::CLOCK_REALTIME, :second)
    run.same('date', (newest.published - now).abs < 60, true)
  end

  # A tag lists its own.
  def tag_page(run)
    page = run.blog.page(tag: run.name('even'))
    due = run.slugs.values_at(10, 8, 6, 4, 2, 0)
    run.same('order of a tag', page.items.map(&:slug), due)
    run.same('ends of a tag', [page.following, page.preceding], [nil, nil])
    nothing = run.blog.page(tag: run.name('nothing'))
    run.same('a tag of nobody', nothing, Bloggy::Page.new([], nil, nil))
    count = run.client.get_count(KEYSPACE, run.name('all'), run.parent('TaggedPosts'), ONE)
    run.same('get_count of a tag', count, 12)
  end

  # Comments stand in the order of their time, whatever the order of their arrival.
  def comments(run)
    slug = run.slugs[0]
    morning = 1_262_304_000
    run.same('no comments', run.blog.comments(slug).items, [])
    [3, 1, 2].each do |minute|
      run.blog.comment(slug, commenter: "Reader #{minute}", email: 'r@example.org',
                             text: "№ #{minute}", written: morning + (minute * 60))
    end
    found = run.blog.comments(slug).items
    run.same('order of comments', found.map(&:commenter), ['Reader 1', 'Reader 2', 'Reader 3'])
    run.same('text of a comment', found[1].text, '№ 2')
    run.same('time of a comment', found[1].written, morning + 120)
    count = run.client.get_count(KEYSPACE, slug, run.parent('Comments'), ONE)
    run.same('get_count of comments', count, 3)
    inside_a_comment(run, slug, found[1].id.bytes)
    start = Alexandra::TimeUUID.bounds(morning + 60).first.bytes
    finish = Alexandra::TimeUUID.bounds(morning + 120).last.bytes
    of_two_minutes = run.slice(slug, run.parent('Comments'), start: start, finish: finish)
    run.same('comments of two minutes', of_two_minutes.map { |each| each.super_column.name },
             found.first(2).map { |comment| comment.id.bytes })
  end

  def inside_a_comment(run, slug, name)
    path = ColumnPath.new(column_family: 'Comments', super_column: name)
    whole = run.client.get(KEYSPACE, slug, path, ONE).super_column
    run.same('inside a comment', whole.columns.map(&:name),
             %w[comment commentTime commenter email])
    within = run.parent('Comments', name)
    run.same('get_count inside', run.client.get_count(KEYSPACE, slug, within, ONE), 4)
    run.same('slice inside', run.names(slug, within, start: 'commentTime', finish: 'commenter'),
             %w[commentTime commenter])
  end

  # Of two versions of a column the one with the greater timestamp counts.
  def edits(run)
    slug = run.slugs[0]
    run.blog.edit(slug, 'title' => 'Édition')
    run.same('an edit', run.blog.entry(slug).title, 'Édition')
    run.same('the rest of the entry', run.blog.entry(slug).body, "Body 0\nñ")
    stamp = run.get(slug, 'BlogEntries', 'title').timestamp
    [
      ['an older edit', 'older', -1, 'Édition'],
      ['a newer edit', 'newer', 1, 'newer'],
      ['a lesser value of the same time', 'aaaaa', 1, 'newer'],
      ['a greater value of the same time', 'zzzzz', 1, 'zzzzz']
    ].each do |what, title, step, due|
      run.insert(slug, 'BlogEntries', 'title', title, stamp + step)
      run.same(what, run.blog.entry(slug).title, due)
    end
  end

  # What is deleted is gone from everywhere.
  def deletions(run)
    slug = run.slugs[0]
    gone = run.blog.comments(slug).items[1].id
    run.blog.delete_comment(slug, gone)
    run.same('comments after one was deleted', run.blog.comments(slug).items.map(&:commenter),
             ['Reader 1', 'Reader 3'])
    run.refused('a comment deleted twice', Bloggy::BlogError) do
      run.blog.delete_comment(slug, gone)
    end
    run.blog.delete_entry(slug)
    run.refused('an entry that was deleted', Bloggy::BlogError) { run.blog.entry(slug) }
    run.same('its comments', run.blog.comments(slug).items, [])
    entries = run.blog.page(tag: run.name('even')).items
    run.same('its tag', entries.map(&:slug), run.slugs.values_at(10, 8, 6, 4, 2))
    run.same('its author', run.blog.author(run.name('Zoë Müller'))['numPosts'], '3')
    run.refused('get of a deleted column', NotFoundException) do
      run.get(slug, 'BlogEntries', 'title')
    end
  end

  # A deletion holds against writes from before it, and only against them.
  def late_writes(run)
    key = run.slugs[2]
    entries = run.parent('BlogEntries')
    title = run.path('BlogEntries', 'title')
    stamp = run.get(key, 'BlogEntries', 'title').timestamp
    run.client.remove(KEYSPACE, key, title, stamp - 1, ONE)
    run.same('a deletion of something older', run.value(key, 'BlogEntries', 'title'), 'Entry 2')
    run.client.remove(KEYSPACE, key, title, stamp, ONE)
    run.same('a deletion of the same time', run.value(key, 'BlogEntries', 'title'), nil)
    run.client.remove(KEYSPACE, key, ColumnPath.new(column_family: 'BlogEntries'), stamp + 10, ONE)
    run.insert(key, 'BlogEntries', 'title', 'late', stamp + 10)
    run.same('a write from before the deletion', run.names(key, entries), [])
    run.insert(key, 'BlogEntries', 'title', 'back', stamp + 11)
    run.same('a write from after the deletion', run.names(key, entries), ['title'])
    listed = run.blog.page(tag: run.name('even')).items
    run.same('half an entry is none', listed.map(&:slug), run.slugs.values_at(10, 8, 6, 4))
  end

  # Ranges of a row, either way, and by names.
  def slices(run)
    key = run.name('slices')
    tagged = run.parent('TaggedPosts')
    names = Array.new(25) { |number| Alexandra::TimeUUID.at(1_000_000_000 + number).bytes }
    names.reverse_each { |name| run.insert(key, 'TaggedPosts', name, 'v', 1) }
    run.same('in order of time', run.names(key, tagged), names)
    run.same('reversed', run.names(key, tagged, reversed: true, count: 3), names.last(3).reverse)
    run.same('both ends belong to it',
             run.names(key, tagged, start: names[4], finish: names[6]), names[4..6])
    run.same('reversed range',
             run.names(key, tagged, start: names[6], finish: names[4], reversed: true),
             names[4..6].reverse)
    run.same('nothing asked', run.names(key, tagged, count: 0), [])
    run.same('page by page', page_by_page(run, key, tagged), names)
    wanted = SlicePredicate.new(
      column_names: [names[20], Alexandra::TimeUUID.at(5).bytes, names[3], names[20]]
    )
    found = run.client.get_slice(KEYSPACE, key, tagged, wanted, ONE)
    run.same('by names', found.map { |each| each.column.name }, names.values_at(3, 20))
    run.client.remove(KEYSPACE, key, run.path('TaggedPosts', names[0]), 2, ONE)
    run.same('deleted ones do not count', run.names(key, tagged, count: 3), names[1..3])
  end

  def page_by_page(run, key, parent)
    pages = run.names(key, parent, count: 10)
    loop do
      page = run.names(key, parent, start: pages.last, count: 10)
      pages += page.drop(1)
      return pages if page.size < 10
    end
  end

  # Several rows at a time.
  def rows(run)
    everything = run.range('', '', false, 100)
    entries = run.parent('BlogEntries')
    keys = [run.slugs[3], run.name('missing'), run.slugs[4]]
    found = run.client.multiget_slice(KEYSPACE, keys, entries, everything, ONE)
    run.same('multiget_slice', keys.map { |key| found.fetch(key).size }, [6, 0, 6])
    run.same('no keys', run.client.multiget_slice(KEYSPACE, [], entries, everything, ONE), {})
    found = run.client.multiget(KEYSPACE, keys, run.path('BlogEntries', 'title'), ONE)
    run.same('multiget', found.fetch(keys[0]).column.value, 'Entry 3')
    run.same('multiget of nothing', found.fetch(keys[1]), ColumnOrSuperColumn.new)
    seen = every_row(run, entries, everything)
    run.same('every row once', seen.uniq.size, seen.size)
    run.same('all rows', run.slugs - seen, [run.slugs[0]])
    only = run.client.get_range_slice(KEYSPACE, entries, everything, run.slugs[5], run.slugs[5],
                                      10, ONE)
    run.same('a range of one row', only.map(&:key), [run.slugs[5]])
  end

  # The keys of all rows with columns, seven at a time.
  def every_row(run, parent, everything)
    seen = []
    start = ''
    loop do
      range = KeyRange.new(start_key: start, end_key: '', count: 7)
      page = run.client.get_range_slices(KEYSPACE, parent, everything, range, ONE)
      seen += page.reject { |row| row.columns.empty? || row.key == start }.map(&:key)
      return seen if page.size < 7

      start = page.last.key
    end
  end

  # Several families of one row, by the call that all versions have.
  def old_batch(run)
    key = run.name('batch')
    column = Column.new(name: 'x', value: '1', timestamp: 1)
    inner = %w[commenter a].map { |name| Column.new(name: name, value: '', timestamp: 1) }
    comment = SuperColumn.new(name: Alexandra::TimeUUID.at(9).bytes, columns: inner)
    batch = { 'BlogEntries' => [ColumnOrSuperColumn.new(column: column)],
              'Comments' => [ColumnOrSuperColumn.new(super_column: comment)] }
    run.client.batch_insert(KEYSPACE, key, batch, ONE)
    run.same('batch_insert', run.value(key, 'BlogEntries', 'x'), '1')
    found = run.slice(key, run.parent('Comments')).map(&:super_column)
    run.same('batch_insert of a super column', found.map { |each| each.columns.map(&:name) },
             [%w[a commenter]])
  end

  # Names and values are bytes, kept as they are; keys are text in any script.
  def bytes_of_all_kinds(run)
    key = run.name('ключ 鍵 🔑')
    every = (0..255).to_a.pack('C*')
    long = "\xFF".b * 1000
    run.insert(key, 'BlogEntries', every, every, 1)
    run.insert(key, 'BlogEntries', "\x00", '', 1)
    run.insert(key, 'BlogEntries', long, every * 2000, 1)
    run.same('order by unsigned bytes', run.names(key, run.parent('BlogEntries')),
             ["\x00", every, long])
    run.same('every byte', run.value(key, 'BlogEntries', every), every)
    run.same('an empty value', run.value(key, 'BlogEntries', "\x00"), '')
    run.same('half a megabyte', run.value(key, 'BlogEntries', long) == every * 2000, true)
    [-(2**62), 2**62].each do |stamp|
      run.insert(run.name(stamp), 'BlogEntries', every, 'v', stamp)
      run.same('a timestamp', run.get(run.name(stamp), 'BlogEntries', every).timestamp, stamp)
    end
  end

  # What is wrong is refused with a reason, and the connection lives on.
  def refusals(run)
    key = run.slugs[3]
    title = run.path('BlogEntries', 'title')
    entries = run.parent('BlogEntries')
    {
      'Keyspace Nowhere does not exist in this schema.' =>
        -> { run.client.get('Nowhere', key, title, ONE) },
      'unconfigured columnfamily Nothing' => -> { run.slice(key, run.parent('Nothing')) },
      'Key may not be empty' => -> { run.insert('', 'BlogEntries', 'x', '', 1) },
      'column name must not be empty' => -> { run.insert(key, 'BlogEntries', '', '', 1) },
      'TimeUUID should be 16 or 0 bytes (3)' => -> { run.insert(key, 'TaggedPosts', 'abc', '', 1) },
      'Invalid version for TimeUUID type.' =>
        -> { run.insert(key, 'TaggedPosts', '@' * 16, '', 1) },
      'supercolumn parameter is not optional for super CF Comments' =>
        -> { run.insert(key, 'Comments', 'x', '', 1) },
      'get_slice requires non-negative count' => -> { run.slice(key, entries, count: -1) },
      'range finish must come after start in the order of traversal' =>
        -> { run.slice(key, entries, start: 'b', finish: 'a') },
      'Consistency level zero may not be applied to read operations' =>
        -> { run.client.get(KEYSPACE, key, title, ConsistencyLevel::ZERO) }
    }.each do |why, call|
      run.refused(why, InvalidRequestException, why, &call)
      run.same('the connection after a refusal', run.value(key, 'BlogEntries', 'title'), 'Entry 3')
    end
  end
end

# Without its C part the Thrift library has one protocol only.
protocols = ['binary', *('accelerated' if Alexandra::Connection.accelerator?)]
Alexandra::Checking.main(title: 'ruby', protocols: protocols) do |server, _, protocol|
  # Lists are read and mended by hundreds of calls of few kinds: once for each transport.
  scenarios = [Scenario, *(Lists if protocol == protocols.last)]
  server.open(accelerated: protocol == 'accelerated') do |client|
    Run.new(client).tap do |run|
      scenarios.each { |all| run.steps(all::STEPS) { |step| all.public_send(step, run) } }
    end
  end
end
