"""Names that were probably meant."""

from __future__ import annotations

import pytest

from trireme.config.nearest import nearest


@pytest.mark.parametrize(
    ("name", "valid", "expected"),
    [
        ("max_bach_size", ["max_batch_size", "name"], "max_batch_size"),
        ("FP32", ["TYPE_INT32", "TYPE_FP32"], "TYPE_FP32"),
        ("text", ["max_tokens", "text_input"], "text_input"),
        ("text_input", ["text"], "text"),
        ("resnet", ["bert", "resnet_50_fp16_tensorrt"], "resnet_50_fp16_tensorrt"),
        ("tex", ["text_input"], None),
        ("text", ["textual_long_name"], None),
        ("_x", ["", "_x_of_many_letters"], "_x_of_many_letters"),
        ("", ["text"], None),
    ],
)
def test_nearest_name(name: str, valid: list[str], expected: str | None) -> None:
    assert nearest(name, valid) == expected
