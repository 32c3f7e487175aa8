"""For authors of formats: the laws that every format keeps, as tests to inherit, and what they need."""

from dagflow.testing import show_compared_values

show_compared_values(f"{__name__}.format_contract", f"{__name__}.sink_contract", f"{__name__}.table_contract")

from operators.testing.format_contract import (  # noqa: E402  # pytest must know of it before
    URL,
    FormatContract,
    MemorySource,
    Records,
    Rejects,
    block_of,
    columns_of,
    read_cut,
    read_range,
)
from operators.testing.sink_contract import SinkContract  # noqa: E402  # as above
from operators.testing.table_contract import TableContract  # noqa: E402  # as above

__all__ = [
    "URL",
    "FormatContract",
    "MemorySource",
    "Records",
    "Rejects",
    "SinkContract",
    "TableContract",
    "block_of",
    "columns_of",
    "read_cut",
    "read_range",
]
