"""Time UUIDs (version 1): a moment in steps of 100 ns since 15 October 1582."""

import uuid

# Steps between the beginning of the Gregorian calendar and 1 January 1970.
_UNIX_EPOCH = 0x01B21DD213814000
_PER_SECOND = 10_000_000


def now():
    """A new one. Those of one process ascend."""
    return uuid.uuid1()


def at(unix_time):
    """A new one for a given moment in seconds; its node and sequence are of this process."""
    fresh = uuid.uuid1()
    return _build(_steps(unix_time), fresh.bytes[8:])


def seconds(time_uuid):
    """Its moment in Unix time, cut to whole seconds."""
    return (time_uuid.time - _UNIX_EPOCH) // _PER_SECOND


def bounds(unix_time):
    """The least and the greatest name of one second, to slice with."""
    first = _steps(int(unix_time))
    return _build(first, b"\x00" * 8), _build(first + _PER_SECOND - 1, b"\xff" * 8)


def _steps(unix_time):
    return round(unix_time * _PER_SECOND) + _UNIX_EPOCH


def _build(steps, tail):
    low, mid, high = steps & 0xFFFFFFFF, (steps >> 32) & 0xFFFF, steps >> 48
    head = low.to_bytes(4, "big") + mid.to_bytes(2, "big") + (0x1000 | high).to_bytes(2, "big")
    return uuid.UUID(bytes=head + tail)
