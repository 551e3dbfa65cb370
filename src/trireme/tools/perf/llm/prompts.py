"""Prompts: made up to a number of tokens, or from a file."""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass

from trireme.tools.perf.bounded_files import read_bounded
from trireme.tools.perf.errors import PerfError
from trireme.tools.perf.llm.options import SYNTHETIC, PromptOptions
from trireme.tools.perf.llm.tokens import TokenCounter, WordCounter

_SENTENCE = (
    "the river carried a small boat past old stone walls while morning light moved over quiet fields and people on "
    "both banks talked about weather bread work music children winter roads letters markets horses rain and the sea"
)
_WORDS = tuple(_SENTENCE.split())
_TOO_LONG = re.compile(r"the prompt has (\d+) tokens.* the model takes (\d+)")
_TEXT_FIELDS = ("text", "text_input", "prompt")


@dataclass(frozen=True, slots=True)
class Prompt:
    """What one request asks."""

    text: str
    tokens: int
    max_tokens: int | None
    texts: tuple[str, ...] = ()
    """All texts of an embeddings request, or the passages that a rankings request compares `text` with."""


def make_prompts(options: PromptOptions, counter: TokenCounter | None) -> list[Prompt]:
    """The prompts of a run; raises PerfError."""
    generator = random.Random(options.seed)
    counting = counter or WordCounter()
    texts = (
        read_texts(options.input_file)
        if options.input_file
        else [made_up_text(options, counting, generator) for _ in range(options.count)]
    )
    prompts = []
    for text in texts:
        wanted = None
        if options.output_tokens_mean is not None:
            wanted = _drawn(generator, options.output_tokens_mean, options.output_tokens_deviation)
        prompts.append(Prompt(text, counting.count(text), wanted))
    return prompts


def words_note(options: PromptOptions, counter: TokenCounter | None) -> str:
    """Says that lengths are words where nobody counts tokens; empty where somebody does, or the prompts are given."""
    if counter is not None or (options.input_file is not None and not options.input_file.startswith(SYNTHETIC)):
        return ""
    length = options.input_tokens_mean
    return f"Prompts have {length} words, which may be more tokens: --tokenizer makes them to the token."


def fitting_length(refusal: str, length: int) -> int | None:
    """What to ask for in place of prompts of this length, which a model has refused so: half of its context.
    None where that is not why it refused."""
    match = _TOO_LONG.search(refusal)
    return max(1, length * int(match[2]) // (2 * int(match[1]))) if match else None


def read_texts(path: str) -> list[str]:
    """The texts of a file, a line each, or JSON with one; raises PerfError."""
    texts = []
    try:
        lines = read_bounded(path).decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise PerfError(f"the prompts cannot be read: '{path}': {error}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        text = line
        if line.lstrip().startswith("{"):
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise PerfError(f"'{path}', line {number}: {error}") from None
            found = next((entry[name] for name in _TEXT_FIELDS if isinstance(entry.get(name), str)), None)
            if found is None:
                raise PerfError(f"'{path}', line {number}: there is no field {', '.join(_TEXT_FIELDS)}")
            text = found
        texts.append(text)
    if not texts:
        raise PerfError(f"'{path}' has no prompts")
    return texts


def made_up_text(options: PromptOptions, counter: TokenCounter, generator: random.Random) -> str:
    """A text of as many tokens as prompts are to have."""
    return _text(_drawn(generator, options.input_tokens_mean, options.input_tokens_deviation), counter, generator)


def _drawn(generator: random.Random, mean: int, deviation: int) -> int:
    return max(1, round(generator.gauss(mean, deviation))) if deviation else mean


def _text(tokens: int, counter: TokenCounter, generator: random.Random) -> str:
    """Words until there are so many tokens."""
    words = [generator.choice(_WORDS) for _ in range(tokens)]
    while len(words) > 1 and counter.count(" ".join(words)) > tokens:
        words = words[: max(1, len(words) * tokens // counter.count(" ".join(words)))]
    while counter.count(" ".join(words)) < tokens:
        words.append(generator.choice(_WORDS))
    while len(words) > 1 and counter.count(" ".join(words)) > tokens:
        words.pop()
    return " ".join(words)
