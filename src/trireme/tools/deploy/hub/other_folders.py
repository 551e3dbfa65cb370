"""What a folder holds that is no whole model of transformers, and what to do with it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

from trireme.config.autofill import ENGINE_DESCRIPTION
from trireme.core.reading.json_levels import read_json

_ADAPTER = "adapter_config.json"
_PIPELINE = "model_index.json"
_PEFT_CLASSES = {
    "CAUSAL_LM": "AutoPeftModelForCausalLM",
    "SEQ_2_SEQ_LM": "AutoPeftModelForSeq2SeqLM",
    "SEQ_CLS": "AutoPeftModelForSequenceClassification",
    "TOKEN_CLS": "AutoPeftModelForTokenClassification",
    "QUESTION_ANS": "AutoPeftModelForQuestionAnswering",
    "FEATURE_EXTRACTION": "AutoPeftModelForFeatureExtraction",
}
"""Of the package peft, by the `task_type` of an adapter."""
_SERVED = "config.pbtxt"
_SHOWN = 4
_WEIGHTS = (".safetensors", ".bin")
_OLD_WEIGHTS = (".h5", ".msgpack")
GGUF = ".gguf"


def described(reference: str, names: Sequence[str], read: Callable[[str], str]) -> str | None:
    """What these files are, in a sentence, with advice; None where they do not tell. `read` gives a small file."""
    top = [name for name in names if "/" not in name]
    if _ADAPTER in top:
        return _adapter(reference, read)
    if _PIPELINE in top:
        kind = _entry(read(_PIPELINE), "_class_name") or "one"
        return (
            f"it is a pipeline of the diffusers library ({kind}), which makes pictures with several models; the "
            'transformers backend does not serve those. Write a model.py that runs it, for the backend "python"'
        )
    found = {suffix: [name for name in names if name.lower().endswith(suffix)] for suffix in (GGUF, ".onnx")}
    if found[GGUF] and not _any_of(top, _WEIGHTS):
        return gguf(found[GGUF])
    if found[".onnx"] and not _any_of(top, _WEIGHTS):
        return (
            f"it has the model as ONNX alone ({_listed(found['.onnx'])}), which another backend serves: copy the file "
            f"to model_repository/{PurePosixPath(reference).name}/1/model.onnx and start 'trireme serve'"
        )
    old = [name for name in top if name.endswith(_OLD_WEIGHTS)]
    if old and not _any_of(top, _WEIGHTS):
        return (
            f"it has weights for TensorFlow or Flax alone ({_listed(old)}); a transformers release before 5 converts "
            "them: load them with from_tf=True or from_flax=True, then call save_pretrained"
        )
    return None


def gguf(names: Sequence[str]) -> str:
    """Of files in that form."""
    return (
        f"it has the model as GGUF alone ({_listed(names)}), the quantised form of llama.cpp, which is not served. "
        "Deploy the model that the file was made from (on the hub it often has the same name without -GGUF), with "
        "--dtype bfloat16 where memory is short"
    )


def described_folder(folder: Path) -> str | None:
    """The same for a folder of this machine, which may be one level too high, or a model of a repository already."""
    entries = sorted(folder.iterdir())
    if not entries:
        return "the folder is empty"
    names = [entry.name for entry in entries if entry.is_file()]
    told = described(str(folder), names, lambda name: (folder / name).read_text(encoding="utf-8", errors="replace"))
    if told is not None:
        return told
    if _SERVED in names:
        return (
            f"it is a model of a repository already, as its {_SERVED} tells. To serve it alone: trireme serve "
            f"{shlex.quote(str(folder.parent))} --model-control-mode=explicit --load-model={shlex.quote(folder.name)}"
        )
    inside = [entry.name for entry in entries if (entry / "config.json").is_file()]
    if inside:
        return f"it has no config.json, but folders in it have one: {_listed(inside)}; give the path of one of them"
    if any((entry / _SERVED).is_file() for entry in entries):
        return f"it is a model repository already: trireme serve {shlex.quote(str(folder))}"
    if ENGINE_DESCRIPTION in names:
        return "'trireme build' wrote it, but its config.json is missing: build it again, or copy all of it"
    if _any_of(names, _WEIGHTS):
        return "it has weights but no config.json: copy that from the model it was made of, or use save_pretrained"
    return None


def _adapter(reference: str, read: Callable[[str], str]) -> str:
    text = read(_ADAPTER)
    base, kind = _entry(text, "base_model_name_or_path") or "BASE", _entry(text, "peft_type")
    kind = kind.replace("LORA", "LoRA") or "LoRA"
    loader = _PEFT_CLASSES.get(_entry(text, "task_type"), "AutoPeftModel")
    merged = f"{PurePosixPath(reference).name}-merged"
    return (
        f"it is an adapter ({kind}, made with peft) for '{base}': it holds what was changed, not the model. Merge it "
        f"into a model of its own once, with the package peft, and deploy that:\n"
        f'  python -c "from peft import {loader} as P; from transformers import AutoTokenizer as T; '
        f"P.from_pretrained('{reference}').merge_and_unload().save_pretrained('{merged}'); "
        f"T.from_pretrained('{base}').save_pretrained('{merged}')\"\n"
        f"  trireme deploy ./{merged}\n"
        f"The model without what was changed: trireme deploy {base}"
    )


def _entry(text: str, key: str) -> str:
    try:
        found = read_json(text)
    except ValueError:
        return ""
    return str(found.get(key) or "") if isinstance(found, dict) else ""


def _any_of(names: Sequence[str], suffixes: tuple[str, ...]) -> bool:
    return any(name.endswith(suffixes) for name in names)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
