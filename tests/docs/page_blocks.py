"""The fenced blocks of a page, each with what the page says about it in a comment above."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from shutil import which

_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
_NOT_RUN = re.compile(r"<!-- not run: (.+) -->\s*\Z")
_NEEDS = re.compile(r"<!-- needs: ([\w., -]+) -->\s*\Z")
_NUMBERS_DIFFER = re.compile(r"<!-- numbers differ -->\s*\Z")
_SERVER = re.compile(
    r"^(?:[A-Z_]+=\S+ )*(?:make serve|tritonserver|trireme serve|trireme deploy(?!.*--(?:dry-run|no-serve)))\b"
)
PROMPT = "> "
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
    needs: tuple[str, ...]
    """Programs and modules that not everybody has, and without which it is not run."""
    follows: bool
    """Whether it stands directly below another block: a text that does is what that one prints."""
    has_other_numbers: bool
    """Whether the numbers of a text are those of one run among many."""

    @property
    def missing(self) -> list[str]:
        """What it needs and this machine does not have."""
        return [name for name in self.needs if which(name) is None and find_spec(name) is None]

    @property
    def typed(self) -> str:
        """Of a text that is a conversation: the lines that the reader types."""
        lines = [line.removeprefix(PROMPT) for line in self.text.splitlines() if line.startswith(PROMPT)]
        return "".join(f"{line}\n" for line in lines)

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
        needed = _NEEDS.search(before)
        indent = match[1]
        between = re.sub(r"<!--.*?-->", "", text[end : match.start()]) if end >= 0 else "the beginning"
        block = Block(
            page=str(path.relative_to(root)),
            line=before.count("\n") + 1,
            language=match[2],
            text="".join(line.removeprefix(indent) for line in match[3].splitlines(keepends=True)),
            reason=marked[1] if marked else None,
            needs=tuple(needed[1].split(", ")) if needed else (),
            follows=not between.strip(),
            has_other_numbers=_NUMBERS_DIFFER.search(before) is not None,
        )
        found.append(block)
        end = match.end()
    return found
