# frozen_string_literal: true

module Bloggy
  # Pages as plain text. The Python client prints the very same.
  module Text
    module_function

    # The newest entries of all.
    def front_page(page)
      list('Newest entries', page)
    end

    # The newest entries of a tag.
    def tag_page(tag, page)
      list("Entries tagged \"#{tag}\"", page)
    end

    # The newest entries of an author.
    def author_entries(name, page)
      list("Entries by #{name}", page)
    end

    # The entries of a month.
    def month_page(month, page)
      list("Entries of #{month}", page)
    end

    # The months with their numbers of entries.
    def archive(months)
      lines = heading('Archive', '=')
      lines += ['', 'Nothing here yet.'] if months.empty?
      lines += months.map { |month, count| "#{month}: #{number(count, 'entry', 'entries')}" }
      lines.join("\n")
    end

    # An entry with what its readers said, or one page of that, and how much there is.
    def entry_page(entry, page, count)
      lines = [*heading(entry.title, '='), byline(entry), '', entry.body, '']
      return [*lines, 'No comments yet.'].join("\n") if count.zero?

      lines += heading(number(count, 'comment', 'comments'), '-')
      page.items.each do |each|
        lines << "#{each.commenter} <#{each.email}>, #{moment(each.written)} [#{each.id}]"
        lines += each.text.split("\n", -1).map { |line| "  #{line}" }
      end
      [*lines, *places(page, 'Earlier', 'Later')].join("\n")
    end

    # What is known of an author.
    def author_page(name, attributes)
      [*heading(name, '='), *attributes.sort.map { |key, value| "#{key}: #{value}" }].join("\n")
    end

    # How much a tag lists.
    def tag_count(tag, count)
      "Tag \"#{tag}\": #{number(count, 'entry', 'entries')}"
    end

    # How much an author's list has, and what his column says.
    def author_count(name, count, attributes)
      stored = attributes.fetch('numPosts', 'none')
      "Author #{name}: #{number(count, 'entry', 'entries')}, numPosts: #{stored}"
    end

    # How much was said on an entry.
    def comment_count(slug, count)
      "Entry #{slug}: #{number(count, 'comment', 'comments')}"
    end

    # What a recount has done.
    def report(done)
      ["Read: #{number(done.entries, 'entry', 'entries')} " \
       "by #{number(done.authors, 'author', 'authors')}",
       "Listed where it was missing: #{done.listed}",
       "Taken out of lists: #{done.unlisted}",
       "Numbers corrected: #{done.recounted}"].join("\n")
    end

    def list(title, page)
      lines = heading(title, '=')
      lines += ['', 'Nothing here yet.'] if page.items.empty?
      page.items.each do |entry|
        first_line = entry.body.split("\n", -1).first.to_s
        lines += ['', entry.title, "  #{byline(entry)}", "  #{first_line}", "  -> #{entry.slug}"]
      end
      [*lines, *places(page, 'Newer', 'Older')].join("\n")
    end

    # How to go on from a page.
    def places(page, before, after)
      lines = []
      lines << "#{before} ones: --until #{page.preceding}" if page.preceding
      lines << "#{after} ones: --from #{page.following}" if page.following
      lines.empty? ? lines : ['', *lines]
    end

    def number(count, one, many)
      count == 1 ? "1 #{one}" : "#{count} #{many}"
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
