"""Functions and constants of pb_utils about types, byte tensors and configuration dictionaries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import triton_python_backend_utils as pb_utils


def test_constants_have_tritons_numbers() -> None:
    assert pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START == 1
    assert pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END == 2
    assert pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL == 1
    assert pb_utils.TRITONSERVER_REQUEST_RELEASE_ALL == 1
    assert pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE == 2


def test_config_types_map_to_numpy() -> None:
    assert pb_utils.triton_string_to_numpy("TYPE_FP32") is np.float32
    assert pb_utils.triton_string_to_numpy("TYPE_STRING") is np.object_
    assert pb_utils.triton_string_to_numpy("TYPE_BOOL") is bool
    with pytest.raises(KeyError):
        pb_utils.triton_string_to_numpy("TYPE_BF16")


def test_numbers_map_to_numpy_and_back() -> None:
    assert pb_utils.triton_to_numpy_type(1) is np.bool_
    assert pb_utils.triton_to_numpy_type(11) is np.float32
    assert pb_utils.triton_to_numpy_type(13) is np.object_
    assert pb_utils.triton_to_numpy_type(14) is None
    assert pb_utils.numpy_to_triton_type(np.float32) == 11
    assert pb_utils.numpy_to_triton_type(np.dtype("float32")) == 11
    assert pb_utils.numpy_to_triton_type(np.object_) == pb_utils.numpy_to_triton_type(np.bytes_) == 13
    assert pb_utils.numpy_to_triton_type(complex) is None


@given(st.lists(st.binary(max_size=20), min_size=1))
def test_byte_tensors_come_back_as_they_went(elements: list[bytes]) -> None:
    array = np.empty(len(elements), dtype=object)
    array[:] = elements
    serialized = pb_utils.serialize_byte_tensor(array)
    assert isinstance(serialized, bytes)
    assert pb_utils.deserialize_bytes_tensor(serialized).tolist() == elements


def test_serialized_strings_have_their_length_before_them() -> None:
    assert pb_utils.serialize_byte_tensor(np.array(["é", b"bc"], dtype=object)) == b"\x02\0\0\0\xc3\xa9\x02\0\0\0bc"
    assert pb_utils.serialize_byte_tensor(np.array([], dtype=object)) == ()
    assert pb_utils.serialize_byte_tensor(np.array([1.0])) is None


CONFIG: dict[str, Any] = {
    "input": [{"name": "A", "data_type": "TYPE_FP32"}],
    "output": [{"name": "B"}],
    "model_transaction_policy": {"decoupled": True},
}


def test_entries_of_a_configuration_are_found_by_name() -> None:
    assert pb_utils.get_input_config_by_name(CONFIG, "A") is CONFIG["input"][0]
    assert pb_utils.get_output_config_by_name(CONFIG, "B") is CONFIG["output"][0]
    assert pb_utils.get_input_config_by_name(CONFIG, "B") is None
    assert pb_utils.get_output_config_by_name({}, "B") is None


def test_decoupled_policy_is_read_from_a_configuration() -> None:
    assert pb_utils.using_decoupled_model_transaction_policy(CONFIG)
    assert not pb_utils.using_decoupled_model_transaction_policy({})


def test_tensors_are_found_by_name() -> None:
    tensor = pb_utils.Tensor("A", np.zeros(1))
    response = pb_utils.InferenceResponse([tensor])
    request = pb_utils.InferenceRequest(model_name="m", inputs=[tensor], requested_output_names=[])
    assert pb_utils.get_output_tensor_by_name(response, "A") is tensor
    assert pb_utils.get_output_tensor_by_name(response, "Z") is None
    assert pb_utils.get_input_tensor_by_name(request, "A") is tensor
    assert pb_utils.get_input_tensor_by_name(request, "Z") is None
