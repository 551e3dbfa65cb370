"""Tiny causal language models with random weights and a tokenizer, as folders that `from_pretrained` reads.

Two layers, hidden size 64, four heads, a vocabulary of 2048 whose every id decodes to something visible: enough to see
that text goes in and comes out, small enough to load in no time, and to draw a token from. They are made once per
version of this file, all by one process, so that a test run does not import torch: `python tests/tiny_models.py
<tokenizer|models> <folder>`.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

WIDE = "-wide"
KINDS = ("falcon", "persimmon", "llama", "qwen2", "gptneox", "opt", f"falcon{WIDE}", f"llama{WIDE}")
VOCABULARY = 2048
WIDE_VOCABULARY = 50432
"""Of gptneox, whose example's clients ask with ids of the real one, and of the kinds with `-wide` behind their name:
out of so many words hardly a token is drawn that is no word, for tests that ban words or stop at them."""
END_OF_TEXT = "<|endoftext|>"  # id 0
CONTEXT_TOKENS = 1024
WEIGHTS = "model.safetensors"

_SENTENCES = """I am going to be in the market for a new laptop soon. I am going home. I am you are.
How can you be so sure of that? How can you be of help? Where is the nearest station, and where is the nearest shop?
What is the height of Eiffel Tower? Explain Cloud Computing to a school kid. Once upon a time there was a server.
Hello, my name is Trireme. The quick brown fox jumps over the lazy dog. This is a test. Tell me a story about ships.
"""


def tiny_tokenizer(folder: Path) -> Path:
    """Puts the tokenizer's files into this folder, and returns it."""
    return _copy(cached("tokenizer"), folder)


def tiny_causal_lm(folder: Path, kind: str) -> Path:
    """Puts a model of this kind and its tokenizer into this folder, which the test may change, and returns it."""
    return _copy(cached(kind), folder)


def cached(kind: str) -> Path:
    """The one folder of this kind ("tokenizer" or one of KINDS) that all tests share; nobody changes it."""
    if kind == "tokenizer":
        return built(__file__, "tokenizer")
    assert kind in KINDS, f"{kind!r} is none of {KINDS}"
    return built(__file__, "models") / kind


def built(program: str, what: str) -> Path:
    """The folder that `python <program> <what> <folder>` fills, made once per version of the program."""
    key = hashlib.blake2b(Path(program).read_bytes(), digest_size=8).hexdigest()
    folder = Path(tempfile.gettempdir()) / f"trireme-tiny-models-{os.getuid()}-{key}" / what
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{what}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test processes that run side by side wait for the first one
        if not folder.exists():
            _fill(program, what, folder)
    return folder


def _fill(program: str, what: str, folder: Path) -> None:
    """Aside at first, so that a program that is ended midway leaves nothing that looks complete."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{what}.") as aside:
        target = Path(aside) / what
        target.mkdir()
        done = subprocess.run([sys.executable, program, what, str(target)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        target.rename(folder)


def _copy(source: Path, folder: Path) -> Path:
    """The weights are linked where they can be: nobody edits those."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        target = folder / file.name
        target.unlink(missing_ok=True)
        if file.name == WEIGHTS:
            try:
                os.link(file, target)
                continue
            except OSError:
                pass
        shutil.copy(file, target)
    return folder


def build(what: str, folder: Path) -> None:
    """Writes the files; "models" imports torch and transformers."""
    if what == "tokenizer":
        _build_tokenizer(folder, VOCABULARY)
        return
    for kind in KINDS:
        _build_model(kind).save_pretrained(folder / kind)
        if _size(kind) != VOCABULARY:
            _build_tokenizer(folder / kind, _size(kind))
        else:
            tiny_tokenizer(folder / kind)


def _size(kind: str) -> int:
    return WIDE_VOCABULARY if kind == "gptneox" or kind.endswith(WIDE) else VOCABULARY


def _build_model(kind: str) -> Any:
    import torch
    import transformers

    sizes: dict[str, Any] = {
        "vocab_size": _size(kind),
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": CONTEXT_TOKENS,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    feed_forward = {"intermediate_size": 128}
    grouped = {**feed_forward, "num_key_value_heads": 4}
    name, extra = {
        "falcon": ("Falcon", {"alibi": False, "bias": False}),
        "persimmon": ("Persimmon", feed_forward),
        "llama": ("Llama", grouped),
        "qwen2": ("Qwen2", grouped),
        "gptneox": ("GPTNeoX", feed_forward),
        "opt": ("OPT", {"ffn_dim": 128, "word_embed_proj_dim": 64, "pad_token_id": 1}),
    }[kind.removesuffix(WIDE)]
    config = getattr(transformers, f"{name}Config")(**sizes, **extra)
    torch.manual_seed(0)
    return getattr(transformers, f"{name}ForCausalLM")(config).eval()


def _build_tokenizer(folder: Path, size: int) -> None:
    """Of so many ids. The configuration is written by hand, in words that every version of transformers reads."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=[END_OF_TEXT], initial_alphabet=alphabet, show_progress=False
    )
    learner.train_from_iterator(_SENTENCES.splitlines(), trainer)
    learned = json.loads(learner.to_str())["model"]
    vocabulary = learned["vocab"]
    candidates = (f"Ġ{_word(number)}" for number in range(2 * size))
    for word in candidates:
        if len(vocabulary) == size:
            break
        vocabulary.setdefault(word, len(vocabulary))
    merges = [tuple(merge) if isinstance(merge, list) else tuple(merge.split(" ")) for merge in learned["merges"]]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_special_tokens([END_OF_TEXT])
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"bos_token": END_OF_TEXT, "eos_token": END_OF_TEXT, "unk_token": END_OF_TEXT}
    settings = {
        **names,
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": CONTEXT_TOKENS,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2))
    (folder / "special_tokens_map.json").write_text(json.dumps(names, indent=2))


def _word(number: int) -> str:
    """A pronounceable word of its own for each number."""
    syllables = [consonant + vowel for consonant in "bdfghjklmnprstvwz" for vowel in "aeiou"]
    word = ""
    for _ in range(3):
        number, rest = divmod(number, len(syllables))
        word = syllables[rest] + word
    return word


if __name__ == "__main__":
    build(sys.argv[1], Path(sys.argv[2]))
