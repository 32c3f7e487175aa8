"""Tears down operators so that a failure of the teardown does not hide the failure that caused it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from dagflow.execution.chain import Chain

logger = logging.getLogger(__name__)


def tear_down(*chains: Chain, failed: BaseException | None = None) -> None:
    """Tear down all operators of some chains that were set up, and raise the first failure if nothing failed before."""
    failures = [error for chain in chains for error in chain.teardown()]
    first = failures.pop(0) if failed is None and failures else None
    for error in failures:
        logger.warning("teardown failed as well: %s", error)
    if first is not None:
        raise first


@contextlib.contextmanager
def torn_down(*chains: Chain) -> Iterator[None]:
    """Tear down the operators of chains after the block, however it ends; see tear_down()."""
    try:
        yield
    except BaseException as error:
        tear_down(*chains, failed=error)
        raise
    tear_down(*chains)
