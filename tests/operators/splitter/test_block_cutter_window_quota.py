from __future__ import annotations

from dagflow.api.context import WindowBudget
from dagflow.api.control import WindowLimits
from operators.splitter.block_cutter import WindowQuota


def test_the_first_block_of_a_window_always_fits() -> None:
    """However small the budget; otherwise a large block would wait for ever."""
    quota = WindowQuota(WindowBudget(1, 1))
    assert quota.take_file()
    assert quota.take_block(1 << 40)
    assert not quota.take_block(1)
    assert not quota.take_file()


def test_a_limit_of_blocks_takes_the_place_of_the_budget() -> None:
    """An app that sets blocks_threshold gets windows of that size."""
    quota = WindowQuota(WindowBudget(2, 2), WindowLimits(blocks=3))
    assert [quota.take_block(100) for _ in range(4)] == [True, True, True, False]
    assert not quota.take_file()
