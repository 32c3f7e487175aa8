"""Side inputs: small data that every partition of an operator reads beside its stream, such as a table to join with."""

from __future__ import annotations

import hashlib
from abc import abstractmethod

from dagflow.api.context import SideData
from dagflow.api.operator import Capability, Operator
from dagflow.errors import DagflowError
from dagflow.storage.context import StorageContext

_ATTEMPTS = 5
"""How often a side input is read that changes during the read."""


class SideInput(Capability):
    """Declares a partitioned operator that reads small data beside its stream.

    The driver checks its version before it plans a window, reads it again if the version has changed, and keeps a copy
    in the checkpoint. The plan of the window names the copy, which tasks get as OperatorContext.side_input.

    Guarantee: a window sees one version of the data, in all partitions, however often it runs, also after a crash. A
    window that was not committed when a run failed is planned again by the next run, with the data as it is then.

    Source:
        The role is that of a side input in Apache Beam.
    """

    @abstractmethod
    def side_input_version(self, storage: StorageContext) -> str:
        """Called in the driver before each window is planned: the present version of the data.

        Args:
            storage: Reaches the stores of the app.

        Returns:
            A short text that differs if the data does; it is journaled, and shown.

        Raises:
            DagflowError: The data cannot be looked at.
        """

    @abstractmethod
    def read_side_input(self, storage: StorageContext) -> bytes:
        """Called in the driver when the version is a new one.

        Args:
            storage: Reaches the stores of the app.

        Returns:
            The data, in a form that tasks read.

        Raises:
            DagflowError: The data cannot be read, or is not what the operator needs.
        """


def read_consistently(operator: SideInput, storage: StorageContext, version: str) -> tuple[str, bytes]:
    """One version of a side input, which may change during the read.

    Args:
        operator: The operator.
        storage: Reaches the stores of the app.
        version: Its version before the read.

    Returns:
        Its version and its data.

    Raises:
        DagflowError: The side input cannot be read, or changes all the time.
    """
    for _ in range(_ATTEMPTS):
        data = operator.read_side_input(storage)
        before, version = version, operator.side_input_version(storage)
        if version == before:
            return version, data
    raise DagflowError(
        f"a side input has changed each of the {_ATTEMPTS} times that it was read: {version}",
        hint="write it elsewhere, and put it in its place as a whole when it is complete",
    )


def loaded_side_data(operator: Operator, storage: StorageContext) -> SideData | None:
    """The side input of an operator that runs without a checkpoint; None where it has none.

    Raises:
        DagflowError: The side input cannot be read.
    """
    if not isinstance(operator, SideInput):
        return None
    version, data = read_consistently(operator, storage, operator.side_input_version(storage))
    return SideData(hashlib.blake2b(data, digest_size=16).hexdigest(), version, data)
