"""The README, followed block by block: what a newcomer does, on a real cluster."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field

from tests.docs.blocks import ROOT, Block, blocks
from tests.docs.reader import Reader

NAMESPACE = "default"
QUEUE = "emails"


@dataclass
class Story:
    """What happened; ``used`` are the blocks that were run."""

    reader: Reader
    used: list[Block] = field(default_factory=list)
    without_queue: str = ""
    columns: str = ""
    by_hand: str = ""


def play(reader: Reader) -> Story:
    """Follow the README. A block that fails ends it with what it printed."""
    story = Story(reader)
    unread = blocks(ROOT / "README.md")

    def take(language: str, *holds: str) -> Block:
        """The first block not yet used, which must be this one: the README is followed in its order."""
        block = unread.pop(0)
        assert block.language == language, f"{block}: expected {language}, found {block.language!r}"
        for text in holds:
            assert text in block.text, f"{block}: {text!r} is not in it"
        story.used.append(block)
        return block

    _check_make(take("sh", "make demo", "make test"))

    handler = take("python", "@app.handler")
    package = reader.application / "emails"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "handlers.py").write_text(handler.text)
    reader.python(handler)

    producer = take("python", "SyncProducer", "delay=")
    story.without_queue = _failing(reader, producer)

    reader.sh(take("sh", "helm install", "kubectl create secret"))
    queue = take("yaml", "kind: Queue")
    reader.cluster.apply(queue.text, namespace=NAMESPACE)
    story.columns = reader.sh(take("sh", "kubectl wait", "kubectl get queues"))
    reader.python(producer)
    reader.wait_for_log(NAMESPACE, QUEUE, "sending to ada@example.com from version 1")

    reader.sh(take("sh", "kubectl patch", "Completed"))
    reader.python(producer)
    reader.wait_for_log(
        NAMESPACE,
        QUEUE,
        "sending to grace@example.com from version 1",
        "sending to ada@example.com from version 2",
        "sending to grace@example.com from version 2",
    )

    by_hand = take("sh", "headrace topology promote", "headrace worker run")
    story.by_hand = reader.sh_until(by_hand, "sending to ada@example.com from version 1")
    take("text")  # the picture
    assert not unread, f"not followed: {', '.join(map(str, unread))}"
    return story


def _failing(reader: Reader, block: Block) -> str:
    try:
        reader.python(block)
    except AssertionError as error:
        return str(error)
    raise AssertionError(f"{block} succeeds although the queue does not exist yet")


def _check_make(block: Block) -> None:
    """The targets exist, and the whole check runs them."""
    check = (ROOT / ".ci" / "run").read_text()
    for line in block.text.splitlines():
        command = line.partition("#")[0].split()
        assert command[0] == "make", f"{block}: {line!r}"
        assert f"make {command[1]}" in check, f"{block}: .ci/run does not run make {command[1]}"
        subprocess.run(["make", "--dry-run", command[1]], cwd=ROOT, check=True, capture_output=True, timeout=60)
