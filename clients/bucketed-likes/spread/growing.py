"""More buckets for a post that already has likes, while others go on reading and writing."""

import time

from . import work
from .post import REFRESH_S, Layout, Likes, LikesError, enough

# After this time nobody uses a layout of before any more: it is read anew after REFRESH_S, and a
# call under way has come to its end.
SETTLE_S = REFRESH_S + 4


def grow(open_connection, post, buckets, processes=2, settle_s=SETTLE_S):
    """Gives a post more buckets. Returns how many likes it copied, and how many there were.

    First everybody writes to the new place as well, then what is there is copied, and then
    everybody reads from the new places. The old ones are left for who reads there: see `sweep`.
    Where it was interrupted, it is begun again with the same number.
    """
    enough(buckets)
    with open_connection() as client:
        likes = Likes(client)
        layout = likes.layout(post, fresh=True)
        if layout.former:
            raise LikesError(f"{post} has grown before: sweep first")
        if layout.following not in (None, buckets):
            raise LikesError(f"{post} is growing to {layout.following} buckets")
        if buckets <= layout.buckets:
            raise LikesError(f"{post} has {layout.buckets} buckets, and can only get more")
        layout = layout._replace(following=buckets)
        likes.set_layout(layout)
        time.sleep(settle_s)
        copied = work.copy(open_connection, layout, processes)
        likes.set_layout(Layout(post, buckets, former=layout.buckets))
        return copied


def sweep(open_connection, post, processes=2, settle_s=SETTLE_S):
    """Deletes what a growth left behind; returns how many likes.

    Whoever began to read before the growth came to its end must have ended.
    """
    with open_connection() as client:
        likes = Likes(client)
        layout = likes.layout(post, fresh=True)
        if not layout.former:
            raise LikesError(f"{post} has nothing to sweep")
        time.sleep(settle_s)
        swept = work.sweep(open_connection, layout, processes)
        likes.set_layout(Layout(post, layout.buckets))
        return swept
