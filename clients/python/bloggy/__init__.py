"""The blog of the BloggyAppy keyspace: a small application on the Thrift interface of 2010."""
