"""What a run must not pass over in silence: what its summary says in a line of its own, and a strict run ends with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dagflow.frozen import frozen
from dagflow.metrics import names
from dagflow.storage.location import name_of


@frozen
class Concern:
    """Something that the person who runs an app should know.

    Attributes:
        name: Its kind: "no_input", "rescued", "lost", "replaced", "left_out", "rejected" or "cut".
        text: What it is, and what to do.
    """

    name: str
    text: str

    @property
    def exit_code(self) -> int:
        """What a strict run ends with where this is the first concern."""
        return EXIT_CODES[self.name]


@frozen
class OldRows:
    """Rows of earlier versions of files that an output has beside those of later ones.

    Attributes:
        files: The locations of the files, the first of them.
        output: The short name of the table, or of the directory.
        rows: How many rows; None where the output does not say it, as behind an aggregate.
        command: The command that takes them out; "" where that is not possible.
        obstacle: Why it is not, and what to do.
        has_keys: Whether rows of later versions take the place of those with the same keys.
    """

    files: list[str]
    count: int
    output: str
    rows: int | None
    command: str
    obstacle: str = ""
    has_keys: bool = False

    @property
    def text(self) -> str:
        """For people, such as "a.csv was read again: 3 old rows stay beside the new ones (orders)"."""
        name = name_of(self.files[0])
        what = f"{name} was" if self.count == 1 else f"{self.count:,} files, such as {name}, were"
        rows = f"{self.rows or 0:,} old {'row' if self.rows == 1 else 'rows'}"
        stay = f"{rows} {'stays' if self.rows == 1 else 'stay'} beside the new ones"
        if self.rows is None:
            stay = "what the earlier version gave is still there"
        elif self.has_keys:
            stay = f"of {rows}, those stay whose keys no new one has"
        them, they = ("it", "it") if self.rows is None else ("them", "they")
        remedy = f"{they} cannot be taken out: {self.obstacle}"
        if self.command:
            remedy = f"to take {them} out: `{self.command}`"
        return f"{what} read again: {stay} ({self.output}); {remedy}"


EXIT_CODES = {"no_input": 10, "rescued": 11, "lost": 12, "replaced": 13, "left_out": 14, "rejected": 15, "cut": 16}
"""Exit codes of strict runs, by the name of a concern; docs/trouble.md has them."""


def concerns_of(
    counts: Mapping[str, Mapping[str, int]],
    *,
    without_files: Sequence[str],
    lost: Sequence[str],
    left_out: int,
    rejected: int,
    old_rows: Sequence[OldRows] | None = None,
    cut_bytes: int = 0,
) -> Iterator[Concern]:
    """The concerns of a run, in the order of their exit codes.

    Args:
        without_files: The locations in which neither the run nor an earlier one has found a file.
        lost: What targets no longer have, in words.
        left_out: How many ranges of the input all runs together have left out.
        old_rows: What outputs have of earlier versions of files; None where that was not looked for.
        cut_bytes: How many bytes of records all runs together have read before the rest of the records was there.
    """

    def total(name: str) -> int:
        return sum(own.get(name, 0) for own in counts.values())

    if without_files:
        ignored, waiting = total(names.IGNORED), total(names.FILES_DEFERRED)
        passed_over = f"; {ignored:,} names were passed over" if ignored else ""
        incomplete = f"; {waiting:,} files are not complete yet" if waiting else ""
        yield Concern(
            "no_input",
            f"no file was found in {', '.join(without_files)}, in this run or an earlier one{passed_over}{incomplete}: "
            "see that `files` of the splitter, and its patterns, name the files that you mean",
        )
    for operator, own in counts.items():
        yield from _rescued(operator, own)
    for text in lost:
        yield Concern("lost", text)
    if (reread := total(names.REREAD)) and old_rows != ():
        yield _replaced(reread, old_rows or ())
    # What earlier runs have left out was their concern; what is read by now is none.
    if left_out and (total(names.SKIPPED) or total(names.VANISHED)):
        ranges = "1 range of the input is" if left_out == 1 else f"{left_out:,} ranges of the input are"
        yield Concern("left_out", f"{ranges} left out, in all runs: {_READ_AFTER_ALL}")
    if rejected > 0:
        yield Concern("rejected", f"{rejected:,} {'record was' if rejected == 1 else 'records were'} refused")
    if cut_bytes and total(names.RESUMED_BYTES):
        yield Concern(
            "cut",
            "records were read before they were complete, and again whole when their files had grown: "
            f"{cut_bytes:,} bytes are in the output twice, in all runs; unterminated: wait on the splitter lets the "
            "last record of a file wait for its end",
        )


_READ_AFTER_ALL = "`dagflow status` lists them, and a file that is repaired or put back is read by the next run"


def _replaced(reread: int, old_rows: Sequence[OldRows]) -> Concern:
    found = [each.text for each in old_rows] or [
        f"{reread:,} {'file was' if reread == 1 else 'files were'} replaced or truncated after earlier runs had "
        "read them, and read again: what was published of them stays, beside the new records"
    ]
    choice, others = "supersede", "fail, ignore"
    effect = "puts the new records in the place of the old ones"
    if not all(each.command for each in old_rows):
        choice, others, effect = "fail", "ignore", "ends the run before such a file is read"
    return Concern(
        "replaced",
        f"{'; '.join(found)}. Say on the splitter what to do from now on, as in on_change: {{replaced: {choice}, "
        f"truncated: {choice}}}, which {effect}; other choices are {others} and reread. If it is a log that was "
        "rotated into another directory, or to a name without a number, take nothing out: the old rows are nowhere "
        "else; add that to files, which reads the rest of the old log",
    )


def _rescued(operator: str, counts: Mapping[str, int]) -> Iterator[Concern]:
    whole = {
        name.removeprefix(names.ALL_RESCUED): values
        for name, values in sorted(counts.items())
        if name.startswith(names.ALL_RESCUED)
    }
    for column, values in whole.items():
        yield Concern(
            "rescued",
            f"{operator} has rescued every value of column '{column}' of a window, "
            f"{values:,} in all: let the reader give it the type that it has in the table",
        )
    if (rest := counts.get(names.RESCUED_VALUES, 0) - sum(whole.values())) > 0:
        yield Concern(
            "rescued",
            f"{rest:,} {'value has' if rest == 1 else 'values have'} no place in the columns of {operator}, "
            "and went into _rescued: the column shows each with file and offset",
        )
