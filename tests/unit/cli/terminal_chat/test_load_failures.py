"""What a server's log says of models that were not loaded, in a sentence for each."""

from __future__ import annotations

from pathlib import Path

import trireme
from trireme.cli.terminal_chat.load_failures import load_failures

HEAD = "E1119 13:30:22.949495 11170 version_loader.py:84]"
OWN = str(Path(trireme.__file__).parent)


def test_what_our_own_code_says_is_told_without_its_trace() -> None:
    log = (
        f"{HEAD} failed to load 'a' version 1: Internal: CheckpointError: m.safetensors is cut off; copy it again\n\n"
        f"At:\n  {OWN}/llm/checkpoint.py(3): read\n\nerror: creating server: Internal - failed to load all models\n"
    )
    assert load_failures(log) == {"a": "m.safetensors is cut off; copy it again"}


def test_what_a_users_code_says_keeps_its_kind_and_the_lines_it_comes_from() -> None:
    log = (
        f"{HEAD} failed to load 'a' version 1: Internal: ValueError: no sails\nno mast\n\n"
        f"At:\n  /models/a/1/model.py(3): rig\n  {OWN}/worker.py(8): load\n"
        "W1119 13:30:23.000000 11170 other.py:1] something else\n"
        "E1119 13:30:23.000000 11170 model_poll.py:39] Poll failed for model directory 'b': Invalid model name: none\n"
    )
    assert load_failures(log) == {
        "a": "ValueError: no sails\nno mast\nAt:\n  /models/a/1/model.py(3): rig",
        "b": "Invalid model name: none",
    }


def test_nothing_is_found_in_a_log_of_other_things() -> None:
    assert load_failures("W1119 13:30:23.000000 11170 other.py:1] a warning\nsome words of a library\n") == {}
