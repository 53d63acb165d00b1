# frozen_string_literal: true

require_relative 'message'

module Inbox
  # The same mail as a plain list of messages, searched by looking at each of them: what the
  # answers of the inbox are compared with.
  class Model
    attr_reader :messages

    def initialize(messages)
      @messages = messages
    end

    def add(message)
      @messages += [message]
    end

    def delete(id)
      @messages = @messages.reject { |message| message.id == id }
    end

    def mailbox(user)
      newest_first(of(user))
    end

    # Oldest first.
    def thread(user, thread)
      newest_first(of(user).select { |message| message.thread == thread }).reverse
    end

    def threads(user)
      of(user).map(&:thread).uniq
    end

    def with(user, other)
      newest_first(of(user).select { |message| between?(message, user, other) })
    end

    # Messages that have all words, and come from, go to or are exchanged with somebody.
    def search(user, words, from: nil, to: nil, with: nil)
      found = of(user).select { |message| words.all? { |word| word?(message, word) } }
      found.select! { |message| message.from == from } if from
      found.select! { |message| message.to.include?(to) && [message.from, to].include?(user) } if to
      found.select! { |message| between?(message, user, with) } if with
      newest_first(found)
    end

    private

    def of(user)
      @messages.select { |message| message.from == user || message.to.include?(user) }
    end

    def between?(message, user, other)
      return true if user == other

      [[user, other], [other, user]].any? do |sender, recipient|
        message.from == sender && message.to.include?(recipient)
      end
    end

    def word?(message, word)
      text = "#{message.subject}\n#{message.body}"
      text.match?(/(?<![[:alnum:]])#{Regexp.escape(word)}(?![[:alnum:]])/i)
    end

    def newest_first(messages)
      messages.sort_by { |message| Inbox.place(message.id) }.reverse
    end
  end
end
