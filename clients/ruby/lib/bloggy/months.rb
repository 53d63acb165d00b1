# frozen_string_literal: true

require_relative '../alexandra/time_uuid'

module Bloggy
  # Months, as they are in an archive: `2010-11`, always those of UTC.
  module Months
    MONTH = /\A([1-9]\d{3})-(0[1-9]|1[0-2])\z/
    private_constant :MONTH

    module_function

    # The month of a name.
    def of(time_uuid)
      Time.at(time_uuid.seconds).utc.strftime('%Y-%m')
    end

    # The least and the greatest name of a month; ArgumentError where it is none.
    def bounds(month)
      match = MONTH.match(month) or raise ArgumentError, "not a month like 2010-11: #{month}"

      year, number = match.captures.map { |digits| digits.to_i(10) }
      first = Time.utc(year, number)
      following = Time.utc(year + (number / 12), (number % 12) + 1)
      [Alexandra::TimeUUID.bounds(first).first, Alexandra::TimeUUID.bounds(following - 1).last]
        .map(&:bytes)
    end
  end
end
