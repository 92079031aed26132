"""Headrace: declarative, versioned, partitioned delayed-job queues on Redis."""
