"""What the requests of a run carry, by the kind of endpoint: prompts, texts for embeddings, queries with passages."""

from __future__ import annotations

import random
from pathlib import Path

from trireme.tools.perf.errors import PerfError
from trireme.tools.perf.llm.options import SYNTHETIC, LlmOptions, PromptOptions
from trireme.tools.perf.llm.prompts import Prompt, made_up_text, make_prompts, read_texts
from trireme.tools.perf.llm.tokens import TokenCounter, WordCounter

_RANKING_FILES = ("queries.jsonl", "passages.jsonl")


def make_dataset(options: LlmOptions, counter: TokenCounter | None) -> list[Prompt]:
    """One entry for each different request; raises PerfError."""
    if options.has_tokens:
        return make_prompts(options.prompts, counter)
    source = _Source(options.prompts, counter or WordCounter())
    return source.embeddings() if options.endpoint_type == "embeddings" else source.rankings()


class _Source:
    """Texts from files, or made up."""

    def __init__(self, options: PromptOptions, counter: TokenCounter) -> None:
        self._options = options
        self._counter = counter
        self._random = random.Random(options.seed)
        self._file = options.input_file
        if self._file is not None and self._file.startswith(SYNTHETIC):
            self._file = None

    def embeddings(self) -> list[Prompt]:
        batches = self._batches(self._file)
        return [Prompt("", sum(map(self._counter.count, texts)), None, texts) for texts in batches]

    def rankings(self) -> list[Prompt]:
        """With files of theirs the first query goes with the first passages, and so on to the end of the shorter."""
        queries, passages = self._ranking_files()
        batches = self._batches(passages)
        if queries is not None:
            texts = read_texts(queries)
            if self._options.batch_size > 1:  # passages are drawn, as many times as there are to be requests
                texts = [texts[number % len(texts)] for number in range(len(batches))]
        else:
            texts = [made_up_text(self._options, self._counter, self._random) for _ in batches]
        return [
            Prompt(query, sum(map(self._counter.count, (query, *batch))), None, batch)
            for query, batch in zip(texts, batches, strict=False)
        ]

    def _ranking_files(self) -> tuple[str | None, str | None]:
        if self._file is None:
            return None, None
        found = [Path(self._file) / name for name in _RANKING_FILES]
        missing = [path.name for path in found if not path.is_file()]
        if missing:
            raise PerfError(
                f"--input-file of rankings is a folder with {' and '.join(_RANKING_FILES)}, or "
                f"{SYNTHETIC}queries,passages: '{self._file}' has no {' and no '.join(missing)}"
            )
        return str(found[0]), str(found[1])

    def _batches(self, path: str | None) -> list[tuple[str, ...]]:
        """Texts that are made up, those of a file one by one, or drawn from it where several go together."""
        size, count = self._options.batch_size, self._options.count
        if path is None:
            return [
                tuple(made_up_text(self._options, self._counter, self._random) for _ in range(size))
                for _ in range(count)
            ]
        texts = read_texts(path)
        if size > len(texts):
            raise PerfError(f"--batch-size-text {size}: '{path}' has only {len(texts)} texts")
        if size == 1:
            return [(text,) for text in texts]
        return [tuple(self._random.sample(texts, size)) for _ in range(count)]
