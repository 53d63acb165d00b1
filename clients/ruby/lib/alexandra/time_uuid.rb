# frozen_string_literal: true

require 'securerandom'

module Alexandra
  # A version 1 UUID: a moment in steps of 100 ns since 15 October 1582, a clock sequence, a node.
  #
  # Ruby has none of its own. Node and sequence are random here, as RFC 4122 (4.5) allows for who
  # does not want to show the address of his network card: the multicast bit keeps it from being
  # one.
  class TimeUUID
    # Steps between the beginning of the Gregorian calendar and 1 January 1970.
    UNIX_EPOCH = 0x01B21DD213814000
    PER_SECOND = 10_000_000
    TEXT = /\A\h{8}-\h{4}-\h{4}-\h{4}-\h{12}\z/

    # The 16 bytes, as they stand in a column name.
    attr_reader :bytes

    # What a process puts behind the moment, and the last moment it has used.
    class Source
      def initialize
        node = SecureRandom.bytes(6)
        node.setbyte(0, node.getbyte(0) | 0x01)
        @tail = [0x8000 | SecureRandom.random_number(0x4000)].pack('n') + node
        @last = 0
        @lock = Mutex.new
      end

      attr_reader :tail

      # The present moment, later than any that was given before.
      def steps
        now = (Process.clock_gettime(Process::CLOCK_REALTIME, :nanosecond) / 100) + UNIX_EPOCH
        @lock.synchronize { @last = [now, @last + 1].max }
      end
    end
    private_constant :Source

    SOURCE = Source.new
    private_constant :SOURCE

    # A new one. Those of one process ascend.
    def self.now
      build(SOURCE.steps, SOURCE.tail)
    end

    # The one of this process for a given moment in seconds.
    def self.at(unix_time)
      build(steps(unix_time), SOURCE.tail)
    end

    # The least and the greatest name of one second, to slice with.
    def self.bounds(unix_time)
      first = steps(unix_time.to_i)
      [build(first, "\x00".b * 8), build(first + PER_SECOND - 1, "\xFF".b * 8)]
    end

    # Reads the usual 36 characters; raises ArgumentError for anything else.
    def self.parse(text)
      raise ArgumentError, "not a UUID: #{text}" unless TEXT.match?(text)

      new([text.delete('-')].pack('H*'))
    end

    def self.steps(unix_time)
      (unix_time.to_r * PER_SECOND).round + UNIX_EPOCH
    end

    def self.build(steps, tail)
      low = steps & 0xFFFFFFFF
      mid = (steps >> 32) & 0xFFFF
      high = 0x1000 | (steps >> 48)
      new([low, mid, high].pack('Nnn') + tail)
    end
    private_class_method :steps, :build

    def initialize(bytes)
      raise ArgumentError, 'a UUID has 16 bytes' unless bytes.bytesize == 16

      @bytes = bytes.b.freeze
    end

    # Its moment in Unix time, cut to whole seconds.
    def seconds
      low, mid, high = @bytes.unpack('Nnn')
      (((high & 0x0FFF) << 48 | mid << 32 | low) - UNIX_EPOCH) / PER_SECOND
    end

    def to_s
      @bytes.unpack1('H*').sub(/\A(.{8})(.{4})(.{4})(.{4})/, '\1-\2-\3-\4-')
    end

    def ==(other)
      other.is_a?(TimeUUID) && bytes == other.bytes
    end
    alias eql? ==

    def hash
      bytes.hash
    end
  end
end
