"""Small tokenizers, trained on the spot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

from trireme.llm.tokenizer.chat_template import SHIPPED_TEMPLATE

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEXTS = [
    "The captain looked over the wide sea, and the ship sailed on; it's 1851 and we'll go home.",
    "Naïve café, größer Straße, Ελληνικά, русский язык, 日本語の文, 한국어, عربى, हिन्दी, emoji 😀👍🏽.",
    "def f(x):\n    return x ** 2  # squares\n\n\tif x >= 10: print('ten')",
    "I'll say she's done what they'd do; we're here, they've gone.   Three   spaces.",
] * 5

SHIPPED_SPLIT = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def byte_level(split: str | None = SHIPPED_SPLIT, has_bos: bool = True, is_normalized: bool = False) -> Any:
    """Like the shipped model's; `split` None: as GPT-2 splits."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    if is_normalized:
        tokenizer.normalizer = normalizers.NFC()
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split is None)
    if split is None:
        tokenizer.pre_tokenizer = last
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(split), "isolated"), last])
    tokenizer.decoder = decoders.ByteLevel()
    if has_bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{SPECIAL[0]} $A", special_tokens=[(SPECIAL[0], 0)]
        )
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def sentencepiece_like() -> Any:
    """Like llama 2's: words begin with `▁`, unknown characters are spelled in bytes, the first space is taken away."""
    vocab_trainer = trainers.BpeTrainer(
        vocab_size=900,
        special_tokens=["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))],
        show_progress=False,
    )
    tokenizer = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.train_from_iterator(TEXTS[:1] * 5 + TEXTS[2:4], vocab_trainer)
    description = json.loads(tokenizer.to_str())
    description["added_tokens"] = [entry for entry in description["added_tokens"] if entry["id"] < 3]
    return tokenizers.Tokenizer.from_str(json.dumps(description))


def metaspace() -> Any:
    """Like t5's and xlnet's: the Metaspace pre-tokenizer and decoder."""
    tokenizer = tokenizers.Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def write_folder(folder: Path, tokenizer: Any, template: str | None = SHIPPED_TEMPLATE, **config: Any) -> Path:
    """A folder as models bring it."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    content = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|endoftext|>",
        "eos_token": "<|im_end|>",
        "clean_up_tokenization_spaces": False,
        **config,
    }
    if template is not None:
        content["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(content))
    return folder
