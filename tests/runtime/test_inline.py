"""The runtime of one process."""

from __future__ import annotations

import pytest

from dagflow.runtime.inline import InlineRuntime
from tests.runtime.runtime_contract import RuntimeContract, Start


class TestInlineRuntime(RuntimeContract):
    """The inline runtime keeps the contract."""

    @pytest.fixture
    def start(self) -> Start:
        """Starts the runtime."""
        return InlineRuntime
