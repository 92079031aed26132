"""The smallest producer: ``python -m examples.enqueue redis://127.0.0.1:6379/0``."""

import sys

from headrace import SyncProducer


def main(url: str) -> None:
    with SyncProducer(url) as producer:
        producer.enqueue("greetings", "greet", {"name": "Ada"})
        producer.enqueue("greetings", "greet", {"name": "Grace"}, delay=2, max_retries=5)


if __name__ == "__main__":
    main(sys.argv[1])
