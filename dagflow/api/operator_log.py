"""The log of what operators say to people: what they print, and what one in the driver tells without being asked."""

from __future__ import annotations

import logging

OPERATOR_LOGGER = "dagflow.operator"
"""The logger; its messages are shown as they are, also without -v."""

logging.getLogger(OPERATOR_LOGGER).setLevel(logging.INFO)
