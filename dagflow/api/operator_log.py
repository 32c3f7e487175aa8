"""The log of operators' messages for users: what they print, and the notices of operators in the driver."""

from __future__ import annotations

import logging

OPERATOR_LOGGER = "dagflow.operator"
"""The logger; its messages are shown unchanged, also without -v."""

logging.getLogger(OPERATOR_LOGGER).setLevel(logging.INFO)
