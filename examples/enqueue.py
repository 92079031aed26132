"""The smallest producer: ``python -m examples.enqueue redis://127.0.0.1:6379/0``.

Its queue must exist: ``headrace topology promote greetings --version 1 --partitions 2``.
"""

import sys

from headrace import HeadraceError, SyncProducer


def main(url: str) -> None:
    with SyncProducer(url) as producer:
        producer.enqueue("greetings", "greet", {"name": "Ada"})
        producer.enqueue("greetings", "greet", {"name": "Grace"}, delay=2, max_retries=5)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m examples.enqueue URL, for example redis://127.0.0.1:6379/0")
    try:
        main(sys.argv[1])
    except HeadraceError as error:
        sys.exit(f"Error: {error}")
