"""What the system tells of another process."""

from __future__ import annotations

from pathlib import Path


def is_stopped(pid: int) -> bool:
    """Whether somebody has stopped the process (SIGSTOP); false where it is gone, or nobody tells."""
    try:
        facts = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return False
    return facts.rpartition(") ")[2].startswith("T")  # behind the name, which may hold anything
