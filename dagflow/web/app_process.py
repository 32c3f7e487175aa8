"""Looks at an app in a process of its own, for the server, and prints what it found as JSON.

python -m dagflow.web.app_process look APP CHECKPOINT
python -m dagflow.web.app_process why APP CHECKPOINT URL
python -m dagflow.web.app_process sample APP OPERATOR.PORT
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dagflow.api.control import InputOperator
from dagflow.api.properties import property_model
from dagflow.engine.operator_state import directory_of_state
from dagflow.engine.preview import find_port, preview
from dagflow.engine.preview_chain import PreviewOptions
from dagflow.engine.repeatable import remover_of, why_not_replayed
from dagflow.errors import AppError, DagflowError, PlanError
from dagflow.execution.state_codec import StateCodec
from dagflow.journal.reader import read_journal
from dagflow.journal.saved_state import without_checksums
from dagflow.plan.load import load_app
from dagflow.plan.logical import LogicalPlan, OperatorNode, own_edge, own_operators
from dagflow.plan.placement import PlacedApp, property_fact
from dagflow.report.app_changes import app_changes
from dagflow.spec.shown_text import Redactor, shown_value
from dagflow.spec.yaml_tree import Mapping
from dagflow.storage.context import StorageContext
from dagflow.storage.location import absolute, redacted
from dagflow.web.server import end_with_stdin

SAMPLE = 20
_MOST_TEXT = 400


def look(path: str, checkpoint: str) -> dict[str, Any]:
    """Mistakes, operators and streams of an app, and how it differs from that of the newest run."""
    try:
        app = load_app(path)
    except AppError as error:
        problems = [{"line": each.line, "column": each.column, "message": each.message} for each in error.problems]
        return {"problems": problems, "operators": {}, "streams": {}, "changes": []}
    edges = [own_edge(edge, app.own_ports) for edge in app.edges]
    return {
        "problems": [],
        "operators": {name: _operator(app, node) for name, node in own_operators(app).items()},
        "streams": {f"{own.source} -> {own.target}": own.stream for own in edges if own is not None},
        "changes": list(_changes(app, checkpoint)),
    }


def _operator(app: LogicalPlan, node: OperatorNode) -> dict[str, Any]:
    operator, spec = node.operator, None if app.spec is None else app.spec.operators.get(node.name)
    entries = spec.properties_node.entries if spec is not None and isinstance(spec.properties_node, Mapping) else {}
    ports = {**operator.input_ports, **operator.output_ports}
    properties = {}
    for name in property_model(type(operator)).model_fields:
        value = getattr(operator, name, None)
        if isinstance(value, dict | list | tuple):
            text = without_checksums(json.dumps(property_fact(name, value, {}), ensure_ascii=False))
        else:
            text = shown_value(name, value if isinstance(value, str) else json.dumps(value, default=str))
        text = _shortened(text)
        text = text if app.spec is None else app.spec.redact(text)
        properties[name] = {"value": text, "line": entries[name].key_place.line if name in entries else None}
    return {
        "doc": (inspect.getdoc(type(operator)) or "").partition("\n")[0],
        "line": spec.place.line if spec is not None else None,
        "ports": {name: port.type_name for name, port in ports.items()},
        "properties": properties,
    }


def _changes(app: LogicalPlan, checkpoint: str) -> Iterator[dict[str, str]]:
    """Each difference with what it means for windows that are committed: keeps, repeats or refuses."""
    storage = app.attributes.storage_context()
    state = read_journal(storage, checkpoint)[1]
    if state.facts is None:
        return
    placed = PlacedApp.of(app, storage)
    windows = range(state.forgotten + 1, state.last_committed + 1)
    obstacle = why_not_replayed(placed)
    remover = remover_of(placed.operators, state)
    for change in app_changes(state.facts, placed.facts):
        if not change.concerns_output or not windows:
            yield {"verdict": "keeps", "text": f"{change.text}: the published output stays as it is"}
        elif remover:
            text = (
                f"nothing makes the published output again, because operator '{remover}' has removed the source files"
            )
            yield {"verdict": "refuses", "text": f"{change.text}: {text}"}
        elif obstacle is None:
            yield {"verdict": "repeats", "text": f"{change.text}: dagflow replay makes the published output again"}
        else:
            yield {"verdict": "refuses", "text": f"{change.text}: only --fresh makes it again, for {obstacle.message}"}


def why(path: str, checkpoint: str, url: str) -> dict[str, Any]:
    """The answer of each splitter of an app about a file, and when the file was taken."""
    app = load_app(path)
    storage = app.attributes.storage_context()
    taken_ms = _taken_ms(app, storage, checkpoint, url)
    explained = {
        name: answer
        for name, operator in app.instances.items()
        if isinstance(operator, InputOperator)
        and (answer := operator.explain_input(absolute(url), storage)) is not None
    }
    if not explained:
        sentence = "No operator of the app lists files, so none can say."
        return {"taken": False, "sentence": sentence, "taken_ms": taken_ms}
    taken = [name for name, (is_taken, _) in explained.items() if is_taken]
    name = taken[0] if taken else next(iter(explained))
    return {"taken": bool(taken), "operator": name, "sentence": explained[name][1], "taken_ms": taken_ms}


def _taken_ms(app: LogicalPlan, storage: StorageContext, checkpoint: str, url: str) -> int | None:
    """When splitters took a file, by the state that they have left in a checkpoint; None where no state says it."""
    saved = read_journal(storage, checkpoint)[1].control_state.operators
    moments: list[int] = []
    for name, operator in app.instances.items():
        if isinstance(operator, InputOperator) and name in saved:
            state = StateCodec.of_snapshots(name, operator).decode(saved[name])
            moment = operator.when_taken(absolute(url), storage, state, directory_of_state(checkpoint, name))
            if moment is not None:
                moments.append(moment)
    return max(moments, default=None)


def sample(path: str, port: str) -> dict[str, Any]:
    """The first records that reach a port, and why there are no more where a run would fail on what was read."""
    app = load_app(path)
    try:
        find_port(app, port)
    except PlanError as error:
        # Otherwise the message would speak of the command line.
        return {"unknown": "; ".join(problem.message for problem in error.problems), "hint": error.hint}
    found = preview(app, PreviewOptions(port, SAMPLE))
    names = list(found.columns)
    rows = [
        [f"{redacted(each.file)}:{each.offset}" if each.file else "", *(_cell(each.values.get(name)) for name in names)]
        for each in found.records
    ]
    why_it_ends = "\n".join([*found.notes(), *([] if found.error is None else [str(found.error)])])
    return {
        "columns": ["file:offset", *names],
        "types": dict(found.columns),
        "rows": rows,
        "error": Redactor({} if app.spec is None else app.spec.secrets)(why_it_ends),
    }


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return _shortened(value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value))


def _shortened(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}…"


_QUESTIONS: dict[str, Callable[..., dict[str, Any]]] = {"look": look, "why": why, "sample": sample}


def main(arguments: Sequence[str]) -> int:
    """Answer one question on stdout; what the app's modules print there goes to stderr."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answer:
        os.dup2(2, 1)
        asked, *rest = arguments
        try:
            found = _QUESTIONS[asked](*rest)
        except DagflowError as error:
            found = {"error": error.message, "hint": error.hint}
        json.dump(found, answer)
    return 0


if __name__ == "__main__":
    threading.Thread(target=end_with_stdin, daemon=True).start()
    sys.exit(main(sys.argv[1:]))
