"""Trains the shipped model's tokenizer: byte-level BPE over the corpus and the conversations, digits one by one.

python3 -m training.tokenizer --data training/data
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from training.chat_format import BEGIN, CHAT_TEMPLATE, SPECIAL_TOKENS, TURN_END
from training.corpus import read_corpus
from training.questions import read_conversations

SPLIT_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""Words with the space before them, digits one by one (so that sums can be learned), marks, white space."""


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT_PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A", pair=f"{BEGIN} $A {BEGIN} $B", special_tokens=[(BEGIN, SPECIAL_TOKENS.index(BEGIN))]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def tokenizer_config(context: int) -> dict[str, Any]:
    """What `tokenizer_config.json` says."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BEGIN,
        "eos_token": TURN_END,
        "pad_token": BEGIN,
        "additional_special_tokens": list(SPECIAL_TOKENS[1:]),
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }


def write_tokenizer(tokenizer: Tokenizer, folder: Path, context: int) -> None:
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config(context), indent=2) + "\n")


def training_texts(data: Path) -> list[str]:
    """The corpus, and half of the conversations: what people will type counts, definitions alone do not."""
    chance = random.Random(1)
    chats = [turn.content for turns in read_conversations(data) for turn in turns if chance.random() < 0.5]
    return [text for _, text in read_corpus(data)] + chats


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("training/data"))
    parser.add_argument("--vocab-size", type=int, default=4096)
    parser.add_argument("--context", type=int, default=512)
    options = parser.parse_args()
    trained = train_tokenizer(training_texts(options.data), options.vocab_size)
    write_tokenizer(trained, options.data, options.context)
    size = (options.data / "tokenizer.json").stat().st_size
    print(f"{trained.get_vocab_size()} tokens, {size / 1e3:.0f} kB: {options.data / 'tokenizer.json'}")
