"""Predictions of TensorFlow Serving byte by byte, and the ways in which answers have their values."""

from __future__ import annotations

import struct

from trireme.tools.perf.data.batches import RequestContent, RequestInput
from trireme.tools.perf.wire.tensorflow_messages import PredictResponse
from trireme.tools.perf.wire.tensorflow_requests import PredictForm, response_outputs


def test_a_prediction_has_the_bytes_of_the_protocol() -> None:
    content = RequestContent((RequestInput("x", "FP32", (1, 2), struct.pack("<2f", 1.0, 2.0)),), ())
    spec = b"\x0a\x01m" + b"\x12\x02\x08\x07" + b"\x1a\x01s"
    shape = b"\x12\x02\x08\x01" + b"\x12\x02\x08\x02"
    tensor = b"\x08\x01" + b"\x12\x08" + shape + b"\x22\x08" + struct.pack("<2f", 1.0, 2.0)
    entry = b"\x0a\x01x" + b"\x12" + bytes([len(tensor)]) + tensor
    message = b"\x0a" + bytes([len(spec)]) + spec + b"\x12" + bytes([len(entry)]) + entry
    form = PredictForm("m", "7", "s", content, encoding=None)
    assert form.plain == len(message).to_bytes(5, "big") + message


def test_values_are_found_wherever_the_server_put_them() -> None:
    answer = PredictResponse()
    answer.outputs["bytes"].dtype, answer.outputs["bytes"].tensor_content = 3, struct.pack("<i", 5)
    answer.outputs["small"].dtype = 4
    answer.outputs["small"].int_val.extend([1, 2])
    answer.outputs["half"].dtype = 19
    answer.outputs["half"].half_val.append(0x3C00)
    answer.outputs["text"].dtype = 7
    answer.outputs["text"].string_val.append(b"ab")
    assert response_outputs(answer.SerializeToString()) == {
        "bytes": ("INT32", struct.pack("<i", 5)),
        "small": ("UINT8", [1, 2]),
        "half": ("FP16", b"\x00\x3c"),
        "text": ("BYTES", b"\x02\x00\x00\x00ab"),
    }
    assert response_outputs(b"\xff") == {}
