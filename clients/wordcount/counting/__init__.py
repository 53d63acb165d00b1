"""Counts words over a whole column family: splits of the ring, read by many processes at once."""
