"""The postprocessing model of in-flight batching: texts of tokens that come one after another."""

from __future__ import annotations

import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_tokenizers import byte_level
from tokenizers import Tokenizer, decoders, models

from trireme.core.errors import ServingError
from trireme.testing import LoadedModel, Request, load_model

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "inflight_batcher_llm" / "postprocessing"
TEXT = "Köln 😀, 日本"


def loaded(tmp_path: Path, tokenizer: Tokenizer) -> LoadedModel:
    folder = shutil.copytree(EXAMPLE, tmp_path / "postprocessing")
    file = tmp_path / "tensorrt_llm" / "1" / "model" / "tokenizer.json"
    file.parent.mkdir(parents=True)
    tokenizer.save(str(file))
    return load_model(folder)


def told(model: LoadedModel, *ids: int, **parameters: Any) -> str:
    result = model.infer(Request({"TOKENS_BATCH": np.array([[ids]], np.int32)}, parameters=parameters))
    return str(result["OUTPUT"].reshape(-1)[0].decode())


def test_a_stream_has_whole_characters_beside_other_streams(tmp_path: Path) -> None:
    tokenizer = byte_level()
    ids = tokenizer.encode(TEXT, add_special_tokens=False).ids
    assert len(ids) > len(TEXT)
    with loaded(tmp_path, tokenizer) as model:
        found = [[told(model, token, stream_id=name) for name in ("a", "b")] for token in ids]
        alone = [told(model, token) for token in ids]
    for pieces in zip(*found, strict=True):
        assert "".join(pieces) == TEXT
        assert not any("\ufffd" in piece for piece in pieces)
    assert any("\ufffd" in piece for piece in alone)


def test_a_stream_keeps_the_blank_before_a_token(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"▁Hello": 0, "▁world": 1, "<0xE4>": 2}, "<0xE4>"))
    tokenizer.decoder = decoders.Metaspace()
    with loaded(tmp_path, tokenizer) as model:
        assert [told(model, token, stream_id="a") for token in (0, 1, 1)] == ["Hello", " world", " world"]
        assert told(model, 1, stream_id="b") == "world"


@pytest.mark.parametrize("count", [40, 300])
def test_bytes_that_are_no_character_do_not_wait_for_ever(tmp_path: Path, count: int) -> None:
    tokenizer = byte_level()
    (first, *_) = tokenizer.encode("日", add_special_tokens=False).ids
    with loaded(tmp_path, tokenizer) as model:
        pieces = [told(model, first, stream_id="a") for _ in range(count)]
    assert count - 3 <= len("".join(pieces)) <= count


def test_what_is_kept_of_a_stream_is_small(tmp_path: Path) -> None:
    tokenizer = byte_level()
    (token, *_) = tokenizer.encode("e", add_special_tokens=False).ids
    with loaded(tmp_path, tokenizer) as model:
        tracemalloc.start()
        try:
            for number in range(3):
                assert told(model, *[token] * 100_000, stream_id=f"long {number}") == "e" * 100_000
            kept_bytes, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert kept_bytes < 100_000


def test_an_id_of_a_stream_has_a_limit(tmp_path: Path) -> None:
    tokenizer = byte_level()
    (token, *_) = tokenizer.encode("e", add_special_tokens=False).ids
    with loaded(tmp_path, tokenizer) as model:
        assert told(model, token, stream_id="a" * 256) == "e"
        with pytest.raises(ServingError, match="'stream_id' has 257 characters, more than the 256 that it may have"):
            told(model, token, stream_id="a" * 257)


def test_a_stream_goes_on_behind_tokens_that_were_refused(tmp_path: Path) -> None:
    tokenizer = byte_level()
    (token, *_) = tokenizer.encode("e", add_special_tokens=False).ids
    with loaded(tmp_path, tokenizer) as model:
        with pytest.raises(ServingError, match="below 0"):
            told(model, -7, stream_id="a")
        assert told(model, token, stream_id="a") == "e"
