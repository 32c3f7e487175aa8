"""All that the command line prints: results on stdout, everything else on stderr."""

from __future__ import annotations

import os
import sys
import traceback
from typing import TextIO

import click

from dagflow.errors import DagflowError


def result(text: str) -> None:
    """Print what the command was asked for.

    A reader that has seen enough (`| head`) is no error: the rest goes nowhere.

    Raises:
        DagflowError: Standard output refused it, for example because a disk is full.
    """
    if sys.stdout is None:  # the caller closed it: nobody listens
        return
    try:
        _write(sys.stdout, text)
    except BrokenPipeError:
        _detach(sys.stdout)
    except OSError as error:
        _detach(sys.stdout)
        raise DagflowError(f"cannot write the result to standard output: {error.strerror or error}") from error


def note(text: str) -> None:
    """Print a line of news for the person who watches; never fails, because a run must not die of it."""
    if sys.stderr is None:
        return
    try:
        _write(sys.stderr, text)
    except OSError:
        _detach(sys.stderr)


def explain(error: BaseException, *, with_trace: bool) -> None:
    """Print why the command failed, once.

    Args:
        error: What ended it. Anything but a DagflowError or a mistake on the command line is a bug, and is
            shown with its traceback.
        with_trace: Whether to show the traceback of an expected error as well.
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
        text = f"this is a bug in dagflow: {type(error).__name__}: {error}\n    please report it with the traceback"
    if with_trace:
        text = "".join(traceback.format_exception(error)) + text
    notes = [] if with_trace else getattr(error, "__notes__", [])
    note("\n".join([text, *notes]))


def _usage(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "dagflow"
    near: list[str] = getattr(error, "possibilities", None) or []
    message = error.format_message()
    if isinstance(error, click.NoSuchOption):
        message = f"no option {error.option_name!r}"
        near = sorted(error.possibilities or [])
    elif near:
        message = message.partition(".")[0]
    message = message[:1].lower() + message[1:].rstrip(".")
    if near:
        message += f"; did you mean {' or '.join(map(repr, near))}?"
    return f"{command}: {message}\n    see: {command} --help"


def _write(stream: TextIO, text: str) -> None:
    # One write and one flush: lines of two threads do not mix, and a closed pipe shows itself here and
    # not while the interpreter exits.
    stream.write(_printable(text, stream.encoding or "utf-8") + "\n")
    stream.flush()


def _printable(text: str, encoding: str) -> str:
    # File names hold any byte: neither undecodable ones nor terminal escapes may reach the screen.
    visible = "".join(
        char if char.isprintable() or char in "\n\t" else char.encode("ascii", "backslashreplace").decode()
        if ord(char) > 127
        else f"\\x{ord(char):02x}"
        for char in text
    )
    return visible.encode(encoding, "backslashreplace").decode(encoding)


def _detach(stream: TextIO) -> None:
    # What is still buffered would fail again while the interpreter exits, and turn the exit code into 120.
    try:
        target = stream.fileno()
    except (OSError, ValueError):
        return
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, target)
    os.close(sink)
