"""Explains why Spark gave up the master of a standalone cluster, which it reports only in its log."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from dagflow.errors import DagflowError

_GAVE_UP = "All masters are unresponsive"
"""What Spark logs after three attempts, before it stops; later calls then fail for other reasons."""

_GIVE = (
    "give spark.authenticate: 'true' and spark.authenticate.secret as the master and the workers have them, under "
    "`spark` of the app or in Spark's conf/spark-defaults.conf"
)

_REASONS = (
    (re.compile(r"Expected SaslMessage"), "it asks for a secret, and this run has none", _GIVE),
    (re.compile(r"SaslException"), "it has another secret than this run", _GIVE),
    (
        re.compile(r"bootstrapping client after \d+ ms\s[^\n]*EOFException"),
        "this run asks for a secret, and it has none",
        "give master and workers spark.authenticate: 'true' and the same spark.authenticate.secret, or leave them out "
        "of the app and of Spark's conf/spark-defaults.conf",
    ),
)

_CAUSE = re.compile(r"Caused by: (?:[\w.$]+: )*([^\n]+)")


@contextlib.contextmanager
def master_named(master: str, log: Path) -> Iterator[None]:
    """Replace the error of a start by one that says why Spark could not connect to the master, if it could not."""
    try:
        yield
    except DagflowError as error:
        if (found := loss_in(log.read_text("utf-8", errors="replace") if log.exists() else "", master)) is None:
            raise
        raise found from error


def loss_in(text: str, master: str) -> DagflowError | None:
    """The error that Spark's log reports; None where Spark has not given up its master."""
    if _GAVE_UP not in text:
        return None
    for pattern, why, hint in _REASONS:
        if pattern.search(text):
            return DagflowError(f"Spark got no connection to the master {master}: {why}", hint=hint)
    causes = _CAUSE.findall(text)
    why = causes[-1] if causes else "it does not answer"
    return DagflowError(
        f"Spark got no connection to the master {master}: {why}", hint="start it, or give another one as `master`"
    )
