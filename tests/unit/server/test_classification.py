"""The classification extension: order, labels, batches, formats and refusals."""

from __future__ import annotations

import numpy as np
import pytest

from trireme.core.elements import decode_bytes
from trireme.core.errors import InvalidArgumentError
from trireme.core.tensor import Tensor
from trireme.server.classification import MAX_ELEMENTS, classify

LABELS = ["zero", "one", "two"]


def tensor(values: object, dtype: str = "float32") -> Tensor:
    return Tensor.from_numpy("out", np.array(values, dtype=dtype))


def test_the_highest_come_first_with_their_labels() -> None:
    best = classify(tensor([[0.5, 2.25, -1, 2.25]]), 9, LABELS, is_batched=True)
    assert (best.name, best.datatype, best.shape) == ("out", "BYTES", (1, 4))
    assert decode_bytes(best.data) == [b"2.250000:1:one", b"2.250000:3", b"0.500000:0:zero", b"-1.000000:2:two"]


def test_equal_values_keep_the_order_of_their_indices() -> None:
    best = classify(tensor([1, 1, 2, 2], "int64"), 3, [], is_batched=False)
    assert best.shape == (3,)
    assert decode_bytes(best.data) == [b"2:2", b"2:3", b"1:0"]


def test_items_of_a_batch_are_classified_apart_and_other_dimensions_flattened() -> None:
    best = classify(tensor([[[1, 2], [3, 4]], [[8, 7], [6, 5]]], "uint8"), 1, [], is_batched=True)
    assert (best.shape, decode_bytes(best.data)) == ((2, 1), [b"4:3", b"8:0"])


def test_values_that_are_not_finite_are_named() -> None:
    best = classify(tensor([float("inf"), 1, float("-inf")]), 3, [], is_batched=False)
    assert decode_bytes(best.data) == [b"inf:0", b"1.000000:1", b"-inf:2"]


def test_an_empty_output_has_no_classes() -> None:
    assert classify(tensor(np.zeros((1, 0))), 3, [], is_batched=True).shape == (1, 0)


@pytest.mark.parametrize("datatype", ["BOOL", "FP16", "BF16", "BYTES"])
def test_types_without_an_order_are_refused(datatype: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        classify(Tensor("out", datatype, (1,), b"\0\0"), 1, [], is_batched=False)
    assert caught.value.message == f"class result not available for output due to unsupported type '{datatype}'"


def test_outputs_too_large_are_refused() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        classify(tensor(np.zeros(MAX_ELEMENTS + 1), "int8"), 1, [], is_batched=False)
    assert caught.value.message == "classification output tensor too large"
