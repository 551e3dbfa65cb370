"""Questions about a text to the places in it that answer them.

The library dropped its pipeline for this with release 5, so the way from logits to answers is here: the best span of
tokens over all windows of the text, widened to whole words.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trireme.backends.compiled.batching import RequestError
from trireme.backends.transformers.answers import (
    LONGEST_ANSWER,
    Answer,
    Logits,
    answers_by_question,
    best_answers,
    check_answer_options,
    likeliest_spans,
    require_fast_tokenizer,
    token_scores,
)
from trireme.backends.transformers.items import Item, Outputs
from trireme.backends.transformers.loading import Loaded
from trireme.backends.transformers.text.text_batch import TextBatches, TokenIds

_MAX_WINDOW = 384
_MAX_STRIDE = 128


@dataclass(frozen=True, slots=True)
class _Window:
    """A part of the context behind the question."""

    ids: TokenIds
    encoding: Any
    """Of the tokenizers library: it knows words and characters."""
    is_context: NDArray[np.bool_]
    null_index: int
    """Of the token that means "no answer"."""


@dataclass(frozen=True, slots=True)
class _Question:
    context: str
    windows: Sequence[_Window]
    top_count: int
    longest: int
    may_be_impossible: bool


class QuestionAnswering:
    """A model that marks the start and the end of the answer."""

    def __init__(self, loaded: Loaded) -> None:
        self._model = loaded.model
        self._tokenizer = loaded.tokenizer
        self._texts = TextBatches(loaded)
        require_fast_tokenizer(loaded)

    def prepare(self, item: Item) -> _Question:
        """Takes `question` and `context`."""
        options = item.options
        check_answer_options(options)
        question, context = item.text("question"), item.text("context")
        if not question.strip() or not context.strip():
            raise RequestError("neither 'question' nor 'context' may be empty")
        windows = self._windows(question, context, options)
        return _Question(
            context,
            windows,
            options.get("top_k", 1),
            options.get("max_answer_len", LONGEST_ANSWER),
            options.get("handle_impossible_answer", False),
        )

    def key(self, prepared: _Question) -> Hashable:
        """Any questions, unless padding would be seen."""
        return self._texts.key([window.ids for window in prepared.windows])

    def run(self, prepared: Sequence[_Question]) -> list[Outputs]:
        """The best answers to each question, over all windows of its context."""
        rows = [window.ids for entry in prepared for window in entry.windows]
        passes = ((self._model(**batch), count) for batch, count in self._texts.batches(rows, len(prepared)))
        return answers_by_question(prepared, passes, _best_spans)

    def _windows(self, question: str, context: str, options: Mapping[str, Any]) -> list[_Window]:
        limit = min(self._texts.token_limit or _MAX_WINDOW, options.get("max_seq_len", _MAX_WINDOW))
        is_question_first = self._tokenizer.padding_side == "right"
        needed = len(self._tokenizer(question, add_special_tokens=False)["input_ids"])
        room = limit - needed - self._tokenizer.num_special_tokens_to_add(pair=True)
        if room < 1:
            raise RequestError(f"the question has {needed} tokens, which leaves no room for the context in {limit}")
        stride = options.get("doc_stride", min(limit // 2, _MAX_STRIDE))
        if stride >= room:  # each window has to go on a little
            stride = room // 2
        encoded = self._tokenizer(
            question if is_question_first else context,
            context if is_question_first else question,
            truncation="only_second" if is_question_first else "only_first",
            max_length=limit,
            stride=stride,
            return_overflowing_tokens=True,
        )
        part = 1 if is_question_first else 0
        return [self._window(encoded, index, part) for index in range(len(encoded["input_ids"]))]

    def _window(self, encoded: Any, index: int, part: int) -> _Window:
        ids = self._texts.chosen({name: values[index] for name, values in encoded.items()})
        is_context = np.array([sequence == part for sequence in encoded.encodings[index].sequence_ids])
        tokens = ids["input_ids"]
        mark = self._tokenizer.cls_token_id
        null_index = tokens.index(mark) if mark in tokens else 0
        return _Window(ids, encoded.encodings[index], is_context, null_index)


def _best_spans(question: _Question, starts: Sequence[Logits], ends: Sequence[Logits]) -> Outputs:
    spans: list[Answer] = []
    least_null = 1.0
    for window, start, end in zip(question.windows, starts, ends, strict=True):
        allowed = window.is_context.copy()
        allowed[window.null_index] |= question.may_be_impossible
        start_scores, end_scores = token_scores(start, allowed), token_scores(end, allowed)
        if question.may_be_impossible:
            least_null = min(least_null, float(start_scores[window.null_index] * end_scores[window.null_index]))
            start_scores[window.null_index] = end_scores[window.null_index] = 0.0
        spans += _spans(question, window, start_scores, end_scores)
    if question.may_be_impossible:
        spans.append(Answer("", least_null, 0, 0))
    return best_answers(spans, question.top_count)


def _spans(
    question: _Question, window: _Window, starts: NDArray[np.float32], ends: NDArray[np.float32]
) -> list[Answer]:
    """The likeliest spans of a window, in order; two that come out as the same words are one, with both scores."""
    found: dict[tuple[int, int], float] = {}
    for first, last, score in likeliest_spans(starts, ends, question.longest, question.top_count):
        if window.is_context[first] and window.is_context[last]:
            characters = _characters(window.encoding, first, last)
            found[characters] = found.get(characters, 0.0) + score
    return [Answer(question.context[start:end], score, start, end) for (start, end), score in found.items()]


def _characters(encoding: Any, first: int, last: int) -> tuple[int, int]:
    """Where the words begin and end that the tokens belong to."""
    first_word, last_word = encoding.word_ids[first], encoding.word_ids[last]
    if first_word is None or last_word is None:
        return encoding.offsets[first][0], encoding.offsets[last][1]
    part = encoding.sequence_ids[first]
    return encoding.word_to_chars(first_word, part)[0], encoding.word_to_chars(last_word, part)[1]
