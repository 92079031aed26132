"""The program of the Pods that KEDA scales by the length of a Redis list: it takes what is in the list.

``python -m bench.scaling.list_pod URL LIST``
"""

from __future__ import annotations

import sys
import time

import redis

from bench.scaling.pods import RAN, say_loaded


def main(url: str, name: str) -> None:
    say_loaded(url, name)
    with redis.Redis.from_url(url) as client:
        while True:
            if client.blpop([name], timeout=1) is not None:
                client.rpush(RAN + name, time.monotonic())


if __name__ == "__main__":
    main(*sys.argv[1:])
