# frozen_string_literal: true

require_relative '../../ruby/lib/alexandra/time_uuid'

module Timeline
  # Moments as names of columns, and the months they fall into. All months are those of UTC, so
  # that the row of a tweet follows from its id alone, wherever the client runs.
  module Moments
    # The smallest difference between two moments, in seconds: one step of a time UUID.
    STEP = Rational(1, Alexandra::TimeUUID::PER_SECOND)

    module_function

    # The least name of a moment: what is not before it.
    def from(unix_time)
      head(unix_time) + ("\x00".b * 8)
    end

    # The greatest name of all that is before a moment.
    def before(unix_time)
      head(unix_time.to_r - STEP) + ("\xFF".b * 8)
    end

    # The month of a name, as it stands in row keys: `2010-11`.
    def month(name)
      Time.at(Alexandra::TimeUUID.new(name).seconds).utc.strftime('%Y-%m')
    end

    # The month after a month.
    def following(month)
      year, number = month.split('-').map(&:to_i)
      number == 12 ? format('%04d-01', year + 1) : format('%<y>04d-%<m>02d', y: year, m: number + 1)
    end

    # The part of a name that tells its time.
    def head(unix_time)
      Alexandra::TimeUUID.at(unix_time).bytes[0, 8]
    end
    private_class_method :head
  end
end
