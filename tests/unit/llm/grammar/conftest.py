"""Random models with small tokenizers, and the shipped one, in engines that run them with numpy."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny_tokenizers
import torch
import transformers
from tiny_language_models import SIZES, randomise

from trireme.llm import Engine, EngineOptions
from trireme.llm.executors.numpy.executor import NumpyExecutor
from trireme.llm.grammar.compile_checks import CompileChecks
from trireme.llm.models.catalog import load_weights, read_spec
from trireme.llm.tokenizer.byte_bpe import ByteBpeTokenizer
from trireme.llm.tokenizer.chat_template import load_chat_template
from trireme.llm.tokenizer.loading import load_tokenizer
from trireme.llm.tokenizer.port import Tokenizer
from trireme.llm.tokenizer.special_tokens import read_special_tokens

SHIPPED = Path(__file__).parents[4] / "examples" / "model_repository" / "scribe" / "1"
TAGS = ["[TOOL_CALLS]", "[ARGS]", "<think>", "</think>"]


def with_tags() -> Any:
    """Has tags that are special tokens."""
    tokenizer = tiny_tokenizers.byte_level()
    tokenizer.add_special_tokens(TAGS)
    return tokenizer


TOKENIZERS: dict[str, Callable[[], Any]] = {
    "own": tiny_tokenizers.byte_level,
    "tokenizers": tiny_tokenizers.byte_level,
    "sentencepiece": tiny_tokenizers.sentencepiece_like,
    "tagged": with_tags,
}


@pytest.fixture(scope="session")
def random_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a model by the name of its tokenizer, made when it is first asked for."""
    made: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in made:
            made[name] = _write_model(tmp_path_factory.mktemp(name), TOKENIZERS[name](), name)
        return made[name]

    return make


def _write_model(folder: Path, tokenizer: Any, name: str) -> Path:
    special: dict[str, Any] = {}
    if name == "sentencepiece":
        special = {"bos_token": "<s>", "eos_token": "</s>", "template": None}
    tiny_tokenizers.write_folder(folder, tokenizer, **special)
    torch.manual_seed(7)
    # More ids than the tokenizer has, as many models have them.
    sizes = {**SIZES, "vocab_size": tokenizer.get_vocab_size() + 13, "max_position_embeddings": 1024}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))
    randomise(model)
    model.generation_config = transformers.GenerationConfig()
    model.save_pretrained(folder)
    return folder


@pytest.fixture
def start_random(random_folder: Callable[[str], Path]) -> Iterator[Callable[..., Engine]]:
    """Starts engines with a random model that are closed in the end; `blocks` sets the size of the cache."""
    engines: list[Engine] = []

    def start(name: str = "own", blocks: int = 1024, block_size: int = 4, **others: Any) -> Engine:
        folder = random_folder(name)
        spec = read_spec(folder)
        block_bytes = 8 * spec.layer_count * block_size * spec.kv_head_count * spec.head_size
        options = EngineOptions(block_size=block_size, cache_bytes=blocks * block_bytes, **others)
        executor = NumpyExecutor(spec, load_weights(folder, spec), options)
        engines.append(Engine(executor, _tokenizer(folder, name), options))
        return engines[-1]

    yield start
    for engine in engines:
        engine.close()


def _tokenizer(folder: Path, name: str) -> Tokenizer:
    if name != "own":
        return load_tokenizer(folder)
    return ByteBpeTokenizer(
        json.loads((folder / "tokenizer.json").read_text()), read_special_tokens(folder), load_chat_template(folder)
    )


@pytest.fixture(scope="session")
def scribe() -> Iterator[Engine]:
    """The shipped model."""
    with Engine.load(SHIPPED, device="numpy") as engine:
        yield engine


@pytest.fixture
def checks() -> Iterator[CompileChecks]:
    found = CompileChecks()
    yield found
    found.close()
