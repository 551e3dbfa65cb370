"""How a package that not everybody needs is installed beside the server, in the words of the documents."""

from __future__ import annotations


def install_line(extra: str) -> str:
    """The command for one of the extras of pyproject.toml; the package is on no index, so it is taken from a clone."""
    return f"pip install -c constraints.txt '.[{extra}]' in the folder of the clone"
