"""Stands in for docker while a page is followed: builds nothing, and fails where `docker build` would find no files."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def main(words: list[str]) -> int:
    """Exit code 1 where the folder has no Dockerfile, or where that copies what is not in the folder."""
    parser = argparse.ArgumentParser("docker", allow_abbrev=False)
    build = parser.add_subparsers(required=True).add_parser("build")
    build.add_argument("--tag", "-t", required=True)
    build.add_argument("--build-arg", action="append", default=[])
    build.add_argument("folder", type=Path)
    found = parser.parse_args(words)
    instructions = [line.split() for line in (found.folder / "Dockerfile").read_text().splitlines()]
    copied = [name for words in instructions if words[:1] == ["COPY"] for name in words[1:-1]]
    missing = [name for name in copied if not [*found.folder.glob(name)]]
    known = [words[1].partition("=")[0] for words in instructions if words[:1] == ["ARG"]]
    unknown = [name for name in found.build_arg if name.partition("=")[0] not in known]
    if missing or unknown:
        print(f"the Dockerfile copies {missing}, which is not there, and has no argument {unknown}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
