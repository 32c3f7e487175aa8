"""Says at the start of a run that its app differs from the one that made earlier output, and what to do about that."""

from __future__ import annotations

from dagflow.engine.placed_app import PlacedApp
from dagflow.engine.publication import windows_in_targets
from dagflow.engine.removed_sources import remover_of
from dagflow.engine.replayer import why_not_made_again
from dagflow.journal.journal import Journal
from dagflow.report.app_changes import app_changes

_MOST_NAMED = 4
"""Changes that are named; a new app has many."""


def change_notices(app: PlacedApp, journal: Journal, replay_command: str) -> list[str]:
    """The notices about a changed app; none where it has not changed.

    Args:
        app: The app as it is now.
        journal: Holds the run before, and its windows.
        replay_command: The command that runs windows again, up to their ids.
    """
    state = journal.state
    if state.facts is None or not (changes := app_changes(state.facts, app.facts)):
        return []
    named = [change.text for change in changes[:_MOST_NAMED]]
    more = [f"and {len(changes) - _MOST_NAMED} more"] if len(changes) > _MOST_NAMED else []
    notices = [f"the app has changed since the run before: {'; '.join([*named, *more])}"]
    first, last = state.forgotten + 1, state.last_committed
    if last < first or not any(change.concerns_output for change in changes):
        return notices
    windows = f"window {last}" if first == last else f"windows {first} to {last}"
    said = f"the output of {windows} was made by the earlier app"
    if remover := remover_of(app.operators, state):
        return [*notices, f"{said}; nothing makes it again, because operator '{remover}' has removed the source files"]
    plans = [journal.window(each).plan for each in sorted({first, last})]
    obstacle = why_not_made_again(app, state, range(first, last + 1), plans)
    if obstacle is not None:
        occupied = [target.name for target, _ in windows_in_targets(app.operators, state, app.storage)]
        where = f", into another place than {' or '.join(occupied)}," if occupied else ""
        return [*notices, f"{said}; only a run with --fresh{where} makes it again, because {obstacle.message}"]
    ids = str(last) if first == last else f"{first}-{last}"
    return [*notices, f"{said}; to make it again: {replay_command} --window {ids}"]
