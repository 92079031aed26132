"""What the images install is the locked part that they need."""

from __future__ import annotations

from scripts.wheelhouse import image_environments, lock_blocks

LOCK = """async-timeout==5.0.1 ; python_full_version < '3.11.3' \\
    --hash=sha256:aa
kopf==1.45.2 \\
    --hash=sha256:bb \\
    --hash=sha256:cc
"""


def test_a_block_keeps_pin_and_hashes_and_drops_the_marker() -> None:
    assert lock_blocks(LOCK) == {
        "async-timeout": "async-timeout==5.0.1 \\\n    --hash=sha256:aa\n",
        "kopf": "kopf==1.45.2 \\\n    --hash=sha256:bb \\\n    --hash=sha256:cc\n",
    }


def test_both_early_and_late_patch_releases_of_the_image_python_are_served() -> None:
    releases = [environment["python_full_version"] for environment in image_environments()]
    assert releases == ["3.11.0", "3.11.99"]
