"""All that the command line prints: results on stdout, everything else on stderr; text that fits the terminal."""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from datetime import UTC, datetime
from typing import Any, TextIO

import click

from dagflow.errors import DagflowError, text_of, trace_of
from dagflow.spec.problems import quoted
from dagflow.suggestions import did_you_mean


def result(text: str) -> None:
    """Print the result of the command.

    A reader that has seen enough (`| head`) is no error: the rest goes nowhere.

    Raises:
        DagflowError: Standard output refused the text, for example because a disk is full.
    """
    if sys.stdout is None:  # the caller closed it
        return
    try:
        _write(sys.stdout, text)
    except BrokenPipeError:
        _detach(sys.stdout)
    except OSError as error:
        _detach(sys.stdout)
        raise DagflowError(
            f"cannot write the result to standard output: {error.strerror or error}",
            hint="the command succeeded; only its output could not be written",
        ) from error


@contextmanager
def reserved_for_results() -> Iterator[None]:
    """Send to stderr what other code prints meanwhile, as an author's module may while it is imported."""
    with redirect_stdout(sys.stderr):
        yield


def note(text: str) -> None:
    """Print a line of news for the person who watches; never fails, because a failed print must not end a run."""
    if sys.stderr is None:
        return
    try:
        _write(sys.stderr, text)
    except OSError:
        _detach(sys.stderr)


def at_once(text: str) -> None:
    """Write to stderr past Python's buffers: from a signal handler, whose thread may hold their lock; never fails."""
    if sys.stderr is None:
        return
    with suppress(OSError, ValueError):  # the terminal is gone, or stderr is no real file
        os.write(sys.stderr.fileno(), text.encode())


def explain(
    error: BaseException,
    *,
    with_trace: bool,
    redact: Callable[[str], str] = str,
    line: Callable[[str, BaseException], str] = lambda text, error: text,
) -> None:
    """Print why the command failed, once.

    Args:
        with_trace: Whether to show the traceback of an expected error as well.
        line: Makes it the line that is printed.
    """
    if isinstance(error, click.ClickException):
        text, with_trace = _usage(error), False
    elif isinstance(error, DagflowError):
        text = str(error)
        trace = getattr(error, "trace", "")
        if with_trace and trace:
            text += f"\n{trace.rstrip()}"
    else:
        with_trace = True
        raised = f"{type(error).__name__}: {text_of(error)}"
        text = f"this is a bug in dagflow: {raised}\n    please report it with the traceback"
    if with_trace:
        text = trace_of(error) + text
    notes = [] if with_trace else getattr(error, "__notes__", [])
    note(line(redact("\n".join([text, *notes])), error))


def definitions(rows: Iterable[tuple[str, str]], *, title: str = "") -> str:
    """Terms with their meanings, aligned; long meanings are wrapped."""
    formatter = click.HelpFormatter()
    with formatter.section(title) if title else nullcontext():
        formatter.write_dl(list(rows))
    return formatter.getvalue().rstrip("\n")


def paragraphs(text: str) -> str:
    return click.wrap_text(text, width=click.HelpFormatter().width, preserve_paragraphs=True)


def printable(text: str, encoding: str = "utf-8") -> str:
    """The text with everything visible that a terminal would obey or could not show.

    File names hold any byte: neither undecodable ones nor terminal escapes may reach the screen.
    """
    visible = "".join(char if char.isprintable() or char in "\n\t" else ascii(char)[1:-1] for char in text)
    return visible.encode(encoding, "backslashreplace").decode(encoding)


def text_or_base64(raw: bytes) -> str | dict[str, str]:
    """Bytes as JSON: text, and what is none in base64."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(raw).decode()}


def json_value(value: Any) -> Any:
    """A value that JSON lacks, for json.dumps()."""
    return text_or_base64(value) if isinstance(value, bytes) else str(value)


def on_one_line(text: str) -> str:
    """A text on one line, with escapes for what ends a line: the name of a file must not look like two."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def place(url: str, offset: int = -1) -> str:
    """A file as a user would type it, relative below the working directory; and the offset, if known."""
    here = os.path.join(os.getcwd(), "")
    name = url[len(here) :] if url.startswith(here) else url
    return f"{name}:{offset}" if offset >= 0 else name


def version_text(part: Any) -> str:
    """The version of a file that something with mtime_ns and etag is of."""
    modified = datetime.fromtimestamp(part.mtime_ns / 1e9, UTC).isoformat(timespec="milliseconds")
    return f"etag {part.etag}" if part.etag else f"modified {modified}"


def _usage(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "dagflow"
    message = error.format_message()
    if isinstance(error, click.NoSuchOption):
        near = did_you_mean(error.option_name, error.possibilities or [])
        message = f"there is no option {quoted(error.option_name)}{near}"
    return f"{command}: {message[:1].lower()}{message[1:].rstrip('.')}\n    see: {command} --help"


def _write(stream: TextIO, text: str) -> None:
    # One write and one flush: lines of two threads do not mix, and a closed pipe shows itself here and
    # not while the interpreter exits.
    stream.write(printable(text, stream.encoding or "utf-8") + "\n")
    stream.flush()


def _detach(stream: TextIO) -> None:
    # The buffered rest would fail again while the interpreter exits, and turn the exit code into 120.
    try:
        target = stream.fileno()
    except (OSError, ValueError):
        return
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, target)
    os.close(sink)


_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_COUNTS = ("", "k", "M", "G", "T", "P", "E")


def size(size_bytes: float) -> str:
    """A number of bytes in the largest unit of 1024 that it fills: "512 B", "3.2 GiB"."""
    return _scaled(size_bytes, 1024, _SIZES)


def part(done_bytes: float, whole_bytes: float, *, about: bool = False) -> str:
    """How much of a number of bytes, both in the unit of the whole: "304/822 MiB", "304 of about 822 MiB"."""
    whole = size(whole_bytes)
    number, unit = whole.split(" ")
    scaled = done_bytes / 1024 ** _SIZES.index(unit)
    done = f"{scaled:.1f}" if "." in number else f"{scaled:.0f}"
    return f"{done} of about {whole}" if about else f"{done}/{whole}"


def clock(seconds: float) -> str:
    """A time that is left: "0:12", "1:02" (minutes), "1:00:02" (hours)."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def brief(number: float) -> str:
    """A count to about three digits: "512", "4.1 M"."""
    return _scaled(number, 1000, _COUNTS).rstrip()


def count(number: int, noun: str = "", plural: str = "") -> str:
    """A count in full: "1,187", or with its noun "1 file", "1,187 files"."""
    if not noun:
        return f"{number:,}"
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def duration(seconds: float) -> str:
    """A duration: "0.4 s", "59.9 s", "1:02" (minutes), "1:00:02" (hours)."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    return clock(seconds)


def _scaled(number: float, step: int, units: tuple[str, ...]) -> str:
    index = 0
    # Rounding up to the step itself would print "1024 KiB", hence the half of the last digit.
    while number >= step - 0.5 and index < len(units) - 1:
        number /= step
        index += 1
    return f"{number:.0f} {units[index]}" if index == 0 or number >= 99.95 else f"{number:.1f} {units[index]}"
