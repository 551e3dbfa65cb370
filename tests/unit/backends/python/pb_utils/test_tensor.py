"""pb_utils.Tensor: from numpy, from messages, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import triton_python_backend_utils as pb_utils
from trireme.backends.python.channel import messages
from trireme.backends.python.channel.arena import Arena, Attachments
from trireme.backends.python.pb_utils.tensor import decode_tensor, encode_tensor
from trireme.core.datatype import NUMPY_DTYPE


def through_a_message(tensor: pb_utils.Tensor) -> pb_utils.Tensor:
    frame = messages.encode((encode_tensor(tensor, None),))
    return decode_tensor(messages.decode(frame[4:])[0], None)


@given(
    hnp.arrays(
        st.sampled_from(list(NUMPY_DTYPE.values())), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
    )
)
def test_every_numpy_type_and_shape_survives_a_message(array: Any) -> None:
    returned = through_a_message(pb_utils.Tensor("T", array)).as_numpy()
    assert returned.dtype == array.dtype
    assert returned.shape == array.shape
    assert returned.tobytes() == array.tobytes()


@given(hnp.arrays(np.object_, hnp.array_shapes(min_dims=1, max_dims=2, min_side=0), elements=st.binary(max_size=9)))
def test_byte_strings_survive_a_message(array: Any) -> None:
    returned = through_a_message(pb_utils.Tensor("T", array)).as_numpy()
    assert returned.dtype == np.object_
    assert returned.shape == array.shape
    assert returned.tolist() == array.tolist()


@pytest.mark.parametrize(
    "array",
    [np.array(["é", b"b"], dtype=object), np.array(["é", "b"]), np.array(["é".encode(), b"b"])],
    ids=["objects", "U", "S"],
)
def test_strings_of_every_kind_arrive_as_utf8_bytes(array: Any) -> None:
    assert through_a_message(pb_utils.Tensor("T", array)).as_numpy().tolist() == ["é".encode(), b"b"]


def test_received_array_is_writable_and_the_same_at_every_call() -> None:
    tensor = decode_tensor(("X", "FP32", (1, 4), np.arange(4, dtype=np.float32).tobytes()), None)
    tensor.as_numpy()[0, 0] = 7
    assert tensor.as_numpy().tolist() == [[7, 1, 2, 3]]
    assert tensor.shape() == [1, 4]
    assert tensor.is_cpu()
    assert tensor.triton_dtype() == 11


def test_tensor_is_a_view_of_a_contiguous_array_and_a_copy_of_another() -> None:
    array = np.zeros((2, 3))
    tensor = pb_utils.Tensor("T", array)
    array[0, 0] = 5
    assert tensor.as_numpy() is array
    assert pb_utils.Tensor("T", array.T).as_numpy().flags.c_contiguous
    assert pb_utils.Tensor("T", array.T).shape() == [3, 2]


def test_big_endian_arrays_are_turned() -> None:
    assert through_a_message(pb_utils.Tensor("T", np.arange(3, dtype=">f4"))).as_numpy().tolist() == [0, 1, 2]


def test_scalar_array_keeps_its_empty_shape() -> None:
    assert pb_utils.Tensor("T", np.zeros(())).shape() == []
    assert pb_utils.Tensor("T", np.array(1.5, dtype=">f8")).shape() == []


@pytest.mark.parametrize(
    ("name", "array", "error"),
    [
        (None, np.zeros(2), TypeError),
        (1, np.zeros(2), TypeError),
        ("", None, TypeError),
        ("T", None, TypeError),
        ("T", [1, 2], TypeError),
        ("T", np.float32(3), TypeError),
        ("", np.zeros(2), pb_utils.TritonModelException),
        ("T", np.zeros(2, complex), pb_utils.TritonModelException),
        ("T", np.array("2020", "M8"), pb_utils.TritonModelException),
    ],
)
def test_unfit_arguments_are_refused(name: Any, array: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        pb_utils.Tensor(name, array)


def test_empty_name_is_refused_in_tritons_words() -> None:
    with pytest.raises(pb_utils.TritonModelException, match=r"^Tensor name cannot be an empty string\.$"):
        pb_utils.Tensor("", np.zeros(2))


def test_large_tensor_travels_through_shared_memory(lent_memory: tuple[Arena, Attachments]) -> None:
    arena, attachments = lent_memory
    array = np.arange(100_000, dtype=np.int64).reshape(100, 1000)
    message = encode_tensor(pb_utils.Tensor("T", array), arena)
    assert type(message[3]) is tuple
    received = decode_tensor(message, attachments).as_numpy()
    assert np.array_equal(received, array)
    del received
    assert attachments.take_released() == [message[3][:2]]


def test_large_strings_travel_through_shared_memory(lent_memory: tuple[Arena, Attachments]) -> None:
    arena, attachments = lent_memory
    array = np.array([b"x" * 50_000, b""], dtype=object)
    message = encode_tensor(pb_utils.Tensor("T", array), arena)
    assert type(message[3]) is tuple
    assert decode_tensor(message, attachments).as_numpy().tolist() == array.tolist()
    assert attachments.take_released() == [message[3][:2]]


def test_memory_of_a_tensor_that_nobody_looks_at_is_released(lent_memory: tuple[Arena, Attachments]) -> None:
    arena, attachments = lent_memory
    block = arena.place(bytes(40_000))
    decode_tensor(("T", "FP32", (10_000,), block), attachments)
    assert attachments.take_released() == [block[:2]]


def test_received_tensor_is_passed_on_without_being_unpacked() -> None:
    data = b"\x01\0\0\0a"
    assert encode_tensor(decode_tensor(("T", "BYTES", (1,), data), None), None)[3] is data
