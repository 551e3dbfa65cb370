"""Outputs as files: JSON, arrays of numpy, text, pictures, sounds, or the bytes as they are."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trireme.core.datatype import BYTES
from trireme.core.tensor import Tensor
from trireme.tools.client.errors import InputError
from trireme.tools.client.messages import InferAnswer
from trireme.tools.client.model import ServedModel, nearest
from trireme.tools.infer.picture import write_picture
from trireme.tools.infer.printing import answer_document
from trireme.tools.infer.sound import SOUND_SUFFIXES, write_samples
from trireme.tools.infer.values import array_of, elements_of, json_values
from trireme.tools.result_files import unwritable

_TEXT_SUFFIXES = (".txt", ".md")


class OutputFiles:
    """The files of `-o`: `NAME=FILE` for one output, `FILE` for the whole answer or the only output."""

    def __init__(self, model: ServedModel, words: Sequence[str], sample_rate: int) -> None:
        self._sample_rate = sample_rate
        self._targets = [_target(model, word) for word in words]
        self._documents: list[dict[str, Any]] = []
        self._numbers: dict[Path, int] = {}
        self.written: dict[Path, int] = {}
        """By file: its bytes."""

    def take(self, answer: InferAnswer) -> None:
        """Writes what the answer has; of a stream texts are put together, other files get a number. Raises
        InputError where a file cannot be written."""
        if not answer.outputs:
            return
        for name, path in self._targets:
            if name is None and path.suffix.lower() == ".json":
                self._documents.append(answer_document(answer))
            elif name is None and path.suffix.lower() == ".npz":
                self._write_arrays(path, answer)
            else:
                tensor = _chosen(answer, name)
                if tensor is not None:
                    self._write_tensor(path, tensor)

    def finish(self) -> None:
        """Writes what holds all answers."""
        for name, path in self._targets:
            if name is None and path.suffix.lower() == ".json" and self._documents:
                whole = self._documents[0] if len(self._documents) == 1 else self._documents
                self._write(path, json.dumps(whole, ensure_ascii=False).encode() + b"\n")

    def _write_arrays(self, path: Path, answer: InferAnswer) -> None:
        place = self._numbered(path)
        arrays = {tensor.name: _plain_array(tensor) for tensor in answer.outputs}
        try:
            np.savez(place, **arrays)
            self.written[place] = place.stat().st_size
        except OSError as error:
            raise _unwritable(place, error) from None

    def _write_tensor(self, path: Path, tensor: Tensor) -> None:
        suffix = path.suffix.lower()
        if suffix == ".npy":
            place = self._numbered(path)
            try:
                np.save(place, _plain_array(tensor), allow_pickle=False)
                self.written[place] = place.stat().st_size
            except OSError as error:
                raise _unwritable(place, error) from None
        elif tensor.datatype == BYTES:
            self._write_elements(path, elements_of(tensor), suffix)
        elif suffix == ".json":
            self._write(self._numbered(path), json.dumps(json_values(array_of(tensor))).encode() + b"\n")
        elif suffix in _TEXT_SUFFIXES:
            numbers = "\n".join(str(value) for value in array_of(tensor).ravel().tolist())
            self._write(self._numbered(path), f"{numbers}\n".encode())
        elif suffix == ".png":
            self._write(self._numbered(path), write_picture(array_of(tensor), path.name))
        elif suffix in SOUND_SUFFIXES:
            self._write(self._numbered(path), write_samples(array_of(tensor), self._sample_rate))
        else:
            self._write(self._numbered(path), bytes(tensor.data))

    def _write_elements(self, path: Path, elements: list[bytes], suffix: str) -> None:
        """Texts are put together, with a line for each of several; a file in an element is written as it is."""
        if suffix in _TEXT_SUFFIXES:
            content = elements[0] if len(elements) == 1 else b"".join(element + b"\n" for element in elements)
            self._write(path, content, is_more=path in self.written)
            return
        if suffix == ".json":
            texts = [element.decode("utf-8", "replace") for element in elements]
            self._write(self._numbered(path), json.dumps(texts, ensure_ascii=False).encode() + b"\n")
            return
        for element in elements:
            self._write(self._numbered(path), element)

    def _numbered(self, path: Path) -> Path:
        """The file itself the first time, then `name-2.npy`."""
        number = self._numbers[path] = self._numbers.get(path, 0) + 1
        return path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")

    def _write(self, path: Path, content: bytes, is_more: bool = False) -> None:
        try:
            with path.open("ab" if is_more else "wb") as file:
                file.write(content)
        except OSError as error:
            raise _unwritable(path, error) from None
        self.written[path] = self.written.get(path, 0) + len(content) if is_more else len(content)


def _target(model: ServedModel, word: str) -> tuple[str | None, Path]:
    name, separator, file = word.partition("=")
    known = [spec.name for spec in model.outputs]
    if separator and (name in known or not Path(word).parent.is_dir()):
        if name not in known:
            raise InputError(f"the model has no output '{name}'{nearest(name, known)}")
        return name, _writable(file)
    path = _writable(word)
    if len(known) > 1 and path.suffix.lower() not in (".json", ".npz"):
        raise InputError(f"say which output goes to '{word}': NAME={word}, with one of {', '.join(known)}")
    return (None if path.suffix.lower() in (".json", ".npz") or not known else known[0]), path


def _writable(file: str) -> Path:
    path = Path(os.path.expanduser(file))
    if reason := unwritable(path):
        raise InputError(f"'{path}' cannot be written: {reason}")
    return path


def _chosen(answer: InferAnswer, name: str | None) -> Tensor | None:
    if name is None:
        return answer.outputs[0]
    return next((tensor for tensor in answer.outputs if tensor.name == name), None)


def _plain_array(tensor: Tensor) -> Any:
    """Texts as numpy's own, which need no pickle."""
    array = array_of(tensor)
    if tensor.datatype != BYTES:
        return array
    try:
        return np.array([element.decode() for element in array.ravel()], dtype=np.str_).reshape(array.shape)
    except UnicodeDecodeError:
        return array.astype(np.bytes_)


def _unwritable(path: Path, error: OSError) -> InputError:
    return InputError(f"'{path}' cannot be written: {error.strerror or error}")
