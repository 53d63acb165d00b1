"""What every application here needs: bindings, a connection, time UUIDs, a keyspace."""
