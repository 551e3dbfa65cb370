"""Compiles CUDA's C++ while the program runs, with the compiler that comes with PyTorch, and launches what it gives."""

from __future__ import annotations

import ctypes
import functools
import glob
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

_OVERLAP = 6
"""The number of the launch attribute by which a kernel may begin before the one before it has ended."""


Argument = torch.Tensor | int | float | None
"""Of a kernel: a tensor is a pointer to its first number."""


class CudaSourceError(Exception):
    """Source that cannot be compiled or loaded here."""


class Kernel:
    """A function on the device."""

    def __init__(self, function: ctypes.c_void_p) -> None:
        self._function = function

    def launch(
        self, grid: tuple[int, int], threads: int, arguments: Sequence[torch.Tensor | int | float | None]
    ) -> None:
        """On the current stream; it may begin early, and has to wait by itself for what it reads."""
        values = [_value(argument) for argument in arguments]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        attribute = _Attribute(_OVERLAP, 0, 1)
        stream = torch.cuda.current_stream().cuda_stream
        config = _Config(*grid, 1, threads, 1, 1, 0, stream, ctypes.pointer(attribute), 1)
        _check(_driver().cuLaunchKernelEx(ctypes.byref(config), self._function, pointers, None), "launch a kernel")


@functools.cache
def compiled(path: Path, name: str, macros: tuple[tuple[str, int], ...], device: torch.device) -> Kernel:
    """The function of that name; raises CudaSourceError."""
    major, minor = torch.cuda.get_device_capability(device)
    options = [f"--gpu-architecture=sm_{major}{minor}", "--std=c++17", *(f"-D{key}={value}" for key, value in macros)]
    image = _compile(path.read_text(), path.name, options)
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    with torch.cuda.device(device):
        torch.cuda.current_stream().synchronize()  # so that the device's context is there
        _check(_driver().cuModuleLoadData(ctypes.byref(module), image), f"load {path.name}")
    _check(_driver().cuModuleGetFunction(ctypes.byref(function), module, name.encode()), f"find {name}")
    return Kernel(function)


@functools.cache
def why_not(device: torch.device) -> str:
    """Why nothing can be compiled for a device; "": it can."""
    if device.type != "cuda":
        return "it is not a GPU"
    if torch.cuda.get_device_capability(device) < (9, 0):
        return "its GPU is older than the kernels are for"
    try:
        _compiler()
        _driver()
    except CudaSourceError as error:
        return str(error)
    return ""


def macros_of(values: Mapping[str, int | bool]) -> tuple[tuple[str, int], ...]:
    """As `compiled` takes them."""
    return tuple(sorted((key, int(value)) for key, value in values.items()))


class _Attribute(ctypes.Structure):
    _fields_ = (
        ("id", ctypes.c_uint),
        ("padding", ctypes.c_uint),
        ("value", ctypes.c_int),
        ("rest", ctypes.c_char * 60),
    )


class _Config(ctypes.Structure):
    _fields_ = (
        ("grid_x", ctypes.c_uint),
        ("grid_y", ctypes.c_uint),
        ("grid_z", ctypes.c_uint),
        ("block_x", ctypes.c_uint),
        ("block_y", ctypes.c_uint),
        ("block_z", ctypes.c_uint),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("attribute_count", ctypes.c_uint),
    )


def _value(argument: Argument) -> ctypes.c_void_p | ctypes.c_int | ctypes.c_float:
    if argument is None or isinstance(argument, torch.Tensor):
        return ctypes.c_void_p(argument.data_ptr() if argument is not None else 0)
    return ctypes.c_float(argument) if isinstance(argument, float) else ctypes.c_int(argument)


def _compile(source: str, name: str, options: Sequence[str]) -> bytes:
    library = _compiler()
    program = ctypes.c_void_p()
    created = library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), name.encode(), 0, None, None)
    if created:
        raise CudaSourceError(f"the compiler does not take {name}: error {created}")
    try:
        given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        if library.nvrtcCompileProgram(program, len(options), given):
            size = ctypes.c_size_t()
            library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            library.nvrtcGetProgramLog(program, log)
            raise CudaSourceError(f"{name} cannot be compiled: {log.value.decode(errors='replace')}")
        size = ctypes.c_size_t()
        library.nvrtcGetCUBINSize(program, ctypes.byref(size))
        image = ctypes.create_string_buffer(size.value)
        library.nvrtcGetCUBIN(program, image)
        return image.raw
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


@functools.cache
def _compiler() -> ctypes.CDLL:
    version = (torch.version.cuda or "").partition(".")[0]
    beside = os.path.join(os.path.dirname(os.path.dirname(torch.__file__)), "nvidia", "*", "lib", "libnvrtc.so.*")
    for path in (f"libnvrtc.so.{version}", *sorted(glob.glob(beside)), "libnvrtc.so"):
        if "builtins" in path:
            continue
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    raise CudaSourceError("PyTorch came without the compiler libnvrtc")


@functools.cache
def _driver() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise CudaSourceError(f"the driver cannot be loaded: {error}") from None


def _check(code: int, what: str) -> None:
    if code:
        raise CudaSourceError(f"the device could not {what}: error {code}")
