"""What a class says of itself is complete, and in words."""

from __future__ import annotations

import pytest

from dagflow.api.partitioning import BacklogStats
from dagflow.spec.class_description import (
    PropertyInfo,
    describe,
    describe_named,
    describe_operators,
    describe_partitioners,
)
from dagflow.spec.class_lookup import UnknownClassError
from tests.plan import sample_operators


def test_a_class_shows_its_ports_and_properties() -> None:
    """Type, default and meaning of each, the nested names included."""
    info = describe(sample_operators.PieceInput)
    assert (info.kind, info.summary) == ("input", "Makes pieces.")
    assert [(port.name, port.type, port.meaning) for port in info.outputs] == [
        ("pieces", "SmallPiece", "Every piece of the files."),
        ("others", "Other", ""),
    ]
    files, size = info.properties
    assert (files.name, files.type, files.meaning) == ("files", "path or list of paths", "what to read")
    assert (size.type, size.default, size.is_required) == ("size, such as 64MiB", "1MiB", False)


def test_what_is_said_of_a_single_port_is_said_once() -> None:
    """It stands beside the port, and is left out of the text."""
    info = describe_named("FileCompletion")
    assert info.outputs[0].meaning == "The files that are done, in the order in which they were found."
    assert "Ports:" not in info.details and info.outputs[0].meaning not in info.details
    assert info.details.startswith("Emits a file's metadata") and "Guarantee: each file once" in info.details


def test_names_within_a_property_are_shown_as_well() -> None:
    """A mapping of known names lists them; a required property has no default."""
    match, ratios = describe(sample_operators.Step).properties
    assert [choice.name for choice in match.choices] == ["prefix", "suffix"]
    assert (match.type, ratios.type) == ("mapping or null", "list of number or null")
    assert describe(sample_operators.Sink).properties[0].is_required
    assert describe(sample_operators.Step).kind == "partitioned"
    assert describe(sample_operators.Follower).kind == "control"


def test_every_built_in_property_has_a_meaning() -> None:
    """No user has to read the source."""
    operators, partitioners = describe_operators(), describe_partitioners()
    for infos in (operators, partitioners):
        assert [info.name for info in infos] == sorted(info.name for info in infos)
    infos = [*operators, *partitioners]
    assert [(info.name, item.name) for info in infos for item in info.properties if not item.meaning] == []
    assert all(info.summary for info in infos)


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    """As in the error of an app."""
    with pytest.raises(UnknownClassError, match="did you mean 'RecordWriter'"):
        describe_named("RecordWritr")


def test_a_partitioner_shows_its_properties() -> None:
    """A built-in one, and any class that an app may name."""
    info = describe_named("DeadlinePartitioner")
    assert (info.kind, info.inputs, info.outputs) == ("partitioner", (), ())
    assert [item.default for item in info.properties if item.name == "target_millis"] == ["60000"]
    assert describe(PolicyWithoutBase).properties == (PropertyInfo("count", "whole number", "3", "how many"),)


class PolicyWithoutBase:
    """A policy that derives from nothing.

    Attributes:
        count: how many
    """

    count: int = 3

    def define_partitions(self, stats: BacklogStats) -> int:
        return self.count


def test_options_of_each_format_are_shown_under_its_name() -> None:
    """What {type: name, ...} takes is known from the command line, names that pydantic keeps for itself included."""
    reading = next(item for item in describe_named("BlockReader").properties if item.name == "format")
    options = {option.name: option for option in reading.choices}
    assert options["lines.validate"].default == "null"
    assert options["fixed.length"].is_required
    assert [name for name, option in options.items() if not option.meaning] == []
