#!/usr/bin/ruby
# frozen_string_literal: true

# A blog on Cassandra, as one would have written it in 2010. `blog.rb --help` tells the commands.

begin
  require_relative 'lib/alexandra/program'
  require_relative 'lib/bloggy/recount'
  require_relative 'lib/bloggy/text'
  require_relative 'lib/bloggy/weblog'
rescue LoadError => e
  abort "blog.rb: #{e.message}"
end

# The commands: arguments in, text out.
class Commands
  include Alexandra
  include Bloggy

  # Command, its arguments, its options, what it does.
  TABLE = [
    ['author', 'NAME', '[--email E] [--twitter T] [--bio B]', 'show an author, or save him'],
    ['post', '[TEXT]', '--title T --author A [--tags A,B] [--slug S]', 'publish an entry'],
    ['edit', 'SLUG', '[--title T] [--body B] [--tags A,B]', 'change an entry'],
    ['comment', 'SLUG NAME EMAIL [TEXT]', '', 'comment on an entry'],
    ['front', '', '[--from ID] [--until ID]', 'the newest entries'],
    ['tag', 'TAG', '[--from ID] [--until ID]', 'the newest entries of a tag'],
    ['by', 'NAME', '[--from ID] [--until ID]', 'the newest entries of an author'],
    ['archive', '[MONTH]', '[--from ID] [--until ID]', 'the months, or the entries of one of them'],
    ['show', 'SLUG', '[--from ID] [--until ID]', 'an entry and its comments'],
    ['count', 'KIND NAME', '', 'how many there are; KIND is tag, author or comments'],
    ['delete', 'SLUG', '', 'delete an entry'],
    ['uncomment', 'SLUG ID', '', 'delete a comment'],
    ['recount', '', '', 'mend numbers and lists from the entries'],
    ['demo', '', '', 'fill an empty blog, and show it']
  ].freeze

  def initialize(blog)
    @blog = blog
  end

  def author(name, given)
    @blog.save_author(name, given) unless given.empty?
    attributes = @blog.author(name)
    raise BlogError, "no author #{name}" if attributes.empty?

    Text.author_page(name, attributes)
  end

  def post(text = nil, given)
    missing = %w[title author].find { |name| !given.key?(name) }
    raise BlogError, "post needs --#{missing}" if missing

    slug = @blog.post(title: given['title'], author: given['author'],
                      tags: tags(given.fetch('tags', '')),
                      slug: given['slug'], body: text || input)
    "Published: #{slug}"
  end

  def edit(slug, given)
    raise BlogError, 'nothing to change: give --title, --body or --tags' if given.empty?

    given['tags'] = tags(given['tags']) if given.key?('tags')
    @blog.edit(slug, given)
    "Changed: #{slug}"
  end

  def comment(slug, name, email, text = nil, _given)
    "Commented: #{@blog.comment(slug, commenter: name, email: email, text: text || input)}"
  end

  def front(given)
    Text.front_page(@blog.page(**place(given)))
  end

  def tag(tag, given)
    Text.tag_page(tag, @blog.page(tag: tag, **place(given)))
  end

  def by(name, given)
    Text.author_entries(name, @blog.by_author(name, **place(given)))
  end

  def archive(month = nil, given)
    return Text.archive(@blog.archive) unless month

    Text.month_page(month, @blog.of_month(month, **place(given)))
  end

  def show(slug, given)
    comments = @blog.comments(slug, **place(given))
    Text.entry_page(@blog.entry(slug), comments, @blog.count_comments(slug))
  end

  def count(kind, name, _given)
    case kind
    when 'tag' then Text.tag_count(name, @blog.count_tag(name))
    when 'author' then Text.author_count(name, @blog.count_author(name), @blog.author(name))
    when 'comments' then Text.comment_count(name, @blog.count_comments(name))
    else raise BlogError, "nothing to count: #{kind}; there are tag, author and comments"
    end
  end

  def recount(_given)
    Text.report(Recount.new(@blog).run)
  end

  def delete(slug, _given)
    @blog.delete_entry(slug)
    "Deleted: #{slug}"
  end

  def uncomment(slug, id, _given)
    @blog.delete_comment(slug, TimeUUID.parse(id))
    "Deleted: #{id}"
  end

  def demo(_given)
    fill if @blog.author('Keiko').empty?
    [front({}), tag('ruby', {}), show('blocks-and-rows', {})].join("\n\n\n")
  end

  private

  def fill
    @blog.save_author('Keiko', 'email' => 'keiko@example.org', 'bio' => '松江から')
    @blog.save_author('Jean Valjean', 'email' => 'jean@example.org', 'twitter' => 'n24601')
    @blog.post(title: 'Blocks and rows', author: 'Keiko', tags: %w[ruby cassandra],
               body: "A row is a sorted map.\nA block walks it.")
    @blog.post(title: 'Du pain, déjà', slug: 'du-pain', author: 'Jean Valjean', tags: %w[ruby],
               body: 'Un café, et une ligne de code.')
    draft = @blog.post(title: 'Not for long', author: 'Keiko', tags: %w[ruby], body: 'A draft.')
    fill_comments
    @blog.delete_entry(draft)
    @blog.edit('du-pain', 'body' => 'Un café, et deux lignes de code.')
  end

  def fill_comments
    slug = 'blocks-and-rows'
    @blog.comment(slug, commenter: 'Ada', email: 'ada@example.org', text: 'And who sorts it?')
    spam = @blog.comment(slug, commenter: 'Spam', email: 'spam@example.org', text: 'Buy this.')
    @blog.comment(slug, commenter: 'Grace', email: 'grace@example.org', text: "The node.\nAlways.")
    @blog.delete_comment(slug, spam)
  end

  def place(given)
    places = given.slice('from', 'until').transform_values { |text| TimeUUID.parse(text) }
    raise BlogError, 'a page has --from or --until, not both' if places.size > 1

    { start: places['from'], finish: places['until'] }
  end

  def tags(words)
    words.split(',').map(&:strip).reject(&:empty?)
  end

  def input
    $stdin.read.strip
  end
end

program = Alexandra::Program.new(
  'blog.rb', 'Texts that are left out are read from standard input.', Commands::TABLE,
  [Bloggy::BlogError]
)
program.main { |client| Commands.new(Bloggy::Blog.new(client)) }
