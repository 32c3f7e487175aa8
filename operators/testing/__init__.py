"""For authors of formats: the laws that every format keeps, as tests to inherit, and what they need."""

from operators.testing.format_contract import (
    URL,
    FormatContract,
    MemorySource,
    Records,
    Rejects,
    block_of,
    read_cut,
    read_range,
)
from operators.testing.sink_contract import SinkContract

__all__ = [
    "URL",
    "FormatContract",
    "MemorySource",
    "Records",
    "Rejects",
    "SinkContract",
    "block_of",
    "read_cut",
    "read_range",
]
