# frozen_string_literal: true

require_relative 'connection'

module Alexandra
  # What calls cost: how many, how many bytes, how long.
  module Figures
    # Above the rows of costs.
    HEADING = format('%6s %9s %8s %8s %8s', *%w[calls bytes p50 p95 p99]).freeze

    # What was measured of one kind of query over one connection.
    class Cost
      # Of each time: seconds, and bytes either way.
      attr_reader :seconds, :sent, :received

      def initialize(traffic)
        @traffic = traffic
        @calls = []
        @sent = []
        @received = []
        @seconds = []
      end

      # Does the block once, and returns what it returns.
      def measure
        before = @traffic.to_a
        start = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        answer = yield
        @seconds << (Process.clock_gettime(Process::CLOCK_MONOTONIC) - start)
        spent = @traffic.to_a.zip(before).map { |now, earlier| now - earlier }
        [@calls, @sent, @received].zip(spent) { |all, each| all << each }
        answer
      end

      # Bytes of each time, both ways.
      def carried
        sent.zip(received).map(&:sum)
      end

      # The latencies that 50, 95 and 99 of 100 queries do not exceed, in milliseconds.
      def percentiles_ms
        [50, 95, 99].map { |part| Figures.percentile(seconds, part) * 1000 }
      end

      # The row of a table below HEADING: means of calls and of these bytes, and the percentiles.
      def row(bytes)
        figures = [Figures.mean(@calls), Figures.mean(bytes), *percentiles_ms]
        format('%6.1f %9d %8.2f %8.2f %8.2f', *figures)
      end
    end

    # The least of the values that `part` of 100 do not exceed.
    def self.percentile(values, part)
      values.sort[[0, (values.size * part).fdiv(100).ceil - 1].max]
    end

    # The arithmetic mean; 0 of nothing.
    def self.mean(values)
      values.empty? ? 0 : values.sum.fdiv(values.size)
    end
  end
end
