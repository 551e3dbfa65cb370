"""A user's file with what changes changed, and everything else as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from trireme.config.text.pbtxt import parse_text
from trireme.tools.analyze.configuration.variant_text import edited, variant_text
from trireme.tools.analyze.errors import InputError
from trireme.tools.analyze.trial import Setting

CONFIG = {"max_batch_size": 16, "dynamic_batching": {}, "instance_group": [{"count": 3, "kind": "KIND_CPU"}]}
BOTH = Setting(3, 16)


@pytest.mark.parametrize(
    "text",
    [
        'backend: "python"\nmax_batch_size: 4\n',
        'max_batch_size: 4 backend: "python"',
        'backend: "python", max_batch_size: 4; instance_group [ { count: 1 }, { count: 2 } ]',
        'backend: "python"\ninstance_group { count: 1 }\ninstance_group: { count: 9 }\ndynamic_batching { }\n',
        'dynamic_batching < preferred_batch_size: [ 1, 2 ] >\nbackend: "max_batch_size: 9"\n',
        "",
    ],
)
def test_the_fields_of_a_setting_are_those_of_the_variant_and_no_others_change(text: str) -> None:
    before, after = parse_text(text, "f"), parse_text(edited(text, CONFIG, BOTH, "f"), "f")
    assert after.max_batch_size == 16
    assert after.HasField("dynamic_batching")
    assert [group.count for group in after.instance_group] == [3]
    assert after.backend == before.backend


@pytest.mark.parametrize("content", [None, b'backend: "python"  # \xe9t\xe9\n'], ids=["absent", "not UTF-8"])
def test_a_file_that_is_no_text_is_no_reason_not_to_show_the_variant(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "m").mkdir()
        (tmp_path / "m/config.pbtxt").write_bytes(content)
    assert parse_text(variant_text(CONFIG, str(tmp_path), "m", BOTH), "f").max_batch_size == 16


def test_comments_and_layout_stay() -> None:
    text = '# first\nbackend: "python"  # why\n\nmax_batch_size: 4\n# last\n'
    assert edited(text, CONFIG, Setting(max_batch_size=16), "f") == (
        '# first\nbackend: "python"  # why\n\n# last\nmax_batch_size: 16\ndynamic_batching {\n}\n'
    )


def test_a_file_that_says_it_already_is_not_touched() -> None:
    text = "max_batch_size: 16 dynamic_batching {} # as it is"
    assert edited(text, CONFIG, Setting(max_batch_size=16), "f") == text


def test_other_parameters_stay_where_an_engine_limit_changes() -> None:
    text = 'parameters { key: "executor" value { string_value: "numpy" } }\nbackend: "llm"\n'
    config = {"parameters": {"executor": {"string_value": "numpy"}, "max_sequences": {"string_value": "8"}}}
    after = parse_text(edited(text, config, Setting(max_sequences=8), "f"), "f")
    assert {key: value.string_value for key, value in after.parameters.items()} == {
        "executor": "numpy",
        "max_sequences": "8",
    }


def test_a_file_that_cannot_be_read_is_named() -> None:
    with pytest.raises(InputError, match="model/config"):
        edited("max_batch_size 4", CONFIG, BOTH, "model/config.pbtxt")


def test_a_whole_configuration_can_be_read_again() -> None:
    message = parse_text(variant_text({"name": "m", **CONFIG}), "f")
    assert (message.name, message.max_batch_size) == ("m", 16)
