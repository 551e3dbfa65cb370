"""Which model a shared cache answers for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trireme.scheduling.cache.redis_fingerprint import model_fingerprint


def test_a_folder_that_cannot_be_read_is_no_empty_one(tmp_path: Path) -> None:
    without = model_fingerprint(b"config", tmp_path / "absent")
    assert without == model_fingerprint(b"config", tmp_path)
    folder = os.open(tmp_path, os.O_RDONLY)
    for _ in range(20):  # until the path is longer than any that can be opened
        os.mkdir("d" * 250, dir_fd=folder)
        inner = os.open("d" * 250, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    with pytest.raises(OSError, match="File name too long"):
        model_fingerprint(b"config", tmp_path)
