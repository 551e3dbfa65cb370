"""The fenced blocks of a page, each with what the page says about it in a comment above."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
_NOT_RUN = re.compile(r"<!-- not run: (.+) -->\s*\Z")
_SERVER = re.compile(r"^(?:[A-Z_]+=\S+ )*(?:tritonserver|trireme serve|trireme deploy(?!.*--(?:dry-run|no-serve)))\b")
_HEREDOC = re.compile(r"<<'?(\w+)'?")


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    page: str
    line: int
    language: str
    text: str
    reason: str | None
    """Why it is not run, in the page's own words; None: it is run."""
    follows: bool
    """Whether it stands directly below another block: a text that does is what that one prints."""

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"

    @cached_property
    def statements(self) -> list[str]:
        """Of a shell block: its commands, a here-document and a line that goes on belonging to theirs."""
        found: list[str] = []
        ending: str | None = None
        is_open = False
        for line in self.text.splitlines():
            if ending is not None or is_open:
                found[-1] += "\n" + line
            elif line.strip():
                found.append(line)
            if ending is not None:
                ending = None if line == ending else ending
                continue
            match = _HEREDOC.search(line)
            ending = match[1] if match else None
            is_open = line.rstrip().endswith(("\\", "|"))
        return found


def starts_a_server(statement: str) -> bool:
    """Whether the command goes on until it is stopped."""
    return _SERVER.match(statement) is not None


def blocks_of(path: Path, root: Path) -> list[Block]:
    """The blocks of a page, in their order."""
    text = path.read_text(encoding="utf-8")
    found: list[Block] = []
    end = -1
    for match in _FENCE.finditer(text):
        before = text[: match.start()]
        marked = _NOT_RUN.search(before)
        indent = match[1]
        content = "".join(line.removeprefix(indent) for line in match[3].splitlines(keepends=True))
        follows = end >= 0 and not text[end : match.start()].strip()
        name = str(path.relative_to(root))
        line = before.count("\n") + 1
        found.append(Block(name, line, match[2], content, marked[1] if marked else None, follows))
        end = match.end()
    return found
