# frozen_string_literal: true

require_relative 'bindings'

module Alexandra
  # What a connection has carried so far: calls, and bytes either way.
  Traffic = Struct.new(:calls, :sent, :received)

  # One open connection to a server.
  module Connection
    TIMEOUT_SECONDS = 20

    # Counts what goes through it.
    class CountingSocket < Thrift::Socket
      def initialize(host, port, timeout, traffic)
        super(host, port, timeout)
        @traffic = traffic
      end

      def read(size)
        super.tap { |read| @traffic.received += read.bytesize }
      end

      def write(data)
        super.tap { @traffic.sent += data.bytesize }
      end

      # The transports flush once for each call.
      def flush
        super
        @traffic.calls += 1
      end
    end
    private_constant :CountingSocket

    # Yields a Thrift client and its traffic, and closes its connection afterwards.
    # Raises Thrift::TransportException when nobody listens there.
    def self.open(host, port, framed: false, accelerated: true)
      traffic = Traffic.new(0, 0, 0)
      socket = CountingSocket.new(host, port, TIMEOUT_SECONDS, traffic)
      transport = (framed ? Thrift::FramedTransport : Thrift::BufferedTransport).new(socket)
      transport.open
      yield CassandraThrift::Cassandra::Client.new(protocol(accelerated).new(transport)), traffic
    ensure
      transport&.close
    end

    # Whether the C part of the Thrift library is here.
    def self.accelerator?
      defined?(Thrift::BinaryProtocolAccelerated) ? true : false
    end

    def self.protocol(accelerated)
      return Thrift::BinaryProtocolAccelerated if accelerated && accelerator?

      Thrift::BinaryProtocol
    end
    private_class_method :protocol
  end
end
