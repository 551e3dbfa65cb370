"""The config.ini of a FasterTransformer checkpoint, to and from the fields of a Hugging Face config.json."""

from __future__ import annotations

import configparser
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trireme.llm.models.checkpoint import CheckpointError, read_json
from trireme.llm.models.fields import Config
from trireme.llm.models.spec import DecoderSpec

CONFIG_FILE = "config.ini"
FULL_CONFIG_FILE = "hf_config.json"
"""Beside it where the model's config.json says what config.ini has no word for."""
ARCHITECTURE = "GPTNeoXForCausalLM"
SECTION = "gptneox"
DATA_TYPES: Mapping[str, str] = {"fp32": "F32", "fp16": "F16"}
"""By FasterTransformer's name for a type of weights."""

WEIGHT_TYPE_FIELDS = ("dtype", "torch_dtype")
"""Of a config.json: what config.ini says by `weight_data_type`."""

_NUMBERS = ("head_num", "size_per_head", "inter_size", "num_layer", "rotary_embedding", "vocab_size")
_USUAL: Mapping[str, Any] = {
    "max_position_embeddings": 2048,
    "layer_norm_eps": 1e-5,
    "hidden_act": "gelu",
    "tie_word_embeddings": False,
}
"""What FasterTransformer takes for granted, by the name in config.json."""
_THETA = 10000.0


def write_config(spec: DecoderSpec, config: Config, model_name: str, data_type: str) -> str:
    """The text of config.ini."""
    assert spec.rope is not None
    file = configparser.ConfigParser()
    file[SECTION] = {
        "model_name": model_name,
        "head_num": str(spec.head_count),
        "size_per_head": str(spec.head_size),
        "inter_size": str(spec.mlp_size),
        "num_layer": str(spec.layer_count),
        "rotary_embedding": str(spec.rope.rotary_size),
        "vocab_size": str(spec.vocab_size),
        "start_id": str(spec.bos_id),
        "end_id": str(config.get("eos_token_id", 2)),
        "use_gptj_residual": str(int(spec.is_parallel)),
        "weight_data_type": data_type,
    }
    text = io.StringIO()
    file.write(text)
    return text.getvalue()


def needs_full_config(spec: DecoderSpec, config: Config) -> bool:
    """Whether config.ini alone would describe another model."""
    assert spec.rope is not None
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    is_plain = rope.get("rope_type", rope.get("type", "default")) == "default" and spec.rope.theta == _THETA
    return not is_plain or any(config.get(name, usual) != usual for name, usual in _USUAL.items())


def read_config(folder: Path) -> tuple[dict[str, Any], str]:
    """The fields of a config.json that means the same model, and the type of the weights; raises CheckpointError."""
    path = folder / CONFIG_FILE
    section = _section(path)
    numbers = {name: _number(path, section, name) for name in _NUMBERS}
    data_type = section.get("weight_data_type", "fp32")
    if data_type not in DATA_TYPES:
        raise CheckpointError(
            f"{path} says weight_data_type = {data_type}; known are {' and '.join(DATA_TYPES)}: convert the model again"
        )
    config = _described(numbers, section)
    full = folder / FULL_CONFIG_FILE
    if full.is_file():
        complete = read_json(full, "convert the model again")
        _check_agreement(full, complete, config)
        return complete, DATA_TYPES[data_type]
    return config, DATA_TYPES[data_type]


def _section(path: Path) -> Mapping[str, str]:
    file = configparser.ConfigParser(interpolation=None)
    try:
        file.read_string(path.read_text())
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror}); it is part of every checkpoint") from None
    except (configparser.Error, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise CheckpointError(f"{path} is not a configuration file ({reason}); convert the model again") from None
    if SECTION not in file:
        named = ", ".join(file.sections()) or "none"
        raise CheckpointError(
            f"{path} has no section [{SECTION}] (it has: {named}); of FasterTransformer's checkpoints those of "
            "GPT-NeoX are known here; serve other models from their Hugging Face folders"
        )
    return file[SECTION]


def _number(path: Path, section: Mapping[str, str], name: str) -> int:
    if name not in section:
        raise CheckpointError(f"{path} has no '{name}', which the model cannot do without; convert the model again")
    if not section[name].strip().isdecimal() or (int(section[name]) == 0 and name != "rotary_embedding"):
        raise CheckpointError(f"{path} says {name} = {section[name]}, which is no size; convert the model again")
    return int(section[name])


def _described(numbers: Mapping[str, int], section: Mapping[str, str]) -> dict[str, Any]:
    share = numbers["rotary_embedding"] / numbers["size_per_head"]
    return {
        "architectures": [ARCHITECTURE],
        "model_type": "gpt_neox",
        "hidden_size": numbers["head_num"] * numbers["size_per_head"],
        "num_attention_heads": numbers["head_num"],
        "intermediate_size": numbers["inter_size"],
        "num_hidden_layers": numbers["num_layer"],
        "vocab_size": numbers["vocab_size"],
        "rotary_pct": share,
        "rotary_emb_base": int(_THETA),
        "rope_parameters": {"rope_type": "default", "rope_theta": _THETA, "partial_rotary_factor": share},
        "bos_token_id": _token(section.get("start_id")),
        "eos_token_id": _token(section.get("end_id")),
        "use_parallel_residual": section.get("use_gptj_residual", "1").strip() == "1",
        **_USUAL,
    }


def _token(text: str | None) -> int | list[int] | None:
    """One token, several as transformers lists them, or none."""
    words = [word.strip() for word in (text or "").strip().strip("[]").split(",")]
    tokens = [int(word) for word in words if word.isdecimal()]
    return tokens if len(tokens) > 1 else next(iter(tokens), None)


def _check_agreement(path: Path, complete: Config, described: Config) -> None:
    for name in ("hidden_size", "num_attention_heads", "intermediate_size", "num_hidden_layers", "vocab_size"):
        if complete.get(name) != described[name]:
            raise CheckpointError(
                f"{path} says {name} {complete.get(name)} and {CONFIG_FILE} says {described[name]}; "
                "the two do not belong together: convert the model again"
            )
