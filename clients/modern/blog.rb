#!/usr/bin/env ruby
# frozen_string_literal: true

# An author and comments of the blog, stored and read over Thrift by a program of today. Exits with
# 1 if it reads something else than it has written.

require 'optparse'
require 'securerandom'
# Runs `thrift --gen rb cassandra.thrift` where that is due, and then `require 'cassandra'`.
require_relative '../ruby/lib/alexandra/bindings'

include CassandraThrift

KEYSPACE = 'BloggyAppy'
QUORUM = ConsistencyLevel::QUORUM
TIMEOUT_SECONDS = 10

# Yields a client on a connection of its own.
def connect(host, port, transport)
  socket = Thrift::Socket.new(host, port, TIMEOUT_SECONDS)
  wrapped = (transport == 'framed' ? Thrift::FramedTransport : Thrift::BufferedTransport).new(socket)
  wrapped.open
  yield Cassandra::Client.new(Thrift::BinaryProtocol.new(wrapped))
ensure
  wrapped&.close
end

# Microseconds since 1970: of two writes to a column the one with the later time stays.
def timestamp
  Process.clock_gettime(Process::CLOCK_REALTIME, :microsecond)
end

# A UUID of version 1: the time in steps of 100 ns since 1582, and a random node.
def time_uuid
  steps = (timestamp * 10) + 0x01b21dd213814000
  [steps, steps >> 32, (steps >> 48) | 0x1000, 0x8000].pack('L>S>S>S>') + SecureRandom.bytes(6)
end

def save_author(client, name, email)
  path = ColumnPath.new(column_family: 'Authors', column: 'email')
  client.insert(KEYSPACE, name, path, email, timestamp, QUORUM)
  client.get(KEYSPACE, name, path, QUORUM).column.value.force_encoding('UTF-8')
end

def add_comment(client, slug, comment)
  columns = [Column.new(name: 'comment', value: comment, timestamp: timestamp)]
  named = SuperColumn.new(name: time_uuid, columns: columns)
  written = Mutation.new(column_or_supercolumn: ColumnOrSuperColumn.new(super_column: named))
  client.batch_mutate(KEYSPACE, { slug => { 'Comments' => [written] } }, QUORUM)
end

# The newest comments of an entry, newest first.
def comments(client, slug, count = 10)
  range = SliceRange.new(start: '', finish: '', reversed: true, count: count)
  parent = ColumnParent.new(column_family: 'Comments')
  found = client.get_slice(KEYSPACE, slug, parent, SlicePredicate.new(slice_range: range), QUORUM)
  found.map { |it| it.super_column.columns.first.value.force_encoding('UTF-8') }
end

options = { host: '127.0.0.1', port: 9160, transport: 'framed' }
OptionParser.new do |it|
  it.on('--host HOST') { |host| options[:host] = host }
  it.on('--port PORT', Integer) { |port| options[:port] = port }
  it.on('--transport NAME', %w[buffered framed]) { |name| options[:transport] = name }
end.parse!

connect(options[:host], options[:port], options[:transport]) do |client|
  email = save_author(client, 'Ada Example', 'ada@example.com')
  slug = "entry-#{SecureRandom.hex}"
  texts = ['Nice!', 'Schöne Grüße']
  texts.each { |text| add_comment(client, slug, text) }
  found = comments(client, slug)
  abort "comments differ: #{found}" unless found == texts.reverse && email == 'ada@example.com'
  puts "#{options[:transport]}: Ada Example has #{email}, the comments are #{found.join(', ')}"
end
