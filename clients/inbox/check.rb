#!/usr/bin/ruby
# frozen_string_literal: true

# Fills an inbox with a little mail and compares every answer with a plain list of the same mail.
#
# Exits with 1 at the first difference and says which. Each run has users of its own, so it can be
# repeated on a server that already holds data.

require 'open3'

begin
  require_relative '../ruby/lib/alexandra/checking'
  require_relative 'lib/mail'
  require_relative 'lib/model'
  require_relative 'lib/seed'
rescue LoadError => e
  abort "check.rb: #{e.message}"
end

# One pass over one connection, with users that no other pass has.
class Run < Alexandra::Pass
  include Inbox

  STEPS = %i[deliveries mailboxes threads messages words several_words people costs letters
             deletions late_deliveries half_deletions arrivals refusals].freeze
  # The program itself takes longer than all others, so each transport has a half of it.
  OF_TRANSPORT = { 'buffered' => :measurements, 'framed' => :commands }.freeze
  FAMILIES = %w[Mailbox Threads Terms Interactions].freeze
  # Of a page, so that there are several: of a list, and of a thread.
  SIZE = 7
  FEW = 3

  # `way` are the options with which `inbox.rb` comes to the same server.
  def initialize(client, traffic, way)
    super(traffic)
    @mail = Mail.new(client)
    @way = way
    suffix = "@#{Process.clock_gettime(Process::CLOCK_REALTIME, :nanosecond).to_s(16)}"
    # Several messages an hour, and the end of a month.
    @seed = Seed.new(messages: 250, users: 20, span: 1_291_130_000..1_291_190_000, suffix: suffix)
    @model = Model.new(@seed.each.to_a)
    # Two who have much mail, and one who has little.
    @some = [*@seed.users.first(2), @seed.users.last]
  end

  def deliveries
    @mail.deliver([@model.messages.first])
    @model.messages.drop(1).each_slice(25) { |messages| @mail.deliver(messages) }
    # A batch that is repeated changes nothing.
    @mail.deliver(@model.messages.first(25))
  end

  def mailboxes
    @seed.users.each { |user| mailbox(user) }
    same('nobody', @mail.mailbox('nobody').items, [])
  end

  def threads
    @some.each do |user|
      @model.threads(user).each { |thread| conversation(user, thread) }
    end
    longest = @model.messages.map(&:thread).tally.max_by(&:last)
    same('a thread of several pages', longest.last > FEW, true)
  end

  def messages
    @model.messages.sample(30, random: Random.new(1)).each do |message|
      same('message', @mail.message(message.id), message)
    end
  end

  def words
    ranks = [0, 5, 30, 300, 3000]
    @some.product(ranks.map { |rank| Seed.word(rank) }).each { |user, word| search(user, [word]) }
    rare = @model.mailbox(@some.first).last.words.last
    search(@some.first, [rare])
    search(@some.first, %w[absent])
    # A part of a word is none.
    search(@some.first, [Seed.word(300)[0..2]])
  end

  def several_words
    frequent = Array.new(4) { |rank| Seed.word(rank) }
    @some.each do |user|
      frequent.combination(2).each { |words| search(user, words) }
      search(user, frequent)
      search(user, [frequent.first, Seed.word(100)])
      search(user, [frequent.first, 'absent'])
    end
    few_candidates(@some.first, frequent)
  end

  # Long lists are walked in several rounds.
  def few_candidates(user, words)
    search = Search.new(@mail.keyspace, user, candidates: 5)
    words.combination(3) do |three|
      found = search.find(Search.lists(three.join(' ')), nil, 1000)
      same("few candidates of #{three}", found, @model.search(user, three).map(&:id))
    end
  end

  def people
    word = Seed.word(0)
    @some.product(@seed.users).each do |user, other|
      paged("#{user} with #{other}", @model.with(user, other)) do |page|
        @mail.with(user, other, **page)
      end
    end
    @some.product(@seed.users.first(4)).each do |user, other|
      %i[from to with].each do |field|
        search(user, [], field => other)
        search(user, [word], field => other)
      end
    end
    search(@some[0], [word, Seed.word(1)], from: @some[1])
    search(@some[0], [], from: @some[1], with: @some[1])
    search(@some[0], [], from: @some[1], to: @some[1])
  end

  # How many calls each query takes, however much there is.
  def costs
    user, other = @some
    newest = @model.mailbox(user).first
    word, second = Array.new(2) { |rank| Seed.word(rank) }
    same('calls', [calls { @mail.mailbox(user) }, calls { @mail.thread(user, newest.thread) },
                   calls { @mail.message(newest.id) }, calls { @mail.search(user, word) },
                   calls { @mail.with(user, other) }, calls { @mail.search(user, 'absent') },
                   calls { @mail.search(user, "#{word} #{second}") },
                   calls { @mail.search(user, "#{word} from:#{other}") },
                   calls { @mail.deliver(@model.messages.last(10)) }],
         [1, 2, 1, 2, 2, 1, 4, 4, 1])
    # The rarest word leads, wherever it stands.
    rare = @model.mailbox(user).last.words.last
    search = Search.new(@mail.keyspace, user, candidates: 5)
    queries = ["#{rare} #{word}", "#{word} #{rare}"]
    same('calls for a rare word',
         queries.map { |query| calls { search.find(Search.lists(query), nil, 100) } }, [3, 3])
  end

  # People write to each other.
  def letters
    ada, ben, cleo = %w[ada ben cleo].map { |name| name + @seed.users.first[/@.*/] }
    first = post(from: ada, to: [ben, cleo, ben, ada], subject: 'Größe',
                 body: "Maße:\n2×3 ﬁne")
    same('to', @mail.message(first.id).to, [ben, cleo])
    answer = post(from: ben, to: [ada], subject: 'Re: Größe', body: '北京 2010, O(n)!',
                  reply_to: first.id)
    same('thread', answer.thread, first.id)
    [ada, ben, cleo].each { |user| mailbox(user) and conversation(user, first.id) }
    ['größe', 'MASSE', 'GRÖSSE', '2', '北京', 'fine', 'o n', '(2010)'].each do |query|
      due = { 'MASSE' => [], 'GRÖSSE' => [], '2' => [first], 'fine' => [first],
              'größe' => [answer, first] }.fetch(query, [answer])
      same(query, @mail.search(ada, query).items.map(&:id), due.map(&:id))
    end
    search(cleo, ['größe'], from: ada)
    search(ada, ['größe'], to: cleo)
    same('two recipients', @mail.with(ben, cleo).items, [])
  end

  # What is deleted is nowhere; all else is where it was.
  def deletions
    gone = @model.messages.sample(20, random: Random.new(2))
    gone.each do |message|
      @mail.delete(message.id)
      @model.delete(message.id)
      refused("message #{message.id}", InboxError, "no message #{message.id}") do
        @mail.message(message.id)
      end
    end
    gone.first(3).each { |message| nowhere(message) }
    mailboxes
    threads
    words
    several_words
  end

  # A delivery that is repeated after the deletion does not bring anything back.
  def late_deliveries
    message = @model.messages[-1]
    @model.delete(message.id)
    stamp = @mail.keyspace.timestamp
    @mail.deliver([message], stamp: stamp)
    @mail.delete(message.id)
    @mail.deliver([message], stamp: stamp)
    nowhere(message)
    # Even where the clock of the sender is an hour ahead.
    message = @model.messages[-1]
    @model.delete(message.id)
    @mail.deliver([message], stamp: @mail.keyspace.timestamp + 3_600_000_000)
    @mail.delete(message.id)
    nowhere(message)
  end

  # A deletion that came half the way shows nothing wrong, and can be repeated.
  def half_deletions
    user = @some.first
    message = @model.mailbox(user).first
    @mail.keyspace.remove(user, 'Mailbox', super_column: message.id.bytes)
    left = @model.search(user, [message.words.first]) - [message]
    same('half deleted', @mail.search(user, message.words.first, size: 1000).items.map(&:id),
         left.map(&:id))
    @mail.delete(message.id)
    @model.delete(message.id)
    nowhere(message)
  end

  # Who turns pages is not disturbed by what arrives.
  def arrivals
    user, other = @some
    due = @model.mailbox(user).map(&:id)
    first = @mail.mailbox(user, size: SIZE)
    post(from: other, to: [user], subject: 'Meanwhile', body: Seed.word(0))
    second = @mail.mailbox(user, start: first.following, size: SIZE)
    same('two pages', (first.items + second.items).map(&:id), due.first(2 * SIZE))
    mailbox(user)
    search(user, [Seed.word(0)])
  end

  def refusals
    unknown = TimeUUID.now
    refused('message', InboxError, "no message #{unknown}") { @mail.message(unknown) }
    refused('delete', InboxError, "no message #{unknown}") { @mail.delete(unknown) }
    refused('search', InboxError, 'no word to search for') { @mail.search(@some.first, ' -- ') }
    letter = { subject: 's', body: 'b' }
    refused('send', InboxError, 'a message needs a recipient besides its sender') do
      @mail.send_message(from: 'a', to: %w[a a], **letter)
    end
    [['a', 'b/c', 'b/c'], ['', 'b', '']].each do |from, to, wrong|
      refused('send', InboxError, "not a user: #{wrong.inspect}") do
        @mail.send_message(from: from, to: [to], **letter)
      end
    end
    refused('send', InboxError, "no message #{unknown}") do
      @mail.send_message(from: 'a', to: %w[b], reply_to: unknown, **letter)
    end
  end

  # What `inbox.rb` prints.
  def commands
    dora, emma = %w[dora emma].map { |name| name + @seed.users.first[/@.*/] }
    sent = inbox('send', '--from', dora, '--to', emma, '--subject', 'Zoë', 'Grüße, deine Dora.')
    id = TimeUUID.parse(sent[/\ASent: (\S+)$/, 1].to_s)
    route = "#{dora} to #{emma}, #{Time.at(id.seconds).utc.strftime('%Y-%m-%d %H:%M:%S UTC')}"
    line = "\n\nZoë\n  #{route}\n  -> #{id}\n"
    { ['mailbox', emma] => "Mail of #{emma}", ['with', dora, emma] => "#{dora} and #{emma}",
      ['search', emma, 'GRÜSSE', 'zoë'] => "Mail of #{emma} with GRÜSSE zoë",
      ['search', emma, 'grüße', "from:#{dora}"] => "Mail of #{emma} with grüße from:#{dora}"
    }.each do |words, title|
      found = words.include?('GRÜSSE') ? "\n\nNothing here.\n" : line
      same(words, inbox(*words), "#{title}\n#{'=' * title.length}#{found}")
    end
    text = "Zoë\n===\n#{route}\n#{id}\n\nGrüße, deine Dora.\n"
    same('message', inbox('message', id.to_s), text)
    same('thread', inbox('thread', emma, id.to_s), text)
    same('delete', inbox('delete', id.to_s), "Deleted: #{id}\n")
    same('deleted', inbox('message', id.to_s), "inbox.rb: no message #{id}\n")
  end

  # The measurements come to an end; how long anything takes is not looked at.
  def measurements
    seeded = inbox('seed', '--messages', '200', '--users', '20')
    same('seed', seeded[/\A\d+ messages for \d+ users/], '200 messages for 20 users')
    same('bench', inbox('bench', '--users', '20', '--times', '1').lines.size, 20)
    inbox('widths', '--fill', 'yes', '--longest', '100')
    same('widths', inbox('widths', '--times', '1', '--longest', '100').lines.size, 5)
  end

  private

  def inbox(*words)
    output, = Open3.capture2e(RbConfig.ruby, "#{__dir__}/inbox.rb", *@way, *words)
    output.force_encoding(Encoding::UTF_8)
  end

  # A value in a line, a long list by its ids.
  def shown(value)
    return value.inspect[0, 500] unless value.is_a?(Array)

    shown = value.map { |each| each.respond_to?(:id) ? each.id : each }
    "#{value.size}: #{shown.first(50).join(' ')}"
  end

  def post(**letter)
    @mail.send_message(**letter).tap { |sent| @model.add(sent) }
  end

  def mailbox(user)
    paged("mailbox of #{user}", @model.mailbox(user)) { |page| @mail.mailbox(user, **page) }
  end

  def conversation(user, thread)
    due = @model.thread(user, thread)
    found = all_pages(FEW, due.size) { |page| @mail.thread(user, thread, **page) }
    same("thread #{thread} of #{user}", found, due)
  end

  def search(user, words, **people)
    query = [*words, *people.map { |field, name| "#{field}:#{name}" }].join(' ')
    due = @model.search(user, words, **people)
    paged("#{query} in mail of #{user}", due) { |page| @mail.search(user, query, **page) }
  end

  # Page after page is the whole list, with all that a line of it tells.
  def paged(what, due, &query)
    lines = due.map { |message| Summary.new(**message.to_h.slice(*Summary.members)) }
    same(what, all_pages(SIZE, due.size, &query), lines)
  end

  # All that a query finds, by pages of a size; a little more than is due if they do not end.
  def all_pages(size, due)
    page = yield(size: size)
    items = page.items
    while page.following && items.size <= due
      same('a page', page.items.size, size)
      page = yield(start: page.following, size: size)
      items += page.items
    end
    items
  end

  # No row of a participant has anything of a message.
  def nowhere(message)
    id = message.id.bytes
    message.participants.product(FAMILIES).each do |user, family|
      names = @mail.keyspace.each(user, family, page: 1000).flat_map do |each|
        # A thread keeps the name of its first message.
        [*(each.name unless family == 'Threads'), *each.columns.map(&:name)]
      end
      same("#{family} of #{user}", names.map(&:b).include?(id), false)
    end
    same('its row', @mail.keyspace.slice(message.id.to_s, 'Messages'), [])
  end
end

Alexandra::Checking.main(title: 'inbox') do |server, transport|
  server.open do |client, traffic|
    Run.new(client, traffic, server.words).tap do |run|
      steps = [*Run::STEPS, Run::OF_TRANSPORT.fetch(transport)]
      run.steps(steps) { |step| run.public_send(step) }
    end
  end
end
