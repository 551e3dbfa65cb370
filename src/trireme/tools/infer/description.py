"""What a model takes and gives, as tables, and a line to try."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

from trireme.core.datatype import BYTES
from trireme.core.elements import element_count
from trireme.observe.terminal.table import render_table
from trireme.tools.client.model import ServedModel
from trireme.tools.perf.model import TensorSpec

_MAIN_NAMES = ("text_input", "prompt", "text", "image", "audio", "input")
_FILES = (("image", "picture.png"), ("audio", "sound.wav"), ("video", "film.mp4"))
_LONGEST_LIST = 16


def main_input(model: ServedModel) -> TensorSpec | None:
    """The input that a value without a name is for: the only required one, or else one of a usual name."""
    required = [spec for spec in model.inputs if not spec.is_optional]
    among = required or list(model.inputs)
    if len(among) == 1:
        return among[0]
    if required:
        return None
    by_name = {spec.name: spec for spec in among}
    return next((by_name[name] for name in _MAIN_NAMES if name in by_name), None)


def model_text(model: ServedModel, width: int | None, connection_words: Sequence[str]) -> str:
    """What somebody needs to know who wants to ask it."""
    kind = "decoupled: any number of answers" if model.is_decoupled else ""
    batch = f"batches of up to {model.max_batch_size}" if model.has_batches else ""
    facts = ", ".join(part for part in (model.platform, batch, kind, "sequences" if model.is_sequence else "") if part)
    tables = [
        f"{title}\n{_table(model, specs, width)}"
        for title, specs in (("Inputs", model.inputs), ("Outputs", model.outputs))
        if specs
    ]
    line = example_line(model, connection_words)
    return "\n\n".join([f"{model.name}{f' ({facts})' if facts else ''}", *tables, f"Try:\n  {line}"])


def example_line(model: ServedModel, connection_words: Sequence[str]) -> str:
    """A line that asks the model something it can answer, or that has a file to be put in."""
    required = [spec for spec in model.inputs if not spec.is_optional]
    main = main_input(model)
    shown = required or ([main] if main is not None else list(model.inputs[:1]))
    words = [f"{spec.name}={_sample(spec)}" for spec in shown]
    shapes = [
        f"--shape={spec.name}={','.join('1' if dim == -1 else str(dim) for dim in model.full_shape(spec))}"
        for spec in shown
        if spec.shape.count(-1) > 1 and spec.datatype != BYTES
    ]
    sequence = ["-p sequence_id=1 -p sequence_start=true -p sequence_end=true"] if model.is_sequence else []
    quoted = [shlex.quote(word) for word in (model.name, *words, *shapes)]
    return " ".join(["trireme infer", *quoted, *sequence, *map(shlex.quote, connection_words)])


def _table(model: ServedModel, specs: Sequence[TensorSpec], width: int | None) -> str:
    headers = ("Name", "Datatype", "Shape", "")[: 4 if any(spec.is_optional for spec in specs) else 3]
    return render_table(headers, [_row(model, spec)[: len(headers)] for spec in specs], width)


def _row(model: ServedModel, spec: TensorSpec) -> tuple[str, str, str, str]:
    shape = [*(["batch"] if model.has_batches else []), *("any" if dim == -1 else str(dim) for dim in spec.shape)]
    return spec.name, spec.datatype, f"[{', '.join(shape)}]", "optional" if spec.is_optional else ""


def _sample(spec: TensorSpec) -> str:
    if spec.datatype in (BYTES, "UINT8"):
        file = next((file for word, file in _FILES if word in spec.name.lower()), None)
        if file is not None:
            return f"@{file}"
    count = element_count(1 if dim == -1 else dim for dim in spec.shape)
    if spec.datatype == BYTES:
        texts = json.dumps(["Hello"] * count) if count <= _LONGEST_LIST else "@texts.npy"
        return "Hello" if count == 1 else texts
    if count > _LONGEST_LIST:
        return f"@{spec.name}.npy"
    if spec.datatype == "BOOL":
        return ",".join(["true"] * count)
    return ",".join(str(number) for number in range(1, count + 1))
