"""What the tasks of a window did, put together."""

from __future__ import annotations

from pathlib import Path

from dagflow.api.sources import FileSources, decode_sources
from dagflow.engine.window_committer import intent_of
from dagflow.execution.messages import TaskResult
from dagflow.metrics.counters import Counters
from dagflow.plan.placement import place
from dagflow.storage.pending import FileFacts, PendingFile
from tests.engine.dags import dag
from tests.engine.sample_app import TextSource
from tests.execution.sample_operators import SampleWords
from tests.journal.samples import plan_of


def file(operator: str, name: str) -> PendingFile:
    """A file that an operator has made for its target."""
    return PendingFile(f"/out/{name}", f"/out/.pending/{name}", 1, 1, facts=FileFacts(operator))


def test_files_that_stand_for_others_leave_the_rest_their_sources(tmp_path: Path) -> None:
    """Each file is counted for the task that made it; of what a target has from before the sources are not known."""
    plan = place(
        dag(tmp_path, {"source": TextSource(texts=[]), "lines": (SampleWords(), 2)}, ["source.out lines.samples"])
    )
    sources = [FileSources.of([number]) for number in range(4)]
    results = [
        TaskResult(
            0,
            partition,
            Counters(),
            (file("lines", f"new-{partition}"), file("other", f"kept-{partition}")),
            (),
            {},
            {},
            0.0,
            sources=(sources[2 * partition], sources[2 * partition + 1]),
        )
        for partition in range(2)
    ]
    taken = [file("lines", name) for name in ("a", "b", "c")]
    intent = intent_of(plan_of(7), plan, results, taken={"lines": taken})
    found = [
        (each.stage, each.partition, one)
        for each in intent.produced
        for one in decode_sources(each.sources, each.files)
    ]
    assert list(zip([one.final_url for one in intent.files], found, strict=True)) == [
        ("/out/kept-0", ("lines", 0, sources[1])),
        ("/out/kept-1", ("lines", 1, sources[3])),
        *((one.final_url, ("lines", 0, None)) for one in taken),
    ]
