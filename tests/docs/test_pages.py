"""Blocks of the pages in docs/: Python and shell run after the README, YAML is checked by the API server."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from headrace import WorkerSettings
from tests.docs.blocks import ROOT, Block, blocks, pages
from tests.docs.story import NAMESPACE, Story

# Their shell blocks stand on the README's queue. Those of other pages are about building and measuring, or leave
# names to fill in: of them only the make targets are checked here.
FOLLOWED = ("docs/operating.md", "docs/development.md", "docs/redis.md")
BLOCKS = [block for page in pages() if page.name != "README.md" for block in blocks(page)]


def of(language: str) -> list[Block]:
    return [block for block in BLOCKS if block.language == language]


@pytest.mark.parametrize("block", of("python"), ids=str)
def test_python(story: Story, block: Block) -> None:
    story.reader.python(block)


@pytest.mark.parametrize("block", of("yaml"), ids=str)
def test_yaml_is_accepted_by_the_api_server(story: Story, block: Block) -> None:
    answer = story.reader.cluster.kubectl(
        "apply", "--dry-run=server", "--namespace", NAMESPACE, "--filename=-", stdin=block.text
    )
    assert "(server dry run)" in answer


@pytest.mark.parametrize("block", [block for block in of("sh") if block.page in FOLLOWED], ids=str)
def test_shell(story: Story, block: Block) -> None:
    story.reader.sh(block)


@pytest.mark.parametrize("block", [block for block in BLOCKS if "make " in block.text], ids=str)
def test_make_targets_exist(block: Block) -> None:
    for target in re.findall(r"^make ([a-z-]+)", block.text, re.MULTILINE):
        result = subprocess.run(["make", "--dry-run", target, "ID=B1"], cwd=ROOT, capture_output=True, timeout=60)
        assert result.returncode == 0, f"{block}: make {target}: {result.stderr.decode()}"


@pytest.mark.parametrize("block", of("toml"), ids=str)
def test_toml_is_a_settings_file_of_a_worker(block: Block, tmp_path: Path) -> None:
    (tmp_path / "worker.toml").write_text(block.text)
    assert WorkerSettings(config=tmp_path / "worker.toml") != WorkerSettings()


def test_every_block_is_of_a_kind_that_is_known() -> None:
    known = {"python", "yaml", "toml", "sh", "text", "dockerfile", ""}
    assert not [f"{block}: {block.language}" for block in BLOCKS if block.language not in known]
