"""Answers that a model such as LayoutLM marks among the words of a document."""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Iterator, Mapping, Sequence
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
from trireme.backends.transformers.image.reading import processed_images, read_image
from trireme.backends.transformers.items import Item, Outputs
from trireme.backends.transformers.loading import Loaded
from trireme.backends.transformers.multimodal.document_input import image_processor, read_question
from trireme.backends.transformers.multimodal.document_words import Words, given_words, recognized_words
from trireme.backends.transformers.multimodal.features import joined, shapes
from trireme.backends.transformers.text.text_batch import TextBatches, TokenIds

_MAX_WINDOW = 512
_MAX_STRIDE = 256
_NOWHERE, _EVERYWHERE = [0, 0, 0, 0], [1000, 1000, 1000, 1000]


@dataclass(frozen=True, slots=True)
class _Window:
    """A part of the document's words behind the question."""

    ids: TokenIds
    boxes: Sequence[Sequence[int]]
    """Beside the tokens."""
    word_ids: Sequence[int | None]
    is_allowed: NDArray[np.bool_]
    """Whether a token is one of the document, or the one that means "no answer"."""


@dataclass(frozen=True, slots=True)
class _Question:
    words: Sequence[str]
    windows: Sequence[_Window]
    features: Mapping[str, Any]
    top_count: int
    longest: int
    may_be_impossible: bool


class ExtractedAnswers:
    """A model of words, their places, and with some the image as well."""

    def __init__(self, loaded: Loaded) -> None:
        self._torch = loaded.torch
        self._model = loaded.model
        self._tokenizer = loaded.tokenizer
        self._texts = TextBatches(loaded)
        accepted = inspect.signature(loaded.model.forward).parameters
        self._picture = next((name for name in ("pixel_values", "image") if name in accepted), None)
        self._processor = None if self._picture is None else image_processor(loaded)
        self._takes_boxes = "boxes" in inspect.signature(self._tokenizer.__call__).parameters
        require_fast_tokenizer(loaded)

    def prepare(self, item: Item) -> _Question:
        """Takes `question`, and `words` with `boxes`, or the `image` to read them in."""
        options = item.options
        check_answer_options(options)
        question, words = read_question(item), given_words(item)
        is_seen = words is None or self._processor is not None
        image = read_image(item.inputs.get("image")) if is_seen else None
        if words is None:
            words = recognized_words(image, options)
        return _Question(
            words.words,
            self._windows(question, words, options),
            self._features(image),
            options.get("top_k", 1),
            options.get("max_answer_len", LONGEST_ANSWER),
            options.get("handle_impossible_answer", False),
        )

    def key(self, prepared: _Question) -> Hashable:
        """Any documents whose images, where the model sees them, have one shape."""
        return shapes(prepared.features), self._texts.key([window.ids for window in prepared.windows])

    def run(self, prepared: Sequence[_Question]) -> list[Outputs]:
        """The best answers to each question, over all windows of its document."""
        rows = [(entry, window) for entry in prepared for window in entry.windows]
        return answers_by_question(prepared, self._passes(rows, len(prepared)), _best_answers)

    def _passes(self, rows: Sequence[tuple[_Question, _Window]], question_count: int) -> Iterator[tuple[Any, int]]:
        done = 0
        for batch, count in self._texts.batches([window.ids for _, window in rows], question_count):
            part = list(rows[done : done + count])
            part += part[:1] * (batch["input_ids"].shape[0] - count)  # rows that are there for the shape alone
            yield self._model(**batch, **self._places(part, batch["input_ids"].shape[1])), count
            done += count

    def _places(self, rows: Sequence[tuple[_Question, _Window]], width: int) -> dict[str, Any]:
        """Where the tokens stand, and what the page looks like."""
        boxes = [[*window.boxes, *[_NOWHERE] * (width - len(window.boxes))] for _, window in rows]
        found = {"bbox": self._torch.tensor(boxes, device=self._model.device)}
        if self._picture is not None:
            found |= joined(self._torch, [entry.features for entry, _ in rows], self._model)
        return found

    def _features(self, image: Any) -> dict[str, Any]:
        if self._processor is None or self._picture is None:
            return {}
        prepared = processed_images(self._processor, [image], apply_ocr=False)
        return {self._picture: prepared["pixel_values"]}

    def _windows(self, question: str, words: Words, options: Mapping[str, Any]) -> list[_Window]:
        if not words.words:
            return []
        most = self._texts.token_limit or _MAX_WINDOW
        limit = min(most, options.get("max_seq_len", most))
        needed = len(self._tokenizer.tokenize(question))
        room = limit - needed - self._tokenizer.num_special_tokens_to_add(pair=True)
        if room < 1:
            raise RequestError(f"the question has {needed} tokens, which leaves no room for the document in {limit}")
        stride = options.get("doc_stride", min(limit // 2, _MAX_STRIDE))
        encoded = self._tokenizer(
            **self._texts_of(question, words),
            truncation="only_second",
            max_length=limit,
            stride=stride if stride < room else room // 2,  # each window has to go on a little
            return_overflowing_tokens=True,
        )
        return [self._window(encoded, index, words) for index in range(len(encoded["input_ids"]))]

    def _texts_of(self, question: str, words: Words) -> dict[str, Any]:
        if self._takes_boxes:
            return {"text": [question], "text_pair": [list(words.words)], "boxes": [list(words.boxes)]}
        return {"text": question.split(), "text_pair": list(words.words), "is_split_into_words": True}

    def _window(self, encoded: Any, index: int, words: Words) -> _Window:
        parts, word_ids = encoded.sequence_ids(index), encoded.word_ids(index)
        ids = self._texts.chosen({name: values[index] for name, values in encoded.items() if name != "bbox"})
        tokens = ids["input_ids"]
        marks = zip(tokens, parts, word_ids, strict=True)
        boxes = encoded["bbox"][index] if self._takes_boxes else [self._box(*mark, words) for mark in marks]
        null = self._tokenizer.cls_token_id
        is_allowed = np.array([part == 1 or token == null for token, part in zip(tokens, parts, strict=True)])
        return _Window(ids, boxes, word_ids, is_allowed)

    def _box(self, token: int, part: int | None, word: int | None, words: Words) -> Sequence[int]:
        if part == 1 and word is not None:
            return words.boxes[word]
        return _EVERYWHERE if token == self._tokenizer.sep_token_id else _NOWHERE


def _best_answers(question: _Question, starts: Sequence[Logits], ends: Sequence[Logits]) -> Outputs:
    answers: list[Answer] = []
    null_scores: list[float] = []
    for window, start, end in zip(question.windows, starts, ends, strict=True):
        start_scores, end_scores = token_scores(start, window.is_allowed), token_scores(end, window.is_allowed)
        null_scores.append(float(start_scores[0] * end_scores[0]))
        start_scores[0] = end_scores[0] = 0.0
        answers += _answers_of(question, window, start_scores, end_scores)
    if question.may_be_impossible and null_scores:
        answers.append(Answer("", min(null_scores), 0, 0))
    return best_answers(answers, question.top_count)


def _answers_of(
    question: _Question, window: _Window, starts: NDArray[np.float32], ends: NDArray[np.float32]
) -> list[Answer]:
    """The likeliest spans of a window."""
    answers = []
    for first, last, score in likeliest_spans(starts, ends, question.longest, question.top_count):
        start, end = window.word_ids[first], window.word_ids[last]
        if not (window.is_allowed[first] and window.is_allowed[last]) or start is None or end is None:
            continue
        answers.append(Answer(" ".join(question.words[start : end + 1]), score, start, end))
    return answers
