"""From a Queue to the Redis that it lives in, and what that says about it."""
