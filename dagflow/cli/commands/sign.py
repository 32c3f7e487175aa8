"""`dagflow sign`: let this user's runs continue a checkpoint whose pickles another key has signed, or none."""

from __future__ import annotations

import click

from dagflow.cli import output
from dagflow.cli.locations import locate
from dagflow.cli.number_format import count
from dagflow.cli.shared_options import Settings, store_option, verbose_option
from dagflow.engine.signing import sign
from dagflow.errors import MissingError
from dagflow.journal.reader import with_roots_of_run
from dagflow.storage.location import absolute


@click.command("sign")
@click.argument("checkpoint", metavar="CHECKPOINT|APP")
@store_option
@verbose_option
@click.pass_obj
def command(settings: Settings, checkpoint: str, app: str | None) -> int:
    """Sign the pickles of CHECKPOINT, or of that of the app file APP, with your key, so that your runs accept them.

    Custom operators without a state_type leave pickles, and unpickling runs code: a run accepts only those that its
    user has signed. Sign a checkpoint of another user or machine, or one whose key is lost, if you know that no
    other user could write to it. No run may be active on it.
    """
    checkpoint, storage = locate(checkpoint, app, settings)
    try:
        store = with_roots_of_run(storage, absolute(checkpoint))
    except MissingError as error:
        raise click.UsageError(str(error)) from error
    output.result(f"signed {count(sign(store), 'pickle')} of {settings.redact(checkpoint)}")
    return 0
