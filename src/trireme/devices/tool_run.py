"""Runs a vendor's tool for a moment and gives back what it printed."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

TIMEOUT_S = 20.0


class ToolError(Exception):
    """A tool is missing, failed, or said what nobody understands."""


def run_tool(command: Sequence[str], timeout_s: float = TIMEOUT_S) -> str:
    """The tool's standard output; raises ToolError."""
    name = Path(command[0]).name
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=timeout_s
        )
    except FileNotFoundError:
        raise ToolError(f"{name} is not installed") from None
    except subprocess.TimeoutExpired:
        raise ToolError(f"{name} did not answer within {timeout_s:g} s") from None
    except OSError as error:
        raise ToolError(f"{name} cannot be run: {error.strerror}") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise ToolError(f"{name} ended with {done.returncode}{': ' + said[-1] if said else ''}")
    return done.stdout


def csv_rows(text: str, column_count: int) -> list[list[str]]:
    """The cells of every line that has so many of them; raises ToolError where there is no such line."""
    lines = [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if line.strip()]
    rows = [cells for cells in lines if len(cells) == column_count]
    if not rows:
        raise ToolError(f"not a table of {column_count} columns: {text.strip()[:80]!r}")
    return rows


def number_of(cell: str) -> float | None:
    """The number a cell begins with; None for `[N/A]` and its like."""
    try:
        return float(cell.split()[0])
    except (ValueError, IndexError):
        return None


def mebibytes_of(cell: str) -> int | None:
    """Bytes of a cell that counts in MiB, with the unit behind it or without."""
    number = number_of(cell)
    return None if number is None else round(number * (1 << 20))
