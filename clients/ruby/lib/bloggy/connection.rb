# frozen_string_literal: true

require_relative 'bindings'

module Bloggy
  # One open connection to a server.
  module Connection
    TIMEOUT_SECONDS = 20

    # Yields a Thrift client, and closes its connection afterwards.
    # Raises Thrift::TransportException when nobody listens there.
    def self.open(host, port, framed: false, accelerated: true)
      socket = Thrift::Socket.new(host, port, TIMEOUT_SECONDS)
      transport = (framed ? Thrift::FramedTransport : Thrift::BufferedTransport).new(socket)
      transport.open
      yield CassandraThrift::Cassandra::Client.new(protocol(accelerated).new(transport))
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
