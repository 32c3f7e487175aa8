"""The logical plan holds constructed operators, and is a graph on networkx."""

from __future__ import annotations

import pickle
from pathlib import Path

import networkx as nx

from dagflow.plan.load import load_app
from tests.plan.sample_operators import PieceInput, Reader
from tests.spec.apps import VALID


def test_operators_are_constructed_with_the_apps_properties(tmp_path: Path) -> None:
    """Each plan has instances of its own."""
    (tmp_path / "app.yaml").write_text(VALID)
    first, second = (load_app(tmp_path / "app.yaml") for _ in range(2))
    reader = first.operators["reader"].operator
    assert isinstance(reader, Reader) and reader.limit == 3
    assert reader is not second.operators["reader"].operator
    assert first.operators["source"].is_control and not first.operators["reader"].is_control


def test_the_graph_has_every_operator_and_edge(tmp_path: Path) -> None:
    """Nodes and edges carry what they stand for."""
    (tmp_path / "app.yaml").write_text(VALID)
    plan = load_app(tmp_path / "app.yaml")
    graph = plan.graph
    assert nx.is_directed_acyclic_graph(graph) and list(graph) == list(plan.operators)
    assert {data["edge"] for _, _, data in graph.edges(data=True)} == set(plan.edges)
    assert graph.nodes["source"]["node"].operator is plan.operators["source"].operator


def test_operators_of_a_plan_survive_pickling(tmp_path: Path) -> None:
    """They go to executors as they are."""
    (tmp_path / "app.yaml").write_text(VALID)
    operator = pickle.loads(pickle.dumps(load_app(tmp_path / "app.yaml").operators["source"].operator))
    assert isinstance(operator, PieceInput) and operator.size == 1 << 20
