"""Answers that a model marks by their first and last token, in texts and documents alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from trireme.backends.compiled.batching import RequestError
from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.transformers.items import Outputs, text_array
from trireme.backends.transformers.labels import softmax
from trireme.backends.transformers.loading import Loaded

LONGEST_ANSWER = 15
_EXCLUDED = -10000.0

Logits: TypeAlias = NDArray[np.float32]
"""One number for each token of a window."""


class WindowedQuestion(Protocol):
    """What is asked of a text or a document that is read in windows."""

    @property
    def windows(self) -> Sequence[Any]:
        """The parts, in their order; not modified."""


Q = TypeVar("Q", bound=WindowedQuestion)


@dataclass(frozen=True, slots=True)
class Answer:
    """Where it begins and ends is counted in characters of a text, or in words of a document."""

    text: str
    score: float
    start: int
    end: int


def require_fast_tokenizer(loaded: Loaded) -> None:
    """One that knows which words its tokens are of; raises ModelLoadError."""
    if not loaded.tokenizer.is_fast:
        raise ModelLoadError(
            f"{loaded.task} needs a tokenizer of the fast kind, and that of model '{loaded.settings.name}' "
            f"('{loaded.source}') is not: it needs a tokenizer.json"
        )


def check_answer_options(options: Mapping[str, Any]) -> None:
    """Raises RequestError for numbers that there cannot be."""
    for name in ("top_k", "max_answer_len", "max_seq_len"):
        if options.get(name, 1) < 1:
            raise RequestError(f"'{name}' must be at least 1, found {options[name]}")
    if options.get("doc_stride", 0) < 0:
        raise RequestError(f"'doc_stride' must be at least 0, found {options['doc_stride']}")


def answers_by_question(
    questions: Sequence[Q],
    passes: Iterable[tuple[Any, int]],
    best: Callable[[Q, Sequence[Logits], Sequence[Logits]], Outputs],
) -> list[Outputs]:
    """Has each question answered from what the model marks in its windows. A pass is what the model gave for the next
    rows of all windows, and how many of them count."""
    starts: list[Logits] = []
    ends: list[Logits] = []
    for outputs, count in passes:
        starts.extend(outputs["start_logits"][:count].float().cpu().numpy())
        ends.extend(outputs["end_logits"][:count].float().cpu().numpy())
    answers, first = [], 0
    for question in questions:
        last = first + len(question.windows)
        answers.append(best(question, starts[first:last], ends[first:last]))
        first = last
    return answers


def token_scores(logits: NDArray[np.float32], is_allowed: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Probabilities over the tokens that an answer may begin or end with; further logits are those of padding."""
    return softmax(np.where(is_allowed, logits[: len(is_allowed)], np.float32(_EXCLUDED)))


def likeliest_spans(
    starts: NDArray[np.float32], ends: NDArray[np.float32], longest: int, count: int
) -> Iterator[tuple[int, int, float]]:
    """First token, last token and score, the best first."""
    scores = np.tril(np.triu(np.outer(starts, ends)), longest - 1).ravel()
    count = min(count, scores.size)
    order = np.argpartition(-scores, count - 1)[:count]
    for place in order[np.argsort(-scores[order], kind="stable")]:
        first, last = divmod(int(place), len(ends))
        yield first, last, float(scores[place])


def best_answers(answers: Sequence[Answer], count: int) -> Outputs:
    """The outputs, the best answer first."""
    best = sorted(answers, key=lambda answer: answer.score, reverse=True)[:count]
    return {
        "answer": text_array([answer.text for answer in best]),
        "score": np.array([answer.score for answer in best], dtype=np.float32),
        "start": np.array([answer.start for answer in best], dtype=np.int32),
        "end": np.array([answer.end for answer in best], dtype=np.int32),
    }
