# frozen_string_literal: true

# What the programs here have in common: options that find the server, a table of commands, and
# ends with a reason.

require 'optparse'
require_relative 'connection'

module Alexandra
  # The server that a program talks to, as its options tell.
  Server = Struct.new(:host, :port, :framed) do
    def initialize(host = '127.0.0.1', port = 9160, framed = false)
      super
    end

    # Adds the options that find it to a parser.
    def found_by(options)
      options.on('--host H') { |value| self.host = value }
      options.on('--port P', Integer) do |value|
        raise OptionParser::InvalidArgument, "#{value}, 1 to 65535" unless value.between?(1, 65_535)

        self.port = value
      end
    end

    # The words by which another program here finds it.
    def words
      ['--host', host, '--port', port.to_s, *('--framed' if framed)]
    end

    # What Connection.open does, with this server.
    def open(**way, &work)
      Connection.open(host, port, framed: framed, **way, &work)
    end

    def to_s
      "#{host}:#{port}"
    end
  end

  # A program with commands: words in, text out.
  class Program
    # One row of a table of commands, all four of them texts.
    #
    # Arguments in brackets may be left out, and the last may be many if it ends with dots. An
    # option takes the word behind it, which is a number if that is called N.
    Command = Struct.new(:name, :arguments, :options, :about) do
      def usage
        [name, options, arguments].reject(&:empty?).join(' ')
      end

      # How many arguments there may be.
      def numbers
        words = arguments.split
        least = words.count { |word| !word.start_with?('[') }
        least..(arguments.end_with?('...') ? nil : words.size)
      end

      # Adds its options to a parser, which is to put them into `given`.
      def read_by(parser, given)
        options.scan(/--([\w-]+)( [^\s\]]+)?/) do |name, value|
          kind = value == ' N' ? [Integer] : []
          parser.on("--#{name}#{value}", *kind) { |read| given[name] = read }
        end
      end
    end
    private_constant :Command

    # `table` has the fields of each command, `note` is what the usage says of all. The messages of
    # `failures`, the application's exceptions, are reasons to end.
    def initialize(name, note, table, failures)
      @name = name
      @note = note
      @commands = table.map { |row| Command.new(*row) }
      @failures = failures
    end

    # Does the command that the words of the command line name, and prints what it returns; ends the
    # program with exit code 1 and the reason when it cannot be done.
    #
    # The block makes of a client and its traffic the object whose methods are the commands. Each
    # takes its arguments, and last the options that were given, by their names.
    def main
      server = Server.new
      # Names and texts may be in any script, whatever the locale says.
      Encoding.default_external = Encoding::UTF_8
      words = ARGV.map { |word| word.dup.force_encoding(Encoding::UTF_8) }
      parser(server).order!(words)
      command, given = parse(words) || abort(usage)
      open = false
      server.open do |client, traffic|
        open = true
        puts yield(client, traffic).public_send(command, *words, given)
      end
    rescue Thrift::TransportException => e
      # The library has one type for a server that is not there and for one that goes away.
      fault = open ? 'lost the connection to' : 'no server at'
      abort "#{@name}: #{fault} #{server}: #{e.message}"
    rescue SocketError => e
      abort "#{@name}: no server at #{server}: #{e.message}"
    rescue *@failures, OptionParser::ParseError, ArgumentError => e
      abort "#{@name}: #{e.message}"
    rescue CassandraThrift::InvalidRequestException => e
      abort "#{@name}: the server refuses: #{e.why}"
    rescue CassandraThrift::UnavailableException
      abort "#{@name}: too few servers of the ring are up"
    rescue CassandraThrift::TimedOutException
      abort "#{@name}: the ring did not answer in time"
    rescue Thrift::ApplicationException => e
      abort "#{@name}: the server failed: #{e.message}"
    end

    private

    # Of the options that stand before a command.
    def parser(server)
      OptionParser.new do |options|
        server.found_by(options)
        options.on('--framed') { server.framed = true }
        options.on('--help') do
          puts usage
          exit
        end
      end
    end

    # The name of a command and the options given to it. Of the words only its arguments are left.
    # Returns nil where there is no such command, or none with so many arguments.
    def parse(words)
      name = words.shift
      command = @commands.find { |each| each.name == name } or return nil
      given = {}
      parser = OptionParser.new("usage: #{@name} #{command.usage}")
      command.read_by(parser, given)
      parser.parse!(words)
      [name, given] if command.numbers.cover?(words.size)
    end

    def usage
      lines = @commands.flat_map { |command| ["  #{command.usage}", "        #{command.about}"] }
      ["usage: #{@name} [--host H] [--port P] [--framed] COMMAND ...", @note, *lines].join("\n")
    end
  end
end
