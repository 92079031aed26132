"""Looking through one partition on Redis, step by step, while it is in use."""
