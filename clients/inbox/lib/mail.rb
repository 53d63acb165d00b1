# frozen_string_literal: true

require_relative '../../ruby/lib/alexandra/keyspace'
require_relative 'entries'
require_relative 'message'
require_relative 'search'

module Inbox
  # The mail of all users, over one keyspace.
  #
  #   Messages       row: message id   columns: from, to, subject, body, thread
  #   Mailbox        row: user         super column: message id -> from, to, subject, thread
  #   Threads        row: user         super column: thread id -> { message id -> sender }
  #   Terms          row: user         super column: word/hour -> { message id -> nothing }
  #   Interactions   row: user         super column: other/hour -> { message id -> from or to }
  #
  # Ids are time UUIDs; as a row key an id is text.
  class Mail
    include CassandraThrift

    KEYSPACE = 'Inbox'
    PAGE_SIZE = 20
    # An address, or whatever users are called. The slash ends it in the names of super columns.
    USER = %r{\A[^\s/:]+\z}
    TEXTS = %w[from to subject body].freeze
    # The columns without which a message is not all there.
    NEEDED = [*TEXTS, 'thread'].freeze
    private_constant :TEXTS, :NEEDED

    attr_reader :keyspace

    def initialize(client, keyspace: KEYSPACE)
      @keyspace = Alexandra::Keyspace.new(client, keyspace)
      @entries = Entries.new(@keyspace)
    end

    # Sends a message, as an answer to another if one is named, and returns it.
    def send_message(from:, to:, subject:, body:, reply_to: nil)
      recipients = to.uniq - [from]
      raise InboxError, 'a message needs a recipient besides its sender' if recipients.empty?

      wrong = [from, *recipients].find { |user| !USER.match?(user) }
      raise InboxError, "not a user: #{wrong.inspect}" if wrong

      thread = message(reply_to).thread if reply_to
      id = TimeUUID.now
      sent = Message.new(id: id, thread: thread || id, from: from, to: recipients,
                         subject: subject, body: body)
      deliver([sent])
      sent
    end

    # Puts messages into the rows of all participants, as one batch. If that fails it can be
    # repeated with the same stamp: nothing is there twice, and nothing that was deleted comes back.
    def deliver(messages, stamp: @keyspace.timestamp)
      @keyspace.mutate(@entries.of_delivery(messages, stamp))
    end

    # A message with its text.
    def message(id)
      read([id]).first or raise InboxError, "no message #{id}"
    end

    # What a user has sent or received, newest first: one call.
    def mailbox(user, start: nil, size: PAGE_SIZE)
      lines = @keyspace.slice(user, 'Mailbox', start: start ? start.bytes : '', reversed: true,
                                               count: size + 1)
      Page.of(lines.map { |line| summary(line) }, size)
    end

    # A conversation as far as a user takes part in it, oldest first: a call for the ids and one
    # for the messages.
    def thread(user, thread, start: nil, size: PAGE_SIZE)
      names = @keyspace.slice(user, 'Threads', super_column: thread.bytes,
                                               start: start ? start.bytes : '', count: size + 1)
      ids = names.map { |column| TimeUUID.new(column.name) }
      page = Page.of(ids, size, :itself.to_proc)
      Page.new(read(page.items), page.following)
    end

    # The messages of a user that have all the words, newest first. `from:ada`, `to:ada` and
    # `with:ada` among the words take only those of that person.
    def search(user, query, start: nil, size: PAGE_SIZE)
      find(user, Search.lists(query), start, size)
    end

    # What a user has exchanged with another, newest first.
    def with(user, other, start: nil, size: PAGE_SIZE)
      find(user, [Search.person(other)], start, size)
    end

    # Takes a message away from all participants.
    def delete(id)
      row = @keyspace.slice(id.to_s, 'Messages')
      gone = parse(id, row) or raise InboxError, "no message #{id}"
      # The clock of the sender may have been ahead of ours.
      stamp = [@keyspace.timestamp, *row.map(&:timestamp)].max
      @keyspace.mutate(@entries.of_removal(gone, stamp))
      # Its row tells where it stands, and goes last: until then a deletion can be repeated.
      @keyspace.mutate(id.to_s => { 'Messages' => [@keyspace.delete(stamp)] })
    end

    private

    def find(user, lists, start, size)
      ids = Search.new(@keyspace, user).find(lists, start, size + 1)
      page = Page.of(ids, size, :itself.to_proc)
      Page.new(summaries(user, page.items), page.following)
    end

    # The lines of the mailbox for some ids, in that order. One that is not there is of a message
    # that is just being deleted, or was while the index was read.
    def summaries(user, ids)
      return [] if ids.empty?

      lines = @keyspace.client.get_slice(
        @keyspace.name, user, ColumnParent.new(column_family: 'Mailbox'),
        SlicePredicate.new(column_names: ids.map(&:bytes)), @keyspace.consistency
      )
      found = lines.to_h { |line| summary(line.super_column).then { |each| [each.id, each] } }
      found.values_at(*ids).compact
    end

    def summary(line)
      values = line.columns.to_h { |column| [@keyspace.text(column.name), column.value] }
      text = values.transform_values { |value| @keyspace.text(value) }
      Summary.new(id: TimeUUID.new(line.name), thread: TimeUUID.new(values['thread']),
                  from: text['from'], to: text['to'].split, subject: text['subject'])
    end

    # Those of the messages that are there, in the order of the ids.
    def read(ids)
      rows = @keyspace.slices(ids.map(&:to_s), 'Messages')
      ids.filter_map { |id| parse(id, rows.fetch(id.to_s)) }
    end

    # A message from its row; nil if that is not whole.
    def parse(id, row)
      values = row.to_h { |column| [@keyspace.text(column.name), column.value] }
      return nil unless NEEDED.all? { |name| values.key?(name) }

      text = values.slice(*TEXTS).transform_values { |value| @keyspace.text(value) }
      Message.new(id: id, thread: TimeUUID.new(values['thread']), from: text['from'],
                  to: text['to'].split, subject: text['subject'], body: text['body'])
    end
  end
end
