"""Short messages by user and month, in CQL."""
