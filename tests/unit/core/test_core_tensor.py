"""Tensors in wire layout: to numpy and back, and BYTES that are cut short."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from trireme.core.datatype import NUMPY_DTYPE, WIRE_NAMES, from_config, from_numpy, to_config
from trireme.core.elements import decode_bytes, element_count, encode_bytes
from trireme.core.tensor import Tensor

ARRAYS = st.sampled_from(sorted(NUMPY_DTYPE)).flatmap(
    lambda name: hnp.arrays(NUMPY_DTYPE[name], hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
)


@given(ARRAYS)
def test_an_array_survives_the_way_to_wire_layout_and_back(array):
    tensor = Tensor.from_numpy("x", array)
    assert tensor.to_numpy().dtype == array.dtype
    assert tensor.to_numpy().shape == array.shape
    assert tensor.to_numpy().tobytes() == array.tobytes()


def test_an_array_that_is_not_contiguous_is_written_in_c_order():
    array = np.arange(6, dtype=np.int32).reshape(2, 3).T
    assert Tensor.from_numpy("x", array).to_numpy().tolist() == array.tolist()


def test_big_endian_arrays_are_written_little_endian():
    array = np.array([1, 2], dtype=">i4")
    tensor = Tensor.from_numpy("x", array)
    assert tensor.datatype == "INT32"
    assert bytes(tensor.data) == b"\x01\0\0\0\x02\0\0\0"


def test_a_type_without_a_wire_name_is_refused_by_name():
    with pytest.raises(TypeError, match=r"'x'.*complex128"):
        Tensor.from_numpy("x", np.zeros(1, dtype=np.complex128))


@given(st.lists(st.binary(max_size=20), max_size=8))
def test_bytes_elements_survive_wire_layout(elements):
    assert decode_bytes(encode_bytes(elements)) == elements


def test_bytes_arrays_keep_their_shape():
    array = np.array([["a", b"b"], ["ü", b""]], dtype=object)
    tensor = Tensor.from_numpy("x", array)
    assert tensor.datatype == "BYTES"
    assert tensor.to_numpy().tolist() == [[b"a", b"b"], ["ü".encode(), b""]]


@given(st.lists(st.binary(max_size=9), min_size=1, max_size=4), st.data())
def test_bytes_cut_anywhere_inside_an_element_raise_value_error(elements, data):
    whole = encode_bytes(elements)
    ends = {len(encode_bytes(elements[:count])) for count in range(len(elements) + 1)}
    cut = data.draw(st.integers(0, len(whole)))
    if cut in ends:
        assert decode_bytes(whole[:cut]) == elements[: sorted(ends).index(cut)] or b"" in elements
    else:
        with pytest.raises(ValueError, match="incomplete"):
            decode_bytes(whole[:cut])


def test_a_scalar_has_one_element_and_an_empty_dimension_none():
    assert element_count(()) == 1
    assert element_count((3, 0, 2)) == 0


def test_config_names_and_wire_names_map_onto_each_other():
    for name in WIRE_NAMES:
        assert from_config(to_config(name)) == name
    assert to_config("BYTES") == "TYPE_STRING"


def test_strings_and_objects_are_bytes_tensors():
    assert from_numpy(np.dtype("S4")) == "BYTES"
    assert from_numpy(np.dtype("U4")) == "BYTES"
    assert from_numpy(np.dtype(object)) == "BYTES"
