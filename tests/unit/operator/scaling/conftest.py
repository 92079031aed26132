"""The tests of one look after another begin with a queue that has no job and no worker."""

from __future__ import annotations

import pytest

from tests.unit.operator.scaling.scene import Scene


@pytest.fixture
async def scene() -> Scene:
    """A queue with one version, at which the scaler has looked once."""
    made = Scene()
    await made.create()
    await made.look(woken=True)
    return made
