"""How much the laws of formats try by day."""

from __future__ import annotations

from operators.testing import FormatContract
from tests.nightly import IS_NIGHTLY

FormatContract.step = 1 if IS_NIGHTLY else 7
