"""The models that the console is tried with: one of each kind of input and output, and some that misbehave."""

from __future__ import annotations

import shutil
from pathlib import Path

from running_server import write_ensemble, write_model

EXAMPLES = Path(__file__).parents[3] / "examples" / "model_repository"
HOSTILE_NAME = "<img src=x onerror=alert(1)>"
ODD_NAME = "it's (a) 100% #1?"
HOSTILE_TEXT = "<script>alert(2)</script><b onmouseover=alert(3)>bold</b>"

_HEAD = """
import time
import numpy as np
import triton_python_backend_utils as pb_utils

def answer(**tensors):
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, value) for name, value in tensors.items()])

class TritonPythonModel:
    def execute(self, requests):
        return [self.run(request) for request in requests]
"""

ADD_ONE = (
    _HEAD
    + """
    def run(self, request):
        given = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
        if given.size and given.flat[0] == 666:
            raise pb_utils.TritonModelException("the number of the beast <img src=x onerror=alert(4)>")
        if given.size and given.flat[0] == 667:
            import os
            os._exit(3)
        if given.size and given.flat[0] == 700:
            time.sleep(0.2)
        return answer(OUT=given + 1)
"""
)

ECHO = (
    _HEAD
    + """
    def run(self, request):
        given = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()
        return answer(REPLY=given)
"""
)

CLASSES = (
    _HEAD
    + """
    def run(self, request):
        pixels = pb_utils.get_input_tensor_by_name(request, "PIXELS").as_numpy()
        return answer(SCORES=pixels.mean(axis=(2, 3)).astype(np.float32))
"""
)

SHAPE = (
    _HEAD
    + """
    def run(self, request):
        pixels = pb_utils.get_input_tensor_by_name(request, "PIXELS").as_numpy()
        others = (0, 2, 3) if pixels.shape[1] == 3 else (0, 1, 2)
        return answer(SHAPE=np.array(pixels.shape), MEANS=pixels.mean(axis=others).astype(np.float32))
"""
)

DETECTOR = (
    _HEAD
    + """
    def run(self, request):
        size = len(pb_utils.get_input_tensor_by_name(request, "image").as_numpy().flat[0])
        mask = np.zeros((1, 40, 60), np.uint8)
        mask[0, 10:30, 10:40] = 1
        return answer(
            box=np.array([[10, 10, 40, 30]], np.int32),
            label=np.array(["<i>ship</i>"], object),
            score=np.array([0.9], np.float32),
            mask=mask,
            size=np.array([size], np.int32),
        )
"""
)

PHOTO = (
    _HEAD
    + """
    def run(self, request):
        pixels = pb_utils.get_input_tensor_by_name(request, "PIXELS").as_numpy()
        note = pb_utils.get_input_tensor_by_name(request, "NOTE").as_numpy()
        return answer(MEANS=pixels.mean(axis=(1, 2)).astype(np.float32), SAID=note)
"""
)

SOUND = (
    _HEAD
    + """
    def run(self, request):
        given = pb_utils.get_input_tensor_by_name(request, "audio").as_numpy()
        return answer(audio=np.sin(np.arange(8000) / 10).astype(np.float32), length=np.array([given.size], np.int32),
                      loudest=np.array([np.abs(given).max()], np.float32))
"""
)

TALLY = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.sum = 0

    def execute(self, requests):
        responses = []
        for request in requests:
            if request.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START:
                self.sum = 0
            self.sum += int(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0])
            tensor = pb_utils.Tensor("SUM", np.array([self.sum], np.int32))
            responses.append(pb_utils.InferenceResponse([tensor]))
        return responses
"""

WHO = (
    _HEAD
    + """
    def run(self, request):
        return answer(WHO=pb_utils.get_input_tensor_by_name(request, "ID").as_numpy().reshape(1))
"""
)

SAME = ADD_ONE.replace("given + 1", "given")

HINTED = (
    _HEAD
    + """
    def run(self, request):
        given = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
        more = pb_utils.get_input_tensor_by_name(request, "MORE")
        hint = np.array([-1], np.float32) if more is None else more.as_numpy()
        return answer(OUT=given, HINT=np.where(hint == 666, np.float32("nan"), hint))
"""
)

COUNTDOWN = """
import time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            if pb_utils.get_input_tensor_by_name(request, "IN").as_numpy().flat[0] == 666:
                sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("no such number")), 1)
                continue
            start = int(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy().flat[0])
            for number in range(start, 0, -1):
                if sender.is_cancelled():
                    break
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([number], np.int32))]))
                time.sleep(0.02)
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

FILM = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            pixels = pb_utils.get_input_tensor_by_name(request, "PIXELS").as_numpy()
            for mean in pixels.mean(axis=(1, 2)).astype(np.float32):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("MEAN", np.array([mean]))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

ODD_NUMBERS = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            numbers = np.array([np.nan, np.inf, -np.inf, 0.5], np.float32)
            text = np.array(['NaN "Infinity"'], object)
            tensors = [pb_utils.Tensor("NUMBERS", numbers), pb_utils.Tensor("TEXT", text)]
            sender.send(pb_utils.InferenceResponse(tensors))
            if pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0] == 666:
                sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("no more of these")))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

SLIDES = """
import base64
import numpy as np
import triton_python_backend_utils as pb_utils

PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M/wHwAEBgIApD5fRAAAAABJRU5ErkJggg=="
)

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            count = int(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0])
            if count < 0:
                sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("no slide in front")))
            for number in range(abs(count)):
                halves = pb_utils.Tensor("HALVES", np.array([number, 0.5], np.float16))
                picture = pb_utils.Tensor("PICTURE", np.array([PICTURE], object))
                sender.send(pb_utils.InferenceResponse([picture, halves]))
                if number == 0:
                    error = pb_utils.TritonError("one slide is torn <img src=x onerror=alert(5)>")
                    sender.send(pb_utils.InferenceResponse(error=error))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

TALKER = """
import time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for number in range(400):
                if sender.is_cancelled():
                    break
                text = np.array([f"word{number} "], object)
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("text_output", text)]))
                time.sleep(0.01)
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


def config(inputs: str, outputs: str, more: str = "") -> str:
    """The text of a configuration; a tensor is `name TYPE dims`, several are separated by commas."""
    return f'backend: "python"\n{more}\n{_tensors("input", inputs)}\n{_tensors("output", outputs)}\n'


def _tensors(kind: str, text: str) -> str:
    lines = []
    for entry in text.split(","):
        name, datatype, *dims = entry.split()
        lines.append(f'{kind} {{ name: "{name}" data_type: TYPE_{datatype} dims: [{", ".join(dims)}] }}')
    return "\n".join(lines)


def write_all(folder: Path) -> None:
    """Puts every model into the repository of this folder."""
    batch = "max_batch_size: 8\ndynamic_batching {}"
    numbers = config("IN INT32 -1", "OUT INT32 -1", batch)
    write_model(folder, "numbers", ADD_ONE, numbers)
    write_model(folder, "again", ADD_ONE, numbers)
    write_model(folder, HOSTILE_NAME, ADD_ONE, numbers)
    write_model(folder, ODD_NAME, ADD_ONE, numbers)
    write_model(folder, "echo", ECHO, config("TEXT STRING 1", "REPLY STRING 1"))
    scores = 'output { name: "SCORES" data_type: TYPE_FP32 dims: [3] label_filename: "labels.txt" }'
    pixels = 'input { name: "PIXELS" data_type: TYPE_FP32 dims: [3, 8, 8] }'
    classes = write_model(folder, "classes", CLASSES, f'backend: "python"\nmax_batch_size: 4\n{pixels}\n{scores}\n')
    (classes / "labels.txt").write_text("red\n<u>green</u>\nblue\n")
    for name, dims in (("one_picture", "1 3 8 8"), ("pictures", "-1 8 8 3")):
        write_model(folder, name, SHAPE, config(f"PIXELS FP32 {dims}", "SHAPE INT64 4, MEANS FP32 -1"))
    found = "box INT32 -1 4, label STRING -1, score FP32 -1, mask UINT8 -1 -1 -1, size INT32 1"
    write_model(folder, "detector", DETECTOR, config("image STRING 1", found))
    decoded = 'parameters { key: "image_input" value { string_value: "PIXELS" } }'
    photo = config("PIXELS UINT8 3 8 8, NOTE STRING 1", "MEANS FP32 3, SAID STRING 1", decoded)
    write_model(folder, "photo", PHOTO, photo)
    halves = config("PIXELS UINT8 3 8 8, NOTE STRING 1", "MEANS FP16 3, SAID STRING 1", decoded)
    write_model(folder, "photo_in_halves", PHOTO.replace("np.float32", "np.float16"), halves)
    write_model(folder, "sound", SOUND, config("audio FP32 -1", "audio FP32 -1, length INT32 1, loudest FP32 1"))
    stream = "model_transaction_policy { decoupled: true }"
    write_model(folder, "countdown", COUNTDOWN, config("IN INT32 1", "OUT INT32 1", stream))
    odd = config("IN INT32 1", "NUMBERS FP32 4, TEXT STRING 1, NEVER FP32 1", stream)
    write_model(folder, "beyond_json", ODD_NUMBERS, odd)
    film = config("PIXELS UINT8 3 8 8", "MEAN FP32 1", f"{stream}\n{decoded}")
    write_model(folder, "film", FILM, film)
    write_model(folder, "talker", TALKER, config("text_input STRING 1", "text_output STRING 1", stream))
    write_model(folder, "slides", SLIDES, config("IN INT32 1", "PICTURE STRING 1, HALVES FP16 2", stream))
    write_model(folder, "longs", SAME, config("IN INT64 2", "OUT INT64 2"))
    write_model(folder, "halves", SAME, config("IN FP16 3", "OUT FP16 3"))
    for name, size in (("brain_floats", 3), ("many_brain_floats", 71)):
        same = config(f"IN BF16 {size}", f"OUT BF16 {size}").replace('"python"', '"identity"')
        write_model(folder, name, "", same)
    hints = 'input { name: "MORE" data_type: TYPE_FP32 dims: [1] optional: true }'
    write_model(folder, "hinted", HINTED, f"{config('IN INT32 1', 'OUT INT32 1, HINT FP32 1')}\n{hints}\n")
    write_model(folder, "tally", TALLY, config("IN INT32 1", "SUM INT32 1", "sequence_batching {}"))
    for name, kind in (("with_ids", "UINT64"), ("with_names", "STRING")):
        control = f"control {{ kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_{kind} }}"
        known = f'sequence_batching {{ control_input {{ name: "ID" {control} }} }}'
        write_model(folder, name, WHO, config("IN INT32 1", f"WHO {kind} 1", known))
    editions = write_model(folder, "editions", ADD_ONE, f"{numbers}\nversion_policy {{ all {{}} }}")
    shutil.copytree(editions / "1", editions / "2")
    (editions / "2" / "model.py").write_text(ADD_ONE.replace("given + 1", "given + 1000"))
    write_ensemble(folder, "pipeline", [("numbers", "IN", "middle"), ("again", "middle", "OUT")])
