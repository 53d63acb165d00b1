# frozen_string_literal: true

# What the checks of applications have in common: every answer is compared with what is due.

require_relative 'program'

module Alexandra
  # An answer was not the one that is due.
  class Difference < StandardError; end

  # One pass over one connection: compares answers, and counts them.
  class Pass
    # How many answers were compared.
    attr_reader :checks

    # `traffic` is that of the connection, where calls are to be counted.
    def initialize(traffic = nil)
      @checks = 0
      @traffic = traffic
    end

    # The answer is exactly the one that is due.
    def same(what, got, due)
      @checks += 1
      return if got == due

      raise Difference, "#{what}:\n  due: #{shown(due)}\n  got: #{shown(got)}"
    end

    # The block raises this exception, with this message where one is given.
    def refused(what, kind, why = nil)
      got = begin
        yield
      rescue kind => e
        e
      end
      same(what, got.class, kind)
      same(what, got.message, why) if why
    end

    # The block does each of the named steps. What breaks one off is a difference, unless there is
    # no connection any more.
    def steps(names)
      names.each do |name|
        yield name
      rescue Difference, Thrift::TransportException
        raise
      rescue StandardError => e
        raise Difference, "#{name}: after #{checks} answers: #{e.full_message(highlight: false)}"
      end
    end

    # How many calls the block makes.
    def calls
      before = @traffic.calls
      yield
      @traffic.calls - before
    end

    private

    # A value as a difference tells of it.
    def shown(value)
      value.inspect
    end
  end

  # The main program of a check.
  module Checking
    TRANSPORTS = %w[buffered framed].freeze

    # Runs the check once over each transport, and with each of these protocols if there are any.
    # The program exits with 1 at the first difference, and says which.
    #
    # The block makes one pass, over a server, by a transport and a protocol, and returns the Pass.
    # `title` stands before what is printed of each.
    def self.main(title: nil, protocols: [nil])
      Encoding.default_external = Encoding::UTF_8
      server = Server.new
      chosen(server).product(protocols).each do |transport, protocol|
        way = [title, transport, protocol].compact.join(', ')
        server.framed = transport == 'framed'
        count = yield(server, transport, protocol).checks
        # A check that compares nothing has not passed.
        abort "check.rb: #{way}: nothing was compared" if count.zero?
        puts "#{way}: #{count} answers as they are due"
      rescue Difference, Thrift::TransportException => e
        abort "check.rb: #{way}: #{e.message}"
      end
    rescue OptionParser::ParseError => e
      abort "check.rb: #{e.message}"
    end

    # Reads the command line: where the server is, and the transports to be checked.
    def self.chosen(server)
      transports = TRANSPORTS
      parser = OptionParser.new('usage: check.rb [OPTIONS]')
      server.found_by(parser)
      parser.on('--transport TRANSPORT', [*TRANSPORTS, 'both'],
                'a server of old spoke only one of them on its port') do |value|
        transports = [value] unless value == 'both'
      end
      parser.parse!
      transports
    end
    private_class_method :chosen
  end
end
