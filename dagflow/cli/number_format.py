"""Formats numbers for people."""

from __future__ import annotations

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
