"""Ends operators, so that a failure to end does not take the place of the failure that caused it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from dagflow.execution.chain import Chain

logger = logging.getLogger(__name__)


def tear_down(*chains: Chain, failed: BaseException | None = None) -> None:
    """End all operators of some chains that were set up, also where one of them fails to end.

    Args:
        chains: The chains.
        failed: What has failed before, which is the failure to report: the log has the others.

    Raises:
        DagflowError: An operator failed to end, and nothing had failed before.
    """
    failures = [error for chain in chains for error in chain.teardown()]
    first = failures.pop(0) if failed is None and failures else None
    for error in failures:
        logger.warning("teardown failed as well: %s", error)
    if first is not None:
        raise first


@contextlib.contextmanager
def torn_down(*chains: Chain) -> Iterator[None]:
    """Surrounds the work of chains: their operators are ended behind it, however it ends; see tear_down()."""
    try:
        yield
    except BaseException as error:
        tear_down(*chains, failed=error)
        raise
    tear_down(*chains)
