"""One model folder while it is checked: what was read of it, and what was found."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from trireme.config.message import ConfigMessage
from trireme.config.text.field_lines import line_of
from trireme.config.validation.problem import Problem


@dataclass(slots=True)
class CheckedModel:
    """Filled in step by step."""

    name: str
    folder: Path
    config_path: Path
    message: ConfigMessage | None = None
    """As far as the files tell; None where the configuration cannot be read."""
    final: ConfigMessage | None = None
    """With all that the server fills in; None where that makes no sense."""
    is_complete: bool = False
    """Whether no code of the model or its backend can still add to the configuration."""
    versions: list[int] = field(default_factory=list)
    """Those that would be loaded."""
    lines: dict[str, int] = field(default_factory=dict)
    """Of the fields in the configuration's file."""
    findings: list[str] = field(default_factory=list)
    """What is wrong, each with file and line where it has them."""
    notes: list[str] = field(default_factory=list)
    """What is worth knowing and not wrong."""

    @property
    def is_ok(self) -> bool:
        return not self.findings

    @property
    def has_tensors(self) -> bool:
        """Whether its inputs and outputs are known."""
        return self.is_complete or (self.message is not None and bool(self.message.input and self.message.output))

    def add(self, problem: Problem) -> None:
        """Says it once; a text that begins with a path of its own stays as it is."""
        text = problem.text.rstrip(" ;")
        if problem.advice:
            text = f"{text.rstrip('.:')}; {problem.advice}"
        if not text.startswith(str(self.folder)):
            text = f"{self._where(problem.place)}: {text}"
        if text not in self.findings:
            self.findings.append(text)

    def _where(self, place: str) -> str:
        if not os.path.exists(self.config_path):
            return str(self.folder)
        line = line_of(place, self.lines)
        return str(self.config_path) if line is None else f"{self.config_path}:{line}"
