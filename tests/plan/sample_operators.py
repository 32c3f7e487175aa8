"""Operators of every shape that plans are made of; they do nothing worth running."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from dagflow.api.control import ControlOperator, InputOperator
from dagflow.api.operator import Operator
from dagflow.api.ports import InputPort, OutputPort
from dagflow.api.properties import Count, Paths, Size


class FilePiece:
    """A metadata tuple."""


class SmallPiece(FilePiece):
    """A kind of piece."""


class Other:
    """A metadata tuple that is no piece."""


@dataclass(frozen=True, slots=True)
class Tagged(FilePiece):
    """A piece with a field."""

    host: str


class Match(BaseModel):
    """A property with names of its own."""

    model_config = ConfigDict(extra="forbid")

    prefix: str | None = None
    suffix: str | None = None


class PieceInput(InputOperator):
    """Makes pieces.

    Ports:
        pieces: Every piece of the files.
    """

    files: Annotated[Paths, Field(description="what to read")] = "data"  # type: ignore[assignment]  # one location stands for a list
    size: Size = 1 << 20

    pieces = OutputPort(SmallPiece)
    others = OutputPort(Other)

    def emit_tuples(self) -> None:
        """Nothing to emit."""


class TaggedSource(InputOperator):
    """Makes pieces with a field."""

    tagged = OutputPort(Tagged)

    def emit_tuples(self) -> None:
        """Nothing to emit."""


class Follower(ControlOperator):
    """Takes pieces in the driver, and gives them on."""

    input = InputPort(FilePiece)
    second = InputPort(FilePiece, optional=True)
    output = OutputPort(FilePiece)

    @input.each
    def first(self, piece: FilePiece) -> None:
        """Pass it on."""
        self.output.emit(piece)

    @second.each
    def other(self, piece: FilePiece) -> None:
        """Pass it on."""
        self.output.emit(piece)


class Reader(Operator):
    """Makes records of pieces."""

    limit: Count = 10
    format: Annotated[str | Match, Field(description="what a record is")] = "lines"

    pieces = InputPort(FilePiece)
    records = OutputPort()
    done = OutputPort(FilePiece)

    @pieces.each
    def read(self, piece: FilePiece) -> None:
        """Say that it is done."""
        self.done.emit(piece)


class Step(Operator):
    """Passes records from either side on."""

    match: Match | None = None
    ratios: list[float] | None = None

    left = InputPort(optional=True)
    right = InputPort(optional=True)
    pieces = InputPort(FilePiece, optional=True)
    output = OutputPort()
    done = OutputPort(FilePiece)

    def check_properties(self) -> None:
        """One of prefix and suffix at most."""
        if self.match is not None and self.match.prefix and self.match.suffix:
            raise ValueError(f"match: give prefix or suffix, not both; got {self.match.prefix!r}")

    @left.batch
    def take_left(self, batch: Any) -> None:
        """Pass it on."""
        self.output.emit(batch)

    @right.batch
    def take_right(self, batch: Any) -> None:
        """Pass it on."""
        self.output.emit(batch)

    @pieces.each
    def take_piece(self, piece: FilePiece) -> None:
        """Pass it on."""
        self.done.emit(piece)


class Sink(Operator):
    """Takes records in."""

    path: str

    input = InputPort()

    @input.batch
    def take(self, batch: Any) -> None:
        """Forget it."""


class MethodlessPort(Operator):
    """Has a port, and no method for it."""

    input = InputPort()


class RequiresOutput(Operator):
    """Has an output that an app must connect."""

    input = InputPort()
    output = OutputPort(required=True)

    @input.batch
    def take(self, batch: Any) -> None:
        """Pass it on."""
        self.output.emit(batch)


class Portless(Operator):
    """Has no ports, and is no input operator."""


class CountingInput(InputOperator):
    """An input operator that wrongly has an input port."""

    input = InputPort(FilePiece, optional=True)
    pieces = OutputPort(FilePiece)


class RecordControl(ControlOperator):
    """A control operator that wrongly handles records."""

    input = InputPort()
    output = OutputPort()

    @input.batch
    def take(self, batch: Any) -> None:
        """Forget it."""


NotAnOperator = 5
