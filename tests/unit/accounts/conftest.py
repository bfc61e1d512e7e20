from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from muster.testing import accounts
from muster.testing.accounts import Ground


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    async with accounts.ground(tmp_path) as found:
        yield found
