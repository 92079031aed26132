"""Benchmarks: Headrace beside its peers, in one run, on one machine, against one Redis. See docs/benchmarks.md."""
