# frozen_string_literal: true

# The Thrift bindings, generated from `cassandra.thrift` where they are missing or out of date.
#
# Loading this file needs two things of the machine: the Thrift library for Ruby and, for the first
# run only, the Thrift compiler. Where one is missing a LoadError says what to install.

require 'fileutils'
require 'open3'
require 'pathname'
require 'tmpdir'

module Bloggy
  # Makes the bindings and says where they are.
  module Bindings
    HERE = Pathname(__dir__).parent.parent
    ROOT = HERE.parent.parent
    # Another IDL, say that of an older server, can be named by the environment.
    IDL = Pathname(ENV.fetch('CASSANDRA_IDL', ROOT + 'cassandra.thrift'))
    GENERATED = HERE + 'gen-rb'
    MADE_FROM = GENERATED + IDL.basename

    # Runs the compiler, unless the bindings at hand were made from this very IDL.
    # The work is done aside and moved into place, so that two runs at a time do not meet.
    def self.generate
      raise LoadError, "cannot read the interface definition #{IDL}" unless IDL.readable?
      return if current?

      Dir.mktmpdir('gen-rb-', HERE) do |aside|
        compile(aside)
        fresh = Pathname(aside) + 'gen-rb'
        FileUtils.cp(IDL, fresh)
        GENERATED.rename(Pathname(aside) + 'old') if GENERATED.exist?
        begin
          fresh.rename(GENERATED)
        rescue SystemCallError
          # Another process was faster. What it made will do if it is complete.
          raise unless current?
        end
      end
    end

    def self.current?
      MADE_FROM.file? && MADE_FROM.binread == IDL.binread
    end

    def self.compile(folder)
      output, status = Open3.capture2e('thrift', '--gen', 'rb', '-o', folder, IDL.to_s)
      raise LoadError, "the Thrift compiler refuses #{IDL}:\n#{output}" unless status.success?
    rescue Errno::ENOENT
      raise LoadError, "no Thrift compiler here to make the bindings; run #{ROOT}/tests/setup.sh " \
                       '(on Debian: apt-get install thrift-compiler)'
    end
    private_class_method :current?, :compile
  end
end

begin
  require 'thrift'
rescue LoadError
  raise LoadError, "#{RbConfig.ruby} has no Thrift library; run #{Bloggy::Bindings::ROOT}" \
                   '/tests/setup.sh (on Debian: apt-get install ruby-thrift, and use /usr/bin/ruby)'
end

Bloggy::Bindings.generate
$LOAD_PATH.unshift(Bloggy::Bindings::GENERATED.to_s)
require 'cassandra'
