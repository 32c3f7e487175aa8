"""A fixed number of partitions."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from dagflow.api.partitioning import BacklogStats, PartitionPolicy
from dagflow.api.properties import Count


class StatelessPartitioner(PartitionPolicy):
    """Always the same number of partitions; `partition: N` of an operator is the short form.

    Source:
        com.datatorrent.common.partitioner.StatelessPartitioner of Apache Apex.
    """

    count: Annotated[Count, Field(ge=1, description="the number of partitions")]

    def define_partitions(self, stats: BacklogStats) -> int:
        """The count."""
        return self.count
