"""Forms as requests: files to strings, texts to numbers, pictures left over, everything else parameters."""

from __future__ import annotations

import time

import pytest

from trireme.core.errors import InvalidArgumentError, ServingError, UnsupportedMediaError
from trireme.protocol.v2.form import FormDocument, decode_form, infer_document
from trireme.protocol.v2.generate import InputForm

FORMS: dict[str, InputForm] = {
    "sound": ("BYTES", (-1, 1)),
    "pixels": ("FP32", (-1, 3, 4, 4)),
    "level": ("INT32", (-1, 2)),
}


def decoded(*fields: tuple[str, bytes, str], limit: int = 1 << 20) -> FormDocument:
    body = b""
    for name, content, file_name in fields:
        file_text = f'; filename="{file_name}"' if file_name else ""
        body += f'--B\r\nContent-Disposition: form-data; name="{name}"{file_text}\r\n\r\n'.encode() + content + b"\r\n"
    return decode_form(body + b"--B--\r\n", b"B", FORMS, "pixels", limit)


def test_files_become_strings_in_a_batch() -> None:
    tensor = decoded(("sound", b"\0\xff", "a.wav"), ("sound", b"", "b.wav")).inputs["sound"]
    assert (tensor.datatype, tensor.shape) == ("BYTES", (2, 1))
    assert tensor.to_numpy().tolist() == [[b"\0\xff"], [b""]]


def test_pictures_are_kept_for_their_decoder() -> None:
    form = decoded(("pixels", b"one", "a.jpg"), ("pixels", b"two", "b.jpg"))
    assert [bytes(content) for content in form.pictures] == [b"one", b"two"]
    assert form.inputs == {}


@pytest.mark.parametrize("fields", [[b"[[1, 2]]"], [b"1", b"2"]])
def test_numbers_come_as_json_or_one_by_one(fields: list[bytes]) -> None:
    tensor = decoded(*(("level", content, "") for content in fields)).inputs["level"]
    assert tensor.to_numpy().tolist() == [[1, 2]]


def test_numbers_beside_a_deep_list_are_read_once() -> None:
    deep = b"[" * 200 + b"7" + b"]" * 200
    began_s = time.perf_counter()
    found = decoded(("level", b"[" + b"1," * 999_999 + deep + b"]", ""), limit=1 << 30)
    assert found.inputs["level"].shape == (500_000, 2)
    assert time.perf_counter() - began_s < 6


def test_other_fields_are_the_requests_wishes_and_parameters() -> None:
    form = decoded(("id", b"7", ""), ("classification", b"3", ""), ("priority", b"2", ""), ("mood", b"good", ""))
    document = infer_document(form, ["scores"], 1 << 20)
    assert (document.request_id, document.priority, document.parameters) == ("7", 2, {"mood": "good"})
    assert document.requested_outputs == ("scores",)
    assert document.output_parameters is not None
    assert document.output_parameters.class_counts == {"scores": 3}
    assert infer_document(decoded(("outputs", b"a, b", "")), [], 1 << 20).requested_outputs == ("a", "b")
    described = decoded(("outputs", b'[{"name": "a", "parameters": {"binary_data": true}}]', ""))
    assert infer_document(described, [], 1 << 20).is_all_binary


@pytest.mark.parametrize(
    ("field", "error", "words"),
    [
        (("level", b"\0\1", "level.bin"), UnsupportedMediaError, "'image_input'"),
        (("level", b"loud", ""), InvalidArgumentError, "numbers, found 'loud'"),
        (("level", b"[1, 2, 3]", ""), InvalidArgumentError, "proper shape"),
        (("level", b'["a", 2]', ""), ServingError, "attempt to access JSON"),
        (("level", b"[NaN, 1]", ""), ServingError, "attempt to access JSON"),
        (("level", b"[" * 3000 + b"]" * 3000, ""), InvalidArgumentError, "nesting depth"),
        (("photo", b"x", "photo.jpg"), InvalidArgumentError, "its inputs are: sound, pixels, level"),
        (("mood", b"\xff", ""), InvalidArgumentError, "neither a file nor UTF-8 text"),
        (
            ("outputs", b"[1" + b",1" * 16_384 + b"]", ""),
            InvalidArgumentError,
            "16385 values in field 'outputs'; the lim",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_words(
    field: tuple[str, bytes, str], error: type[ServingError], words: str
) -> None:
    with pytest.raises(error, match=words):
        decoded(field)


def test_numbers_beyond_the_limit_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="exceeds the maximum"):
        decoded(("level", b"[" + b"1," * 999 + b"1]", ""), limit=1000)


@pytest.mark.parametrize("names", [b"," * 16_384, b'["a","%b"]' % (b"," * 16_384)])
def test_more_outputs_than_any_model_has_are_refused(names: bytes) -> None:
    with pytest.raises(InvalidArgumentError, match=r"the request has 1638\d outputs; the limit is 16384"):
        infer_document(decoded(("outputs", names, "")), [], 1 << 20)
