"""`dagflow warm`: makes every later start of Spark on this machine faster."""

from __future__ import annotations

import time

import click

from dagflow.cli import output
from dagflow.runtime.start_checks import require_version


@click.command("warm")
def command() -> int:
    """Make local runs on Spark start faster: store Spark's Java classes as a memory image.

    It takes half a minute and 105 MB. Repeat it after you have installed another Java or another PySpark.
    """
    require_version()
    # Here, because no other command imports Spark before it needs it.
    from dagflow.runtime.spark_context import keep_classes

    started = time.monotonic()
    archive = keep_classes()
    size = archive.stat().st_size / 1e6
    output.result(f"kept Spark's classes in {archive} ({size:.0f} MB, {time.monotonic() - started:.0f} s)")
    return 0
