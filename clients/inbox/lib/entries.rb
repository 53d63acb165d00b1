# frozen_string_literal: true

require_relative '../../ruby/lib/alexandra/keyspace'
require_relative 'message'

module Inbox
  # The super columns that a message has in the rows of its participants. That is said in one
  # place, from which it is both written and deleted.
  class Entries
    def initialize(keyspace)
      @keyspace = keyspace
    end

    # What puts messages into all rows they belong to, as one batch.
    def of_delivery(messages, stamp)
      collect do |changes|
        messages.each do |message|
          add(changes, message) { |_, name, columns| @keyspace.put_super(name, columns, stamp) }
          changes[message.id.to_s]['Messages'] = row(message).map do |name, value|
            @keyspace.put(name, value, stamp)
          end
        end
      end
    end

    # What takes a message out of the rows of its participants.
    def of_removal(message, stamp)
      collect do |changes|
        add(changes, message) do |family, name, columns|
          # A line of the mailbox goes as a whole; the others share their super columns.
          names = columns.keys unless family == 'Mailbox'
          @keyspace.delete(stamp, super_column: name, names: names)
        end
      end
    end

    private

    def collect
      changes = Hash.new do |rows, key|
        rows[key] = Hash.new { |families, family| families[family] = [] }
      end
      yield changes
      changes
    end

    # The mutations of the block, with the row of each participant. Most are the same for all of
    # them and are made once.
    def add(changes, message)
      common = common(message).map { |entry| [entry.first, yield(*entry)] }
      message.participants.each do |user|
        families = changes[user]
        common.each { |family, mutation| families[family] << mutation }
        partners(message, user).each { |entry| families[entry.first] << yield(*entry) }
      end
    end

    # Column family, super column and columns of what every participant has.
    def common(message)
      id = message.id.bytes
      hour = Hour.of(message.id)
      line = row(message).reject { |name, _| name == 'body' }
      [['Mailbox', id, line], ['Threads', message.thread.bytes, { id => message.from }],
       *message.words.map { |word| ['Terms', "#{word}/#{hour}", { id => '' }] }]
    end

    def partners(message, user)
      hour = Hour.of(message.id)
      message.partners(user).map do |other, direction|
        ['Interactions', "#{other}/#{hour}", { message.id.bytes => direction }]
      end
    end

    def row(message)
      { 'from' => message.from, 'to' => message.to.join(' '), 'subject' => message.subject,
        'body' => message.body, 'thread' => message.thread.bytes }
    end
  end
end
