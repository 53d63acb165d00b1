"""Pages of a row of any width, forwards and back.

A place between two pages is the name of a column: the one with which the next page begins
(`start`), or with which the page before ends (`until`). It stays right whatever is written or
deleted meanwhile, which a page number would not.
"""

import uuid
from dataclasses import dataclass


@dataclass
class Page:
    """What is shown at once, where the next page starts, and until where the one before goes."""

    items: list
    following: uuid.UUID | None
    preceding: uuid.UUID | None


def page(fetch, resolve, size, start=None, until=None):
    """A page from `start` on, or until `until`, or the first one.

    `fetch(name, forward, count)` reads columns from a name on, which may be empty; `resolve`
    makes pairs of name and item of columns, and leaves out those that lead nowhere.
    """
    if until is None:
        items, following = _walk(fetch, resolve, size, start, True)
        return Page(items, following, _beyond(fetch, resolve, start, False) if start else None)
    items, preceding = _walk(fetch, resolve, size, until, False)
    if len(items) < size:
        # There is no full page any more before that place: the first page is where one arrives.
        return page(fetch, resolve, size)
    return Page(items[::-1], _beyond(fetch, resolve, until, True), preceding)


def _walk(fetch, resolve, size, start, forward):
    """Items from a name on, and the name of the one behind them."""
    # That one is read as well, for a column that leads nowhere is no place to go to.
    found, name = [], start.bytes if start else b""
    while name is not None and len(found) <= size:
        wanted = size + 1 - len(found)
        columns = fetch(name, forward, wanted + 1)
        found += resolve(columns[:wanted])
        name = columns[wanted].name if len(columns) > wanted else None
    following = uuid.UUID(bytes=found[size][0]) if len(found) > size else None
    return [item for _, item in found[:size]], following


def _beyond(fetch, resolve, place, forward):
    """The name of the next item behind a place, in one of the directions."""

    def behind(name, forward, count):
        # The column of that place may be gone, so it is left out by its name.
        columns = fetch(name, forward, count + 1)
        return [column for column in columns if column.name != place.bytes][:count]

    return _walk(behind, resolve, 0, place, forward)[1]
