# frozen_string_literal: true

module Bloggy
  # Pages as plain text. The Python client prints the very same.
  module Text
    module_function

    # The newest entries of all.
    def front_page(entries, following)
      list('Newest entries', entries, following)
    end

    # The newest entries of a tag.
    def tag_page(tag, entries, following)
      list("Entries tagged \"#{tag}\"", entries, following)
    end

    # An entry with what its readers said.
    def entry_page(entry, comments)
      lines = [*heading(entry.title, '='), byline(entry), '', entry.body, '']
      return [*lines, 'No comments yet.'].join("\n") if comments.empty?

      lines += heading(comments.size == 1 ? '1 comment' : "#{comments.size} comments", '-')
      comments.each do |each|
        lines << "#{each.commenter} <#{each.email}>, #{moment(each.written)} [#{each.id}]"
        lines += each.text.split("\n", -1).map { |line| "  #{line}" }
      end
      lines.join("\n")
    end

    # What is known of an author.
    def author_page(name, attributes)
      [*heading(name, '='), *attributes.sort.map { |key, value| "#{key}: #{value}" }].join("\n")
    end

    def list(title, entries, following)
      lines = heading(title, '=')
      lines += ['', 'Nothing here yet.'] if entries.empty?
      entries.each do |entry|
        first_line = entry.body.split("\n", -1).first.to_s
        lines += ['', entry.title, "  #{byline(entry)}", "  #{first_line}", "  -> #{entry.slug}"]
      end
      lines += ['', "Older ones: --from #{following}"] if following
      lines.join("\n")
    end

    def byline(entry)
      twitter = entry.author_attributes['twitter'].to_s
      author = twitter.empty? ? entry.author : "#{entry.author} (@#{twitter})"
      line = "by #{author}, #{moment(entry.published)}"
      entry.tags.empty? ? line : "#{line}, tags: #{entry.tags.join(', ')}"
    end

    def heading(text, stroke)
      [text, stroke * text.length]
    end

    def moment(unix_time)
      Time.at(unix_time).utc.strftime('%Y-%m-%d %H:%M:%S UTC')
    end
  end
end
