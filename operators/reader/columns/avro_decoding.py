"""Finds the values in records of Avro: plain Python that numba can compile.

A value is a whole number, the branch of a union, or, of others, the start of its bytes and, in the upper half, their
stop. A list has the number of items of each of its parts, and 0.
"""

from __future__ import annotations

from typing import Any

JUMP, END, SIZED, NUMBER, TEXT, UNION, ITEMS = range(7)
"""Operations; those from NUMBER on begin with a whole number."""

_POSITIVE = (1 << 63) - 1


def decode(data: Any, at: int, end: int, rows: int, program: Any, left: Any, tape: Any, used: int) -> Any:
    """Append the values of records to a tape.

    Args:
        data: Bytes.
        at: Where the first record begins.
        end: Where the last one ends.
        rows: How many records there are.
        program: Operations; the type whose values each appends; and its size, number of branches, or next operation.
        left: A zero for each type.
        tape: Types and values.
        used: How many of these there are already.

    Returns:
        How many records have room, where they end, and how many values there are then; -1 if they are damaged.
    """
    operations, types, arguments = program
    found_types, found_values = tape
    done, step, whole, kept = 0, 0, at, used
    while done < rows:
        operation, type, argument, value = operations[step], types[step], arguments[step], 0
        step += 1
        if operation == ITEMS and left[type] > 0:
            left[type] -= 1
            continue
        if operation >= NUMBER:
            shift, byte = 0, 128
            while byte > 127:
                if at >= end or (shift == 63 and data[at] > 1):
                    return -1, at, used
                byte, at = data[at], at + 1
                value, shift = value | (byte & 127) << shift, shift + 7
            value = (value >> 1 & _POSITIVE) ^ -(value & 1)
        if operation == ITEMS and value < 0:
            value = -value
            while at < end and data[at] > 127:  # their size in bytes follows
                at += 1
            at += 1
        size = argument if operation == SIZED else value if operation >= TEXT else 0
        if size < 0 or size > (argument - 1 if operation == UNION else end - at):
            return -1, at, used
        if operation == END:
            done, step, whole, kept = done + 1, 0, at, used
        elif operation == JUMP or (operation == ITEMS and value == 0):
            step = argument
        elif operation == ITEMS:
            left[type] = value - 1
        elif operation == UNION:
            step += value
        elif operation != NUMBER:
            value, at = (at + size) << 32 | at, at + size
        if operation > END:
            if used == len(found_types):
                break
            found_types[used], found_values[used] = type, value
            used += 1
    return done, whole, kept
