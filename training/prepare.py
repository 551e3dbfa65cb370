"""Turns corpus and conversations into token ids: one small file that training reads.

python3 -m training.prepare --data training/data            (collects and trains the tokenizer where they are missing)
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from training.chat_format import BEGIN, SPECIAL_TOKENS, Turn, render
from training.corpus import collect, read_corpus
from training.questions import read_conversations, write_conversations
from training.tokenizer import train_tokenizer, training_texts, write_tokenizer

BEGIN_ID = SPECIAL_TOKENS.index(BEGIN)
TOKENS_FILE = "tokens.npz"


def prepare(data: Path, vocab_size: int = 4096, context: int = 512, held_back: float = 0.02) -> None:
    """Writes `tokens.npz`: documents and conversations, for training and held back, and which tokens are answers."""
    if not (data / "corpus.jsonl.gz").exists():
        collect(data)
    if not (data / "chats.jsonl.gz").exists():
        write_conversations(data)
    if not (data / "tokenizer.json").exists():
        write_tokenizer(train_tokenizer(training_texts(data), vocab_size), data, context)
    tokenizer = Tokenizer.from_file(str(data / "tokenizer.json"))
    texts = [text for _, text in read_corpus(data)]
    write_tokens(tokenizer, texts, read_conversations(data), data / TOKENS_FILE, held_back)
    sources = json.loads((data / "sources.json").read_text())
    print(f"{len(sources)} sources, {sum(row['bytes'] for row in sources) / 1e6:.1f} MB of text")


def write_tokens(
    tokenizer: Tokenizer, texts: list[str], chats: list[list[Turn]], file: Path, held_back: float = 0.02
) -> None:
    """Conversations are stored with a bit for each token: whether the model is to learn to write it."""
    chance = random.Random(7)
    held_text, train_text = _split(texts, held_back, chance)
    held_chat, train_chat = _split(chats, held_back, chance)
    arrays: dict[str, np.ndarray] = {}
    for name, documents in (("train_text", train_text), ("held_text", held_text)):
        arrays[name] = _encode_texts(tokenizer, documents)
    for name, conversations in (("train_chat", train_chat), ("held_chat", held_chat)):
        ids, answers = _encode_chats(tokenizer, conversations)
        arrays[name] = ids
        arrays[f"{name}_answers"] = np.packbits(answers)
    np.savez_compressed(file, **arrays)
    for name in ("train_text", "held_text", "train_chat", "held_chat"):
        print(f"{len(arrays[name]):10d} tokens {name}")
    print(f"{file.stat().st_size / 1e6:.1f} MB: {file}")


def _split(items: list[Any], share: float, chance: random.Random) -> tuple[list[Any], list[Any]]:
    shuffled = items[:]
    chance.shuffle(shuffled)
    count = max(1, int(len(items) * share))
    return shuffled[:count], shuffled[count:]


def _encode_texts(tokenizer: Tokenizer, texts: list[str]) -> np.ndarray:
    encoded = tokenizer.encode_batch(texts, add_special_tokens=False)
    return np.concatenate([np.array([BEGIN_ID, *item.ids], dtype=np.uint16) for item in encoded])


def _encode_chats(tokenizer: Tokenizer, chats: list[list[Turn]]) -> tuple[np.ndarray, np.ndarray]:
    """Each conversation as one text, as the server encodes it; which piece a token belongs to follows from offsets."""
    ids: list[np.ndarray] = []
    answers: list[np.ndarray] = []
    rendered = [render(turns) for turns in chats]
    encoded = tokenizer.encode_batch(
        ["".join(text for text, _ in pieces) for pieces in rendered], add_special_tokens=False
    )
    for pieces, item in zip(rendered, encoded, strict=True):
        ends = np.cumsum([len(text) for text, _ in pieces])
        begins = np.array([offset[0] for offset in item.offsets])
        learned = np.array([is_learned for _, is_learned in pieces])
        ids.append(np.array(item.ids, dtype=np.uint16))
        answers.append(learned[np.searchsorted(ends, begins, side="right")])
    return np.concatenate(ids), np.concatenate(answers)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("training/data"))
    prepare(parser.parse_args().data)
