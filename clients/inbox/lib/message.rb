# frozen_string_literal: true

require_relative '../../ruby/lib/alexandra/time_uuid'
require_relative 'words'

module Inbox
  # The inbox cannot do that; the text says why.
  class InboxError < StandardError; end

  TimeUUID = Alexandra::TimeUUID

  # One message. `id` is its moment and its row; `thread` is the id of the first message of the
  # conversation; `to` are the recipients without the sender.
  Message = Struct.new(:id, :thread, :from, :to, :subject, :body, keyword_init: true) do
    # Who has it in the mailbox.
    def participants
      [from, *to]
    end

    # Whom a message connects a participant with: recipients that he wrote `to`, or the sender that
    # he has it `from`. Two recipients of one message have nothing to do with each other. What he
    # sent is `from` himself as well, and what he got is `to` himself.
    def partners(user)
      return { from => 'from', user => 'to' } unless user == from

      to.to_h { |other| [other, 'to'] }.merge(user => 'from')
    end

    def words
      Words.of("#{subject} #{body}")
    end
  end

  # The line of a message in a list.
  Summary = Struct.new(:id, :thread, :from, :to, :subject, keyword_init: true)

  # Some of a longer list, and where the rest of it begins; nil at the end.
  Page = Struct.new(:items, :following) do
    # A page of the first items of a list, of which one more was asked for than the page holds.
    def self.of(found, size, id = :id.to_proc)
      new(found.first(size), found.size > size ? id.call(found[size]) : nil)
    end
  end

  # Hours in UTC, into which the lists of a word or a person are cut.
  module Hour
    def self.of(id)
      Time.at(id.seconds).utc.strftime('%Y-%m-%dT%H')
    end
  end

  # Where an id stands among others in a column family of TimeUUIDType: by time, then by its bytes.
  def self.place(id)
    low, mid, high = id.bytes.unpack('Nnn')
    [(high & 0x0FFF) << 48 | mid << 32 | low, id.bytes]
  end
end
