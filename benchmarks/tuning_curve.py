"""Draws the curves of docs/tuning.md: inferences per second by clients, from CSV files that `trireme perf -f` wrote.

python benchmarks/tuning_curve.py "as it was=one.csv" "dynamic_batching=two.csv" > docs/pictures/tuning-curve.svg
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from line_chart import Panel, line_chart


def read_curve(path: Path) -> dict[int, float]:
    """Inferences per second by concurrency."""
    with path.open(newline="") as file:
        rows = csv.DictReader(line for line in file if line.strip())
        return dict(sorted((int(row["Concurrency"]), float(row["Inferences/Second"])) for row in rows))


def main(words: list[str]) -> None:
    named = [word.rpartition("=") for word in words]
    lines = {name: read_curve(Path(path)) for name, _, path in named}
    sys.stdout.write(line_chart("Inferences per second", "clients", [Panel("scorer", lines)]))


if __name__ == "__main__":
    main(sys.argv[1:])
