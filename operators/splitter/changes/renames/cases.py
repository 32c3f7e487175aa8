"""The table of cases: which file continues a version that was taken, and what a file is under its own name.

The rows are tried from top to bottom, and the first that fits decides. docs/rotation.md has the same tables.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import field
from enum import Enum
from typing import Literal

from dagflow.frozen import frozen

logger = logging.getLogger(__name__)


class Continuing(Enum):
    """What a file is, as far as one row of the table says it."""

    CONTINUES = "continues the version"
    COPY = "is a copy of the version's file"
    OTHER = "is another file"
    NEW = "is a new file"
    CHANGED = "is a change of its version"
    LATER = "is left for a later scan"
    AGAIN = "is left for a scan at once"


Original = Literal["kept", "other", "gone"]
"""What is under a version's name now: its bytes, other ones, or no file."""


@frozen
class RotationCase:
    """A row of the table."""

    answer: Continuing
    because: str
    facts: dict[str, object] = field(default_factory=dict)

    def fits(self, facts: object) -> bool:
        """Whether the row fits the facts; facts behind the first that differs are not asked for."""
        return all(getattr(facts, name) == value for name, value in self.facts.items())


def _case(answer: Continuing, because: str, **facts: object) -> RotationCase:
    return RotationCase(answer, because, facts)


PAIR_CASES: Sequence[RotationCase] = (
    _case(Continuing.OTHER, "the inode was given to a new file", same_inode=True, same_bytes=False),
    _case(
        Continuing.LATER,
        "only its fingerprint tells it from a new file with the inode",
        **{"same_inode": True, "same_bytes": None, "same_version": False, "is_to_be_reported": True},
    ),
    _case(
        Continuing.OTHER,
        "nothing tells it from a new file with the inode",
        **{"same_inode": True, "same_bytes": None, "same_version": False},
    ),
    _case(Continuing.LATER, "how much of it is read is not known yet", same_inode=True, in_flight=True),
    _case(Continuing.CONTINUES, "it was renamed", same_inode=True),
    _case(Continuing.LATER, "its bytes are not known yet", same_bytes=None, is_to_be_reported=True),
    _case(Continuing.OTHER, "its bytes are not known", same_bytes=None),
    _case(Continuing.OTHER, "it has other bytes", same_bytes=False),
    _case(Continuing.AGAIN, "the scan has seen both names of a file", seen_now=True, left_often=False),
    _case(
        Continuing.OTHER,
        "it may be a new file with the content of a deleted one",
        **{"is_compressed": False, "same_time": False, "original": "gone"},
    ),
    _case(
        Continuing.OTHER,
        "it may be a new file with the content of a log before it",
        **{"is_compressed": False, "same_time": False, "only_number_differs": True},
    ),
    _case(Continuing.COPY, "the version's file still has the bytes", original="kept"),
    _case(Continuing.LATER, "how much of it is read is not known yet", in_flight=True),
    _case(Continuing.AGAIN, "it changes while it is looked at", is_steady=False, left_often=False),
    _case(Continuing.LATER, "it changes while it is looked at", is_steady=False),
    _case(Continuing.CONTINUES, "it was copied or compressed, and the original is gone or has other bytes"),
)
"""Whether a file continues one version; see Pair for the facts. If it does not, the next version is tried."""

NAME_CASES: Sequence[RotationCase] = (
    _case(Continuing.AGAIN, "it changes while it is looked at", is_there=False),
    _case(Continuing.NEW, "nothing was taken under its name", was_taken=False),
    _case(Continuing.NEW, "the file that was taken has another name now", moved_now=True),
    _case(Continuing.CHANGED, "it is the file that was taken", same_inode=True),
    _case(Continuing.NEW, "the file that was taken has another name since", moved_before=True),
    _case(Continuing.CHANGED, "it has replaced the file that was taken"),
)
"""What a file is that continues no version under another name; see OwnName for the facts."""


def decide(cases: Sequence[RotationCase], facts: object) -> Continuing:
    """The answer of the first row that fits, which the log names."""
    case = next(case for case in cases if case.fits(facts))
    log_decision(facts, case.answer.value, f"{case.because} {case.facts}")
    return case.answer


def log_decision(file: object, answer: str, because: str) -> None:
    """Log a decision of the table, or about it, in the same form: a wrong one is found by its line."""
    logger.debug("%s: the file %s, because %s", file, answer, because)
