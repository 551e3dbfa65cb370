"""Probabilities of tokens as JSON: those of an answer in OpenAI's form or in vLLM's, those of a prompt in vLLM's."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from trireme.llm.generation import TextOutput
from trireme.llm.request import TokenLogprobs
from trireme.llm.tokenizer.port import Tokenizer

_LEAST_LOGPROB = -9999.0
"""What stands for tokens that cannot come at all."""


class LogprobTexts:
    """Writes them for one request."""

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._prompt = prompt

    def of_answer(self, outputs: Iterable[TextOutput], echoed: Sequence[TokenLogprobs] | None = None) -> str:
        """Of the tokens of some pieces; where the prompt stands before the text, with those of its tokens first."""
        entries = [] if echoed is None else self._echoed(echoed)
        entries += [
            self._described(token, found)
            for output in outputs
            for token, found in zip(output.token_ids, output.logprobs, strict=False)
        ]
        return json.dumps({"content": entries}, ensure_ascii=False)

    def of_answer_by_id(self, outputs: Iterable[TextOutput]) -> str:
        """The same as a list with an object for each token, as those of a prompt are."""
        entries = [
            by_id(self._tokenizer, token, found)
            for output in outputs
            for token, found in zip(output.token_ids, output.logprobs, strict=False)
        ]
        return json.dumps(entries, ensure_ascii=False)

    def of_prompt(self, found: Sequence[TokenLogprobs]) -> str:
        """A list with an object for each token: by the id of the token and of the likeliest in its place what is known.

        Nothing is known of the first.
        """
        entries: list[Any] = [None]
        for token, one in zip(self._prompt[1:], found, strict=True):
            entries.append(by_id(self._tokenizer, token, one))
        return json.dumps(entries, ensure_ascii=False)

    def _echoed(self, found: Sequence[TokenLogprobs]) -> list[dict[str, Any]]:
        entries = [{**self._named(self._prompt[0]), "logprob": None, "top_logprobs": []}]
        entries += [self._described(token, one) for token, one in zip(self._prompt[1:], found, strict=True)]
        for token, entry in zip(self._prompt, entries, strict=True):
            if token in self._tokenizer.special_ids:
                entry["is_hidden"] = True  # the text that stands before the answer does not have it
        return entries

    def _described(self, token: int, found: TokenLogprobs) -> dict[str, Any]:
        top = [{**self._named(other), "logprob": _told(value)} for other, value in found.top]
        return {**self._named(token), "logprob": _told(found.logprob), "top_logprobs": top}

    def _named(self, token: int) -> dict[str, Any]:
        text = self._tokenizer.token_text(token)
        return {"token": text, "bytes": list(text.encode(errors="replace"))}


def by_id(tokenizer: Tokenizer, token: int, found: TokenLogprobs) -> dict[int, dict[str, Any]]:
    """What is known of a token and of the likeliest in its place, by their ids, as vLLM has it."""
    entries = {token: (found.logprob, found.rank)}
    for place, (other, logprob) in enumerate(found.top, 1):
        entries.setdefault(other, (logprob, place))
    return {
        one: {"logprob": _told(logprob), "rank": rank, "decoded_token": tokenizer.token_text(one)}
        for one, (logprob, rank) in entries.items()
    }


def _told(logprob: float) -> float:
    return max(logprob, _LEAST_LOGPROB)  # JSON knows no infinity
