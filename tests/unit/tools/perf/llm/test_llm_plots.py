"""The plots of a run against a language model, a page each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trireme.tools.perf.errors import PerfError
from trireme.tools.perf.llm.metrics import compute
from trireme.tools.perf.llm.options import LlmOptions
from trireme.tools.perf.llm.pieces import GeneratedText
from trireme.tools.perf.llm.plots import make_plots, write_plots
from trireme.tools.perf.llm.prompts import Prompt
from trireme.tools.plots.page import Plot

MS = 1_000_000
STREAMS = [
    GeneratedText(0, (100 * MS, 120 * MS, 200 * MS), ("a", "b", "c"), 7, 3, 0),
    GeneratedText(0, (300 * MS, 400 * MS), ("a", "b"), 9, 2, 0),
]


def plots_of(answers: list[GeneratedText], *, is_streaming: bool, has_tokens: bool = True) -> dict[str, Plot]:
    prompts = [Prompt("x y", 2, None)]
    metrics = compute(answers, prompts, None, is_streaming=is_streaming, goodput={}, has_tokens=has_tokens)
    return {plot.name: plot for plot in make_plots(metrics, answers)}


def test_streams_have_the_plots_of_the_original() -> None:
    plots = plots_of(STREAMS, is_streaming=True)
    assert list(plots) == [
        "time_to_first_token",
        "request_latency",
        "distribution_of_input_sequence_lengths_to_output_sequence_lengths",
        "time_to_first_token_vs_input_sequence_lengths",
        "token-to-token_latency_vs_output_token_position",
    ]
    gaps = plots["token-to-token_latency_vs_output_token_position"].svg
    assert re.findall("<title>(.*?)</title>", gaps) == ["1: 20.00 ms", "2: 80.00 ms", "1: 100.00 ms"]
    assert "polyline" not in gaps
    first = plots["time_to_first_token_vs_input_sequence_lengths"].svg
    assert re.findall("<title>(.*?)</title>", first) == ["7: 100.00 ms", "9: 300.00 ms"]


def test_what_comes_whole_has_no_first_token() -> None:
    whole = [GeneratedText(0, (100 * MS,), ("a b c",), 7, 3, 0)]
    assert list(plots_of(whole, is_streaming=False)) == [
        "request_latency",
        "distribution_of_input_sequence_lengths_to_output_sequence_lengths",
    ]
    assert list(plots_of(whole, is_streaming=False, has_tokens=False)) == ["request_latency"]


def test_pages_are_written_below_the_folder(tmp_path: Path) -> None:
    options = LlmOptions("my<b>model", "chat", artifact_folder=str(tmp_path))
    paths = write_plots(list(plots_of(STREAMS, is_streaming=True).values()), options)
    assert [path.parent for path in paths] == [tmp_path / "my<b>model-chat-concurrency1" / "plots"] * 5
    text = paths[0].read_text()
    assert "<h1>my&lt;b&gt;model-chat-concurrency1</h1>" in text
    assert "<b>" not in text
    assert re.findall(r"https?:|url\(|@import|<script", text) == []


def test_a_folder_for_plots_that_is_a_file_is_told(tmp_path: Path) -> None:
    options = LlmOptions("m", "chat", artifact_folder=str(tmp_path))
    (tmp_path / "m-chat-concurrency1").mkdir()
    (tmp_path / "m-chat-concurrency1" / "plots").touch()
    with pytest.raises(PerfError, match=r"failed to write '.*request_latency\.html'"):
        write_plots(list(plots_of(STREAMS, is_streaming=False).values()), options)
