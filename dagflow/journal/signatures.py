"""Signs the pickles of a checkpoint, because unpickling runs code: only those of the same user are unpickled."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from dagflow.errors import DagflowError
from dagflow.journal.saved_state import CommittedState, ControlState, SavedState

KEY_FILE = "DAGFLOW_KEY_FILE"
"""The environment variable that names the file of the key."""

_KEY_BYTES = 32

S = TypeVar("S", bound=ControlState | CommittedState)


def pickles_of(state: ControlState | CommittedState) -> Iterator[tuple[str, bytes]]:
    """All pickles of a state, each with a description; the checksum of a segment, whose data may be elsewhere."""
    if isinstance(state, ControlState):
        by_kind = {"control": state.operators, "prescan": state.prescans}
    else:
        by_kind = {"control": state.control, "events": state.source_events}
        for name, partitions in state.partitions.items():
            for partition, saved in enumerate(partitions):
                if saved is not None:
                    yield from _in_saved(f"partition {partition} of {name}", saved)
    for kind, saved_by_name in by_kind.items():
        for name, saved in saved_by_name.items():
            yield from _in_saved(f"{kind} {name}", saved)


def _in_saved(place: str, saved: SavedState) -> Iterator[tuple[str, bytes]]:
    if saved.pickled:
        yield place, saved.pickled
    for segment in saved.segments or ():
        if segment.pickle_sha256:
            yield f"{place} segment", segment.pickle_sha256


class Signer:
    """Signs states with a key that only the user who runs dagflow can read.

    The key is read, or created, when there is a pickle: most apps have none, and need no key.

    Args:
        environ: The environment in which the location of the key is looked up.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._environ = environ
        self._key = b""

    def signed(self, state: S) -> S:
        """The state with a signature of its pickles; unchanged where it has none.

        Raises:
            DagflowError: There is no key, and none can be made; or others can read it.
        """
        return replace(state, signature=self._signature(state))

    def foreign_pickle(self, state: ControlState | CommittedState) -> str:
        """The description of a pickle that this key has not signed; "" where there is none.

        Raises:
            DagflowError: As signed() says.
        """
        if hmac.compare_digest(self._signature(state), state.signature):
            return ""
        return next((place for place, _ in pickles_of(state)), "")

    def _signature(self, state: ControlState | CommittedState) -> bytes:
        pickles = list(pickles_of(state))
        if not pickles:
            return b""
        digest = hmac.new(self.key(), type(state).__name__.encode(), hashlib.sha256)
        for place, pickled in pickles:
            for part in (place.encode("utf-8", "surrogatepass"), pickled):
                digest.update(len(part).to_bytes(8, "big") + part)
        return digest.digest()

    def key(self) -> bytes:
        """The key of the user who runs dagflow; created if it does not exist.

        Raises:
            DagflowError: The key cannot be created, or others can read it.
        """
        if not self._key:
            path = self._path()
            try:
                with contextlib.suppress(FileExistsError):
                    _make(path)
                self._key = _read(path)
            except OSError as error:
                raise DagflowError(
                    f"the key that signs the pickles of a checkpoint cannot be read or made at {path}: "
                    f"{error.strerror or error}",
                    hint=f"name another file in the environment variable {KEY_FILE}; where there is none, it is made",
                ) from error
        return self._key

    def _path(self) -> Path:
        if named := self._environ.get(KEY_FILE):
            return Path(named)
        settings = self._environ.get("XDG_CONFIG_HOME") or os.path.join(self._environ.get("HOME", "~"), ".config")
        return Path(os.path.expanduser(settings)) / "dagflow" / "key"


def _make(path: Path) -> None:
    if path.exists():
        raise FileExistsError
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(secrets.token_hex(_KEY_BYTES).encode() + b"\n")
            file.flush()
            os.fsync(descriptor)
        # The file appears whole or not at all; if several processes create it at once, one wins.
        os.link(draft, path)
    finally:
        draft.unlink()


def _read(path: Path) -> bytes:
    with open(path, "rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        key = file.read().strip()
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise DagflowError(
            f"other users can read the key that signs the pickles of checkpoints: the mode of {path} is "
            f"{stat.S_IMODE(mode):o}",
            hint=f"chmod 600 {path}",
        )
    if len(key) < _KEY_BYTES:
        raise DagflowError(
            f"{path} holds no key: it has {len(key)} bytes, {_KEY_BYTES} are needed",
            hint="remove it, and a new one is made; checkpoints with pickles are then signed again by dagflow sign",
        )
    return key
