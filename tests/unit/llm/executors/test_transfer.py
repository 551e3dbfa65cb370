"""What the log tells while weights go to a device."""

from __future__ import annotations

import logging

import pytest
import torch

from trireme.llm.executors.torch.transfer import Progress


def test_a_long_transfer_is_told_once_a_second_and_a_short_one_never(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 0.0
    caplog.set_level(logging.INFO)
    progress = Progress(torch.device("cuda:0"), 40 << 30, lambda: now_s)
    for _ in range(64):
        now_s += 0.0625
        progress.add(640 << 20)
    assert caplog.messages == [f"weights on cuda:0: {25 * part}% ({10 * part}.0 GiB)" for part in (1, 2, 3, 4)]
    caplog.clear()
    short = Progress(torch.device("cuda:0"), 100, lambda: now_s)
    for _ in range(10):
        short.add(10)
    assert caplog.messages == []
