"""DLPack in both directions, with numpy and with capsules made by hand."""

from __future__ import annotations

import ctypes
import gc
import sys
import types
import weakref
from typing import Any

import numpy as np
import pytest

import triton_python_backend_utils as pb_utils
from trireme.backends.python.pb_utils import dlpack
from trireme.backends.python.pb_utils.tensor import decode_tensor, encode_tensor
from trireme.core.datatype import NUMPY_DTYPE


@pytest.mark.parametrize("datatype", list(NUMPY_DTYPE))
def test_numpy_reads_our_tensors(datatype: str) -> None:
    array = np.array([[0, 1, 1], [1, 0, 1]]).astype(NUMPY_DTYPE[datatype])
    read = np.from_dlpack(pb_utils.Tensor("T", array))
    assert read.dtype == array.dtype
    assert np.array_equal(read, array)


@pytest.mark.parametrize("datatype", list(NUMPY_DTYPE))
def test_we_read_numpy(datatype: str) -> None:
    array = np.array([[0, 1, 1], [1, 0, 1]]).astype(NUMPY_DTYPE[datatype])
    tensor = pb_utils.Tensor.from_dlpack("T", array)
    assert tensor.as_numpy().dtype == array.dtype
    assert np.array_equal(tensor.as_numpy(), array)


def test_memory_is_shared_in_both_directions() -> None:
    array = np.zeros(4)
    tensor = pb_utils.Tensor.from_dlpack("T", array)
    array[1] = 5
    assert tensor.as_numpy().tolist() == [0, 5, 0, 0]
    np.from_dlpack(tensor)
    assert pb_utils.Tensor.from_dlpack("T", array.__dlpack__()).as_numpy().tolist() == [0, 5, 0, 0]


def test_a_copy_is_made_where_one_is_asked_for() -> None:
    array = np.zeros(4)
    copied = pb_utils.Tensor.from_dlpack("C", pb_utils.Tensor("T", array).__dlpack__(copy=True))
    array[0] = 1
    assert copied.as_numpy()[0] == 0


def test_exported_memory_lives_as_long_as_its_taker() -> None:
    class Traced(np.ndarray[Any, Any]):
        pass

    array = np.arange(6.0).view(Traced)
    gone = weakref.ref(array)
    read = np.from_dlpack(pb_utils.Tensor("T", array))
    del array
    gc.collect()
    assert read.tolist() == [0, 1, 2, 3, 4, 5]
    assert gone() is not None
    del read
    gc.collect()
    assert gone() is None


def test_capsule_that_nobody_takes_frees_its_memory() -> None:
    before = len(dlpack._exported)
    capsule = pb_utils.Tensor("T", np.zeros(3)).to_dlpack()
    assert "dltensor" in repr(capsule)
    assert len(dlpack._exported) == before + 1
    del capsule
    assert len(dlpack._exported) == before


def test_foreign_deleter_is_called_once_when_the_last_array_is_gone() -> None:
    deleted: list[int] = []
    managed, capsule = hand_made_capsule(np.array([1, 2], np.int32), code=0, bits=32, deleted=deleted)
    tensor = pb_utils.Tensor.from_dlpack("T", capsule)
    assert "used_dltensor" in repr(capsule)
    part = tensor.as_numpy()[1:]
    del tensor, capsule
    assert deleted == []
    assert part.tolist() == [2]
    del part
    assert deleted == [ctypes.addressof(managed)]


def test_a_capsule_is_taken_once() -> None:
    capsule = np.zeros(3).__dlpack__()
    tensor = pb_utils.Tensor.from_dlpack("T", capsule)
    with pytest.raises(pb_utils.TritonModelException, match="already consumed"):
        pb_utils.Tensor.from_dlpack("T", capsule)
    assert tensor.shape() == [3]


def test_bfloat16_goes_in_through_dlpack_and_out_as_it_came() -> None:
    bits = np.array([0x3F80, 0x4000, 0xC040], np.uint16)  # 1, 2, -3
    _, capsule = hand_made_capsule(bits, code=4, bits=16)
    tensor = pb_utils.Tensor.from_dlpack("T", capsule)
    name, datatype, shape, data = encode_tensor(tensor, None)
    assert (name, datatype, tuple(shape), bytes(data)) == ("T", "BF16", (3,), bits.tobytes())
    with pytest.raises(pb_utils.TritonModelException, match="Tensor dtype is BF16 and cannot be converted to NumPy"):
        tensor.as_numpy()


def test_received_bfloat16_comes_out_through_dlpack() -> None:
    bits = np.array([0x3F80, 0x4000], np.uint16)
    received = decode_tensor(("T", "BF16", (2,), bits.tobytes()), None)
    again = pb_utils.Tensor.from_dlpack("U", received)
    assert bytes(encode_tensor(again, None)[3]) == bits.tobytes()


def test_empty_tensors_have_capsules_too() -> None:
    tensor = pb_utils.Tensor.from_dlpack("T", np.zeros((0, 3), np.float32))
    assert tensor.shape() == [0, 3]
    assert np.from_dlpack(tensor).shape == (0, 3)


class OnDevice:
    """An array that claims to lie somewhere else."""

    def __init__(self, array: Any, device_type: int) -> None:
        self._array = array
        self._device_type = device_type

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self._device_type, 0)

    def __dlpack__(self, **_options: Any) -> Any:
        return self._array.__dlpack__()


class TorchLike(OnDevice):
    def cpu(self) -> Any:
        return self._array


class CupyLike(OnDevice):
    def get(self) -> Any:
        return self._array


@pytest.mark.parametrize("kind", [TorchLike, CupyLike])
def test_tensor_on_a_gpu_is_copied_by_its_own_method(kind: type[OnDevice]) -> None:
    assert pb_utils.Tensor.from_dlpack("T", kind(np.arange(3.0), 2)).as_numpy().tolist() == [0, 1, 2]


def test_capsule_on_a_gpu_is_copied_by_the_library_that_made_it(monkeypatch: pytest.MonkeyPatch) -> None:
    _, capsule = hand_made_capsule(np.zeros(3), code=2, bits=64, device=2)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    with pytest.raises(pb_utils.TritonModelException, match="pass the tensor object itself"):
        pb_utils.Tensor.from_dlpack("T", capsule)
    library = types.ModuleType("torch")
    monkeypatch.setattr(library, "from_dlpack", lambda given: TorchLike(np.arange(3.0), 2), raising=False)
    monkeypatch.setitem(sys.modules, "torch", library)
    assert pb_utils.Tensor.from_dlpack("T", capsule).as_numpy().tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("name", "tensor", "error", "text"),
    [
        ("", np.zeros(2), pb_utils.TritonModelException, "Tensor name cannot be an empty string"),
        (None, np.zeros(2), TypeError, "name"),
        ("T", None, pb_utils.TritonModelException, "Tensor must be a DLPack capsule"),
        ("T", 3, pb_utils.TritonModelException, "__dlpack_device__` attributes"),
        ("T", np.zeros((2, 3)).T, pb_utils.TritonModelException, "DLPack tensor is not contiguous"),
        ("T", np.zeros(2, complex), pb_utils.TritonModelException, "not supported"),
        ("T", OnDevice(np.zeros(2), 2), pb_utils.TritonModelException, "cpu"),
        ("T", OnDevice(np.zeros(2), 10), pb_utils.TritonModelException, "DLDevice type 10 is not support by"),
    ],
)
def test_what_cannot_be_read_is_refused(name: Any, tensor: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        pb_utils.Tensor.from_dlpack(name, tensor)


def test_strings_have_no_capsule() -> None:
    with pytest.raises(pb_utils.TritonModelException, match=r"DLPack does not have support for string tensors\."):
        pb_utils.Tensor("T", np.array([b"x"], dtype=object)).to_dlpack()


def test_device_is_the_cpu() -> None:
    assert pb_utils.Tensor("T", np.zeros(2)).__dlpack_device__() == (1, 0)


_kept: list[Any] = []


def hand_made_capsule(
    array: Any, code: int, bits: int, deleted: list[int] | None = None, device: int = 1
) -> tuple[Any, Any]:
    """A capsule over an array's memory, as another library would make it."""
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    managed = dlpack._ManagedTensor()
    managed.tensor.data = array.ctypes.data
    managed.tensor.device = dlpack._Device(device, 0)
    managed.tensor.ndim = array.ndim
    managed.tensor.dtype = dlpack._DataType(code, bits, 1)
    managed.tensor.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
    deleter = dlpack._Deleter(lambda address: (deleted if deleted is not None else []).append(address))
    managed.deleter = deleter
    no_destructor = dlpack._Destructor(lambda _capsule: None)
    _kept.extend((array, shape, managed, deleter, no_destructor))
    return managed, dlpack._new_capsule(ctypes.addressof(managed), b"dltensor", no_destructor)
