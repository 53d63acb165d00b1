# frozen_string_literal: true

# The Thrift bindings, generated from `cassandra.thrift` where they are missing or out of date.
#
# Loading this file needs two things of the machine: the Thrift library for Ruby and, for the first
# run only, the Thrift compiler. Where one is missing a LoadError says what to install.

require 'fileutils'
require 'open3'
require 'pathname'

module Alexandra
  # Makes the bindings and says where they are.
  module Bindings
    HERE = Pathname(__dir__).parent.parent
    ROOT = HERE.parent.parent
    # Another IDL, say that of an older server, can be named by the environment.
    IDL = Pathname(ENV.fetch('CASSANDRA_IDL', ROOT + 'cassandra.thrift'))
    GENERATED = HERE + 'gen-rb'
    MADE_FROM = GENERATED + 'cassandra.thrift'

    # Runs the compiler, unless the bindings at hand were made from this very IDL.
    def self.bring_up_to_date
      raise LoadError, "cannot read the interface definition #{IDL}" unless IDL.readable?

      File.open(HERE) do |folder|
        # Of several first runs at a time one does the work and the others wait for it.
        folder.flock(File::LOCK_EX)
        next if MADE_FROM.file? && MADE_FROM.binread == IDL.binread

        generate
        # Written last: its presence says that the rest is complete.
        FileUtils.cp(IDL, MADE_FROM)
      end
    end

    def self.generate
      FileUtils.rm_rf(GENERATED)
      output, status = Open3.capture2e('thrift', '--gen', 'rb', '-o', HERE.to_s, IDL.to_s)
      raise LoadError, "the Thrift compiler refuses #{IDL}:\n#{output}" unless status.success?
    rescue Errno::ENOENT
      raise LoadError, "no Thrift compiler here to make the bindings; run #{ROOT}/tests/setup.sh " \
                       '(on Debian: apt-get install thrift-compiler)'
    end
    private_class_method :generate
  end
end

begin
  require 'thrift'
rescue LoadError
  raise LoadError, "#{RbConfig.ruby} has no Thrift library; run #{Alexandra::Bindings::ROOT}" \
                   '/tests/setup.sh (on Debian: apt-get install ruby-thrift, and use /usr/bin/ruby)'
end

Alexandra::Bindings.bring_up_to_date
$LOAD_PATH.unshift(Alexandra::Bindings::GENERATED.to_s)
require 'cassandra'
