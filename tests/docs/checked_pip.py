"""Stands in for pip while a page is followed: installs nothing, writes empty wheels, knows which extras there are."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main(words: list[str]) -> int:
    """Exit code 1 for a command that names an extra which the package does not have."""
    if words[:1] not in (["install"], ["wheel"]):
        print(f"pip {' '.join(words)}: this page's pip knows install and wheel only", file=sys.stderr)
        return 1
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for word in words[1:]:
        match = re.fullmatch(r"\.(?:\[(.+)\])?", word)
        extras = match[1].split(",") if match and match[1] else []
        unknown = [extra for extra in extras if extra not in project["optional-dependencies"]]
        if unknown:
            print(f"there is no extra {', '.join(unknown)}", file=sys.stderr)
            return 1
    if words[0] == "wheel":
        folder = Path(words[words.index("--wheel-dir") + 1])
        (folder / f"{project['name']}-0-py3-none-any.whl").touch()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
