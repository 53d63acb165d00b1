# frozen_string_literal: true

module Inbox
  # The words of a text, as they are indexed and as they are searched for.
  #
  # A message is taken out of the index by the words of its text, so whoever changes this must
  # index everything anew.
  module Words
    # What is longer is no word that anybody types: a key, an address, an encoded file.
    LONGEST = 40

    # Each word once, in the order of its first appearance: letters and digits of any script, in
    # lower case.
    def self.of(text)
      words = text.unicode_normalize(:nfkc).downcase.scan(/[[:alnum:]]+/)
      words.uniq.select { |word| word.length <= LONGEST }
    end
  end
end
