"""Which bucket a user's likes are in: the jump consistent hash of Lamping and Veach.

When buckets are added, a key stays where it is or goes to one of the new ones; from n to m
buckets (m - n) / m of the keys go. There is no table of places to keep.

It is computed as Guava's `Hashing.consistentHash` does, and gives the same buckets as
`Hashing.consistentHash(Hashing.md5().hashString(user, UTF_8), buckets)` in Java.
"""

import hashlib

_MASK = (1 << 64) - 1
_MULTIPLIER = 2862933555777941757


def bucket_of(user, buckets):
    """The bucket of a user, from 0."""
    return consistent_hash(hash_of(user), buckets)


def hash_of(user):
    """64 bits in front of the jump: the first eight bytes of the MD5, the least significant first.

    Ids of users are anything but random, and the generator below is weak: keys that follow one
    another would follow one another into buckets as well.
    """
    return int.from_bytes(hashlib.md5(user.encode()).digest()[:8], "little")


def consistent_hash(key, buckets):
    """The bucket of 64 bits, from 0."""
    if buckets < 1:
        raise ValueError("there must be a bucket")
    state, bucket = key & _MASK, 0
    while True:
        # As LinearCongruentialGenerator.nextDouble in Java: a number above 0 and up to 1. Rounded
        # otherwise than by this division, a quotient could fall into another bucket.
        state = (state * _MULTIPLIER + 1) & _MASK
        following = int((bucket + 1) / (((state >> 33) + 1) / 2147483648.0))
        if following >= buckets:
            return bucket
        bucket = following
