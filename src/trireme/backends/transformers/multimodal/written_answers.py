"""Answers that a model such as Donut writes while it looks at the image of a document."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trireme.backends.compiled.batching import RequestError
from trireme.backends.transformers.image.reading import processed_images, read_image
from trireme.backends.transformers.items import Item, Outputs, text_array
from trireme.backends.transformers.loading import Loaded
from trireme.backends.transformers.multimodal.document_input import image_processor, read_question
from trireme.backends.transformers.multimodal.features import joined, shapes
from trireme.backends.transformers.text.generated_text import cancel_watch

_PROMPT = "<s_docvqa><s_question>{}</s_question><s_answer>"
_ANSWER = re.compile(r"<s_answer>(.*)</s_answer>")
_NEW_TOKENS = 256
_LIBRARY_MAX_LENGTH = 20  # where a model's files do not say
_MOST_BEAMS = 128


@dataclass(frozen=True, slots=True)
class _Page:
    item: Item
    features: Mapping[str, Any]
    prompt: Sequence[int]
    limit: int
    """Of new tokens."""
    beam_count: int


class WrittenAnswers:
    """An encoder of images with a decoder that continues the question."""

    def __init__(self, loaded: Loaded) -> None:
        self._torch = loaded.torch
        self._transformers = loaded.transformers
        self._model = loaded.model
        self._tokenizer = loaded.tokenizer
        self._processor = image_processor(loaded)
        self._room = int(loaded.model.config.decoder.max_position_embeddings)
        config = loaded.model.generation_config
        self._beam_count = config.num_beams or 1
        self._new_tokens = config.max_new_tokens
        self._length = config.max_length if (config.max_length or 0) > _LIBRARY_MAX_LENGTH else None
        config.max_length = None  # max_new_tokens is always given, and the library complains of two limits

    def prepare(self, item: Item) -> _Page:
        """Takes `image` and `question`."""
        options = item.options
        beams = options.get("num_beams", self._beam_count)
        if not 1 <= beams <= _MOST_BEAMS:
            raise RequestError(f"'num_beams' must be from 1 to {_MOST_BEAMS}, found {beams}")
        text = _PROMPT.format(read_question(item))
        prompt = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        limit = self._limit(options.get("max_new_tokens"), len(prompt))
        features = processed_images(self._processor, [read_image(item.inputs.get("image"))])
        return _Page(item, {"pixel_values": features["pixel_values"]}, prompt, limit, beams)

    def key(self, prepared: _Page) -> Hashable:
        """Images of one shape with equally long questions: the decoder would count padding among its places."""
        return shapes(prepared.features), len(prepared.prompt), prepared.limit, prepared.beam_count

    def run(self, prepared: Sequence[_Page]) -> list[Outputs]:
        """The answer to each question, empty where the model wrote none; it gives no scores and no places."""
        first = prepared[0]
        watch = cancel_watch(self._torch, [page.item.is_cancelled for page in prepared])
        sequences = self._model.generate(
            **joined(self._torch, [page.features for page in prepared], self._model),
            decoder_input_ids=self._torch.tensor([page.prompt for page in prepared], device=self._model.device),
            max_new_tokens=first.limit,
            num_beams=first.beam_count,
            num_return_sequences=1,
            stopping_criteria=self._transformers.StoppingCriteriaList([watch]),
        )
        return [_outputs(self._answer(sequence)) for sequence in sequences]

    def _limit(self, wanted: int | None, prompt_length: int) -> int:
        if wanted is not None and wanted < 1:
            raise RequestError(f"'max_new_tokens' must be at least 1, found {wanted}")
        if prompt_length >= self._room:
            raise RequestError(
                f"the question has {prompt_length} tokens with its marks, and the model takes at most {self._room - 1}"
            )
        if wanted is None and self._new_tokens is None and self._length is not None:
            wanted = self._length - prompt_length
        return max(1, min(wanted or self._new_tokens or _NEW_TOKENS, self._room - prompt_length))

    def _answer(self, sequence: Any) -> str:
        text = str(self._tokenizer.decode(sequence))
        for token in (self._tokenizer.eos_token, self._tokenizer.pad_token):
            text = text.replace(token, "") if token else text
        found = _ANSWER.search(text)
        return "" if found is None else found.group(1).strip()


def _outputs(answer: str) -> Outputs:
    places = np.empty(0, dtype=np.int32)
    return {
        "answer": text_array([answer]),
        "score": np.empty(0, dtype=np.float32),
        "start": places,
        "end": places,
    }
