# frozen_string_literal: true

module Inbox
  # Pages in plain text.
  module Text
    module_function

    # A page of a list of messages, a line or two for each.
    def list(title, page)
      lines = heading(title)
      lines << '' << 'Nothing here.' if page.items.empty?
      page.items.each do |each|
        lines << '' << each.subject << "  #{route(each)}" << "  -> #{each.id}"
        lines.last << " in #{each.thread}" unless each.thread == each.id
      end
      [*lines, *older(page, 'Older ones')].join("\n")
    end

    # A conversation, or a page of it.
    def thread(page)
      return 'Nothing here.' if page.items.empty?

      [*page.items.map { |each| message(each) }, *older(page, 'Later ones')].join("\n\n")
    end

    def message(message)
      [*heading(message.subject), route(message), message.id.to_s, '', message.body].join("\n")
    end

    def older(page, what)
      page.following ? ['', "#{what}: --from #{page.following}"] : []
    end

    def route(message)
      at = Time.at(message.id.seconds).utc.strftime('%Y-%m-%d %H:%M:%S UTC')
      "#{message.from} to #{message.to.join(', ')}, #{at}"
    end

    def heading(title)
      [title, '=' * title.length]
    end
  end
end
