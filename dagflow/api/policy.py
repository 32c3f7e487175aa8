"""Partitioners that an app names: policies apart from the operators whose partitions they decide."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from dagflow.api.partitioner import BacklogStats, StatsResponse
from dagflow.api.properties import set_properties


class PartitionPolicy(ABC):
    """Decides how many partitions an operator has, in place of the operator.

    A subclass declares properties as an operator does. An app names it as
    `partitioner: {class: my_policies.Nightly, properties: {...}}`. An instance lives in the driver for one run.
    """

    steers_by_speed: ClassVar[bool] = False
    """Whether it needs a measured speed: windows are then short from the first one on, so that a speed is known soon,
    and what was decided is soon in effect."""

    def __init__(self, **properties: Any) -> None:
        """Set the properties.

        Args:
            properties: Values as YAML would give them, by name.

        Raises:
            pydantic.ValidationError: A property is unknown, missing or of the wrong type.
            ValueError: check_properties refused the values.
        """
        set_properties(self, properties)
        self.check_properties()

    def check_properties(self) -> None:  # noqa: B027  # there may be nothing to check
        """Refuse values that are wrong together; called last by the constructor.

        Raises:
            ValueError: What does not fit, naming the properties.
        """

    @abstractmethod
    def define_partitions(self, stats: BacklogStats) -> int:
        """The number of partitions from now on, at least 1; see Partitioner."""

    def process_stats(self, stats: BacklogStats) -> StatsResponse:
        """Whether define_partitions shall be called; see StatsListener."""
        return StatsResponse(False)
