"""Which architectures are known, and how a folder becomes a spec and weights under canonical names."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from trireme.llm.models import falcon, gemma, gpt2, gpt_neox, llama, mixture, opt, persimmon, phi
from trireme.llm.models.checkpoint import (
    Checkpoint,
    CheckpointError,
    StoredWeight,
    read_config,
    read_json,
    to_plain,
)
from trireme.llm.models.engine_folder.description import is_engine_folder, read_description
from trireme.llm.models.engine_folder.reader import EngineFolder
from trireme.llm.models.fastertransformer import config_file as fastertransformer_config
from trireme.llm.models.fastertransformer.reader import FasterTransformerCheckpoint, find_folder
from trireme.llm.models.fields import Config, NamedWeights, UnsupportedModelError, end_ids
from trireme.llm.models.quantized_formats.reader import QuantizedCheckpoint, method_of
from trireme.llm.models.spec import DecoderSpec, has_tensor, shape_of, wrong_sizes

log = logging.getLogger(__name__)


class Family(Protocol):
    """A module that knows architectures of one kind."""

    def spec(self, config: Config) -> DecoderSpec:
        """What config.json describes; a KeyError names a field that it lacks."""

    def weights(
        self, spec: DecoderSpec, config: Config, read: Callable[[str], StoredWeight], names: Container[str]
    ) -> NamedWeights:
        """The tensors under canonical names, each read when its turn comes."""


ARCHITECTURES: Mapping[str, Family] = {
    "LlamaForCausalLM": llama,
    "MistralForCausalLM": llama,
    "Qwen2ForCausalLM": llama,
    "Qwen3ForCausalLM": llama,
    "GemmaForCausalLM": gemma,
    "Gemma2ForCausalLM": gemma,
    "Gemma3ForCausalLM": gemma,
    "Gemma3ForConditionalGeneration": gemma,
    "PhiForCausalLM": phi,
    "Phi3ForCausalLM": phi,
    "FalconForCausalLM": falcon,
    "GPTNeoXForCausalLM": gpt_neox,
    "PersimmonForCausalLM": persimmon,
    "OPTForCausalLM": opt,
    "GPT2LMHeadModel": gpt2,
    "MixtralForCausalLM": mixture,
    "Qwen2MoeForCausalLM": mixture,
    "Qwen3MoeForCausalLM": mixture,
}
"""By the name that config.json gives the architecture."""
MODEL_TYPES: Mapping[str, str] = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "phi": "PhiForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "falcon": "FalconForCausalLM",
    "gpt_neox": "GPTNeoXForCausalLM",
    "persimmon": "PersimmonForCausalLM",
    "opt": "OPTForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "mixtral": "MixtralForCausalLM",
    "qwen2_moe": "Qwen2MoeForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
}
"""By the kind of a model: the architecture that is meant where config.json names none."""

_FITTING_CONFIG = "use the config.json that was published with the weights"
_OR_DELETE = "download it again, or delete it"
_FLOAT8 = "F8_E4M3"
_SIZES = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
    "head_dim", "max_position_embeddings", "num_local_experts", "num_experts", "num_experts_per_tok",
    "moe_intermediate_size", "num_kv_heads", "n_embd", "n_head", "n_layer", "n_positions", "n_inner",
)  # fmt: skip
"""Fields of config.json that are sizes, by the families' names for them."""
_LAYER_COUNTS = ("num_hidden_layers", "n_layer")
_MOST_LAYERS = 10_000
"""More are a mistake, and would be counted for hours before a tensor is missed."""
_LOOKED_UP = ("embed.weight", "positions.weight")
"""Tensors whose rows are taken out one by one: quantized, they are unpacked."""
_LAYER = re.compile(r"((?:[^.\d]+\.)+)(\d+)\.")
"""What a tensor's name begins with where it belongs to a layer."""
_OF_NO_USE = re.compile(
    r"rotary_emb\.inv_freq$|(\.attn|\.attention)\.(masked_)?bias$|\.[qkv]_scale$"
    r"|^(model\.)?(vision_tower|vision_model|multi_modal_projector|audio_tower|embed_vision|embed_audio)\."
)
"""Tensors that can be computed, scales of caches of few bits, and towers beside the text model."""
_TIED = re.compile(r"(^|\.)(lm_head|embed_out)\.weight$")
_SHOWN_NAMES = 3


def read_spec(folder: str | Path) -> DecoderSpec:
    """What the model in the folder is made of; raises CheckpointError or UnsupportedModelError.

    The folder is a Hugging Face checkpoint, quantized or not, one of FasterTransformer's, or an engine folder.
    """
    folder = Path(folder)
    config, path = config_of(folder), folder / "config.json"
    for name in _LAYER_COUNTS:
        if type(count := config.get(name)) is int and count > _MOST_LAYERS:
            raise CheckpointError(f"{path} has '{name}' as {count}: no model has so many; {_FITTING_CONFIG}")
    try:
        spec = _family(config, path).spec(config)
    except KeyError as error:
        raise CheckpointError(f"{path} has no field {error}, which the model cannot do without") from None
    except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
        fields = ", ".join(f"'{name}' as {config[name]!r:.80}" for name in _SIZES if _is_wrong_size(config.get(name)))
        if fields:
            raise CheckpointError(
                f"{path} has {fields}: whole numbers of at least 1 are meant; {_FITTING_CONFIG}"
            ) from None
        raise CheckpointError(f"{path} has a field that means nothing here ({error}); {_FITTING_CONFIG}") from None
    wrong = wrong_sizes(spec)
    if wrong:
        raise CheckpointError(f"{path} describes a model with {', '.join(wrong)}; {_FITTING_CONFIG}")
    return replace(spec, eos_ids=all_end_ids(folder, spec.eos_ids))


def load_weights(folder: str | Path, spec: DecoderSpec) -> Iterator[tuple[str, StoredWeight]]:
    """The model's tensors under canonical names; raises CheckpointError."""
    reader = _WeightReader(Path(folder), spec)
    for name, weight in reader.weights():
        wanted = shape_of(name, spec)
        if weight.shape != wanted:
            raise CheckpointError(
                f"{folder} holds {reader.last_names or repr(name)} as {list(weight.shape)}, but its config.json asks "
                f"for {list(wanted)}; the two do not belong together"
            )
        yield name, to_plain(weight) if name in _LOOKED_UP else weight
    reader.tell_rest()


def quantization_of(folder: str | Path) -> str:
    """The method that the model's matrices are quantized with; "" where they are not. Raises CheckpointError."""
    folder = Path(folder)
    if is_engine_folder(folder):
        found = read_description(folder).quantization
        return "" if found == "none" else found
    return method_of(config_of(folder))


def stored_bytes(folder: str | Path) -> int:
    """Of all tensors of a quantized model, as they are stored."""
    folder = Path(folder)
    return read_description(folder).weight_bytes if is_engine_folder(folder) else Checkpoint(folder).tensor_bytes


def float8_bytes(folder: str | Path) -> int:
    """Of those of them that are floats of eight bits."""
    folder = Path(folder)
    tensors = EngineFolder(folder) if is_engine_folder(folder) else Checkpoint(folder)
    return tensors.bytes_of(_FLOAT8)


def _is_wrong_size(value: object) -> bool:
    return value is not None and (type(value) is not int or value < 1)


class _WeightReader:
    """The tensors of a folder, and which of them were read under which names."""

    def __init__(self, folder: Path, spec: DecoderSpec) -> None:
        self._folder = folder
        self._spec = spec
        self._names: Collection[str] = ()
        """Of all that could be read; none where the folder's own reader looks at that."""
        self._extra_layers = 0
        self._is_quantized = False
        self._read: set[str] = set()
        self._prefixes: set[str] = set()
        self._last: list[str] = []

    def weights(self) -> NamedWeights:
        """Under canonical names; raises CheckpointError."""
        if is_engine_folder(self._folder):
            yield from _canonical(self._folder, self._spec)
            return
        config, checkpoint = config_of(self._folder), _checkpoint(self._folder, self._spec)
        if not isinstance(checkpoint, FasterTransformerCheckpoint):
            self._names, self._is_quantized = checkpoint.names, isinstance(checkpoint, QuantizedCheckpoint)
            self._extra_layers = int(config.get("num_nextn_predict_layers") or 0)
        family = _family(config, self._folder / "config.json")
        reader = self._remembering(checkpoint.read)
        for found in family.weights(self._spec, config, reader, checkpoint.names):
            yield found
            self._last.clear()

    @property
    def last_names(self) -> str:
        """What the tensor that came last is made of, by the names that the folder has for it."""
        return " and ".join(f"'{name}'" for name in self._last)

    def tell_rest(self) -> None:
        """Of tensors that nobody has read though they may matter."""
        rest = sorted(name for name in self._names if name not in self._read and not self._is_of_no_use(name))
        if rest:
            shown = ", ".join(f"'{name}'" for name in rest[:_SHOWN_NAMES])
            more = ", ..." if len(rest) > _SHOWN_NAMES else ""
            log.warning(
                "%s has %d tensors that %s does not use: %s%s; if answers are wrong, look whether its config.json was "
                "published with the weights", self._folder, len(rest), self._spec.architecture, shown, more,
            )  # fmt: skip

    def _remembering(self, read: Callable[[str], StoredWeight]) -> Callable[[str], StoredWeight]:
        def remember(name: str) -> StoredWeight:
            if (found := _LAYER.match(name)) and found[1] not in self._prefixes:
                self._prefixes.add(found[1])
                self._check_layers(found[1])
            self._read.add(name)
            self._last.append(name)
            return read(name)

        return remember

    def _check_layers(self, prefix: str) -> None:
        """Raises CheckpointError where there are more of them than config.json says."""
        matches = (_LAYER.match(name) for name in self._names)
        numbers = [int(found[2]) for found in matches if found is not None and found[1] == prefix]
        count = max(numbers, default=-1) + 1
        if count > self._spec.layer_count + self._extra_layers:
            raise CheckpointError(
                f"{self._folder} has weights of {count} layers ('{prefix}{count - 1}'), but its config.json says "
                f"{self._spec.layer_count}; {_FITTING_CONFIG}"
            )

    def _is_of_no_use(self, name: str) -> bool:
        if _OF_NO_USE.search(name) or (self._spec.is_tied and _TIED.search(name)):
            return True
        if (found := _LAYER.match(name)) and int(found[2]) >= self._spec.layer_count and self._extra_layers:
            return True
        module, _, kind = name.rpartition(".")
        return self._is_quantized and kind != "bias" and f"{module}.weight" in self._read


def _canonical(folder: Path, spec: DecoderSpec) -> NamedWeights:
    for name, weight in EngineFolder(folder).weights():
        if not has_tensor(name, spec):
            raise CheckpointError(
                f"{folder} has a tensor '{name}', which the model of its config.json does not have; build the folder "
                "again, or copy all of it"
            )
        yield name, weight


def config_of(folder: Path) -> Config:
    """The fields of config.json, or what config.ini of FasterTransformer says in their words."""
    converted = find_folder(folder)
    if converted is not None:
        return fastertransformer_config.read_config(converted)[0]
    config = read_config(folder)
    if not config.get("architectures") and (meant := MODEL_TYPES.get(str(config.get("model_type")))) is not None:
        config["architectures"] = [meant]
    return config


def _checkpoint(folder: Path, spec: DecoderSpec) -> Checkpoint | QuantizedCheckpoint | FasterTransformerCheckpoint:
    converted = find_folder(folder)
    if converted is None:
        config, plain = config_of(folder), Checkpoint(folder)
        return QuantizedCheckpoint(plain, config) if method_of(config) else plain
    return FasterTransformerCheckpoint(converted, spec, fastertransformer_config.read_config(converted)[1])


def _family(config: Config, path: Path) -> Family:
    named = config.get("architectures")
    if not named:
        kind = config.get("model_type")
        told = f", and its model_type {kind!r} tells none that is known here" if kind is not None else ""
        raise UnsupportedModelError(f"{path} names no architecture (architectures){told}")
    if not isinstance(named, list):
        raise CheckpointError(f"{path} has 'architectures' as {named!r}: a list with one name is meant")
    if named[0] not in ARCHITECTURES:
        raise UnsupportedModelError(
            f"the architecture {named[0]} is not known here; known are {', '.join(sorted(ARCHITECTURES))}"
        )
    return ARCHITECTURES[named[0]]


def all_end_ids(folder: Path, known: Iterable[int]) -> tuple[int, ...]:
    """Those of config.json, and those that only generation_config.json has (chat models have another end)."""
    path = folder / "generation_config.json"
    found = read_json(path, _OR_DELETE) if path.is_file() else {}
    try:
        return tuple(dict.fromkeys((*known, *end_ids(found))))
    except (TypeError, ValueError):
        wrong = found["eos_token_id"]
        raise CheckpointError(f"{path} has 'eos_token_id' as {wrong!r}: token ids are meant; {_OR_DELETE}") from None
