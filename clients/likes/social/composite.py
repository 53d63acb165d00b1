"""Names of `CompositeType(ReversedType(LongType),UTF8Type)`: a time and an id.

For each component two bytes with its length, its bytes, and a zero byte. The server sorts by the
time, the newest first, and then by the id.
"""


def name(at, id):
    """The name of the column for one like."""
    return _component(at.to_bytes(8, "big")) + _component(id.encode())


def parse(column_name):
    """The time and the id of a name."""
    at, rest = _split(column_name)
    id, _ = _split(rest)
    return int.from_bytes(at, "big"), id.decode()


def _component(value):
    return len(value).to_bytes(2, "big") + value + b"\x00"


def _split(rest):
    length = int.from_bytes(rest[:2], "big")
    return rest[2 : 2 + length], rest[3 + length :]
