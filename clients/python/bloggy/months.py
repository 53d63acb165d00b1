"""Months, as they are in an archive: `2010-11`, always those of UTC."""

import calendar
import re
import time

from alexandra import timeuuid


def of(time_uuid):
    """The month of a name."""
    return time.strftime("%Y-%m", time.gmtime(timeuuid.seconds(time_uuid)))


def bounds(month):
    """The least and the greatest name of a month; ValueError where it is none."""
    if not re.fullmatch(r"[1-9][0-9]{3}-(0[1-9]|1[0-2])", month):
        raise ValueError(f"not a month like 2010-11: {month}")
    year, number = map(int, month.split("-"))
    first = calendar.timegm((year, number, 1, 0, 0, 0))
    last = calendar.timegm((year + number // 12, number % 12 + 1, 1, 0, 0, 0)) - 1
    return timeuuid.bounds(first)[0].bytes, timeuuid.bounds(last)[1].bytes
