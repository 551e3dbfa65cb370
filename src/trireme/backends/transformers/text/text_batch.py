"""Texts as token ids, and rows of token ids as one padded batch on the model's device."""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trireme.backends.compiled.batching import RequestError
from trireme.backends.compiled.shape_buckets import bucket_for, buckets_up_to

if TYPE_CHECKING:
    from trireme.backends.transformers.loading import Loaded

TokenIds = Mapping[str, list[int]]
"""The model's inputs for one text: `input_ids`, `attention_mask` and what else it takes."""

_OFFSET_POSITIONS = {"roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "longformer", "mpnet", "data2vec-text"}
_MOST_ROWS = 64
_NO_LIMIT = 1_000_000  # tokenizers without one have a number far above


class TextBatches:
    """Made of a loaded model with a tokenizer."""

    def __init__(self, loaded: Loaded, is_left_padded: bool = False) -> None:
        self._torch = loaded.torch
        self._tokenizer = loaded.tokenizer
        self._device = loaded.device
        self._buckets = loaded.settings.buckets
        self._is_left_padded = is_left_padded
        self.token_limit = token_limit(loaded.model.config, loaded.tokenizer)
        accepted = inspect.signature(loaded.model.forward).parameters
        names = [name for name in loaded.tokenizer.model_input_names if name in accepted]
        self._names = names if "attention_mask" in names else [*names, "attention_mask"]
        self._keeps_mask = "attention_mask" in accepted
        tokenizer = loaded.tokenizer
        padding = (tokenizer.pad_token_id, tokenizer.eos_token_id, 0)
        self.padding_id: int = next(entry for entry in padding if entry is not None)
        self._padding = {"input_ids": self.padding_id, "token_type_ids": tokenizer.pad_token_type_id or 0}

    def encode(self, text: str, pair: str | None = None, *, truncation: bool | str | None = None) -> TokenIds:
        """The ids of one text; raises RequestError where it is longer than the model takes."""
        return self.encode_with(text, pair, truncation=truncation)[0]

    def encode_with(
        self, text: str, pair: str | None = None, *, truncation: bool | str | None = None, **options: Any
    ) -> tuple[TokenIds, Any]:
        """The ids, and all that the tokenizer says of the text when it is asked for more."""
        if truncation and self.token_limit is not None:
            options |= {"truncation": truncation, "max_length": self.token_limit}
        encoded = self._tokenizer(text, pair, **options)
        ids = self.chosen(encoded)
        self._check_length(len(ids["input_ids"]))
        return ids, encoded

    def chosen(self, encoded: Mapping[str, Any]) -> TokenIds:
        """Of what the tokenizer gives for one text, the model's inputs."""
        ids = {name: encoded[name] for name in self._names if name in encoded}
        ids.setdefault("attention_mask", [1] * len(ids["input_ids"]))
        return ids

    def key(self, rows: Sequence[TokenIds]) -> Hashable:
        """Of an item that brings these rows: a model that takes no mask sees the padding, so only rows of the same
        lengths run together."""
        return None if self._keeps_mask else tuple(len(row["input_ids"]) for row in rows)

    def batches(self, rows: Sequence[TokenIds], item_count: int) -> Iterator[tuple[dict[str, Any], int]]:
        """Padded batches, and how many of these rows are in each; not all at once, where an item brings many."""
        most = max(item_count, _MOST_ROWS)
        for start in range(0, len(rows), most):
            part = rows[start : start + most]
            yield self.pad(part), len(part)

    def _check_length(self, count: int) -> None:
        """Raises RequestError where so many tokens do not fit, or there are none."""
        if count == 0:
            raise RequestError("the text is empty: it has no tokens")
        if self.token_limit is not None and count > self.token_limit:
            raise RequestError(
                f"the text has {count} tokens, and the model takes at most {self.token_limit}; shorten it, or set the "
                "parameter 'truncation' to true to have its end cut off"
            )

    def pad(self, rows: Sequence[TokenIds]) -> dict[str, Any]:
        """One batch; with static shapes it is longer and taller than asked for, the further rows being copies."""
        width = max(len(row["input_ids"]) for row in rows)
        filled = list(rows)
        if self._buckets:
            width = self._bucket(width)
            filled += [rows[0]] * (_power_of_two(len(rows)) - len(rows))
        batch = {}
        for name in rows[0]:
            if name == "attention_mask" and not self._keeps_mask:
                continue
            value = self._padding.get(name, 0)
            padded = [self._padded(row[name], width, value) for row in filled]
            batch[name] = self._torch.tensor(padded, device=self._device)
        return batch

    def _bucket(self, length: int) -> int:
        """The shortest bucket that holds the length, and no more than the model takes; the length if none does."""
        limit = self.token_limit
        buckets = self._buckets if limit is None else buckets_up_to(limit, self._buckets)
        return bucket_for(length, (*buckets, length))

    def _padded(self, ids: list[int], width: int, value: int) -> list[int]:
        padding = [value] * (width - len(ids))
        return padding + ids if self._is_left_padded else ids + padding


def token_limit(config: Any, tokenizer: Any) -> int | None:
    """How many tokens the model takes; None where nothing says so."""
    text_config = config.get_text_config() if hasattr(config, "get_text_config") else config
    limits = []
    for name in ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length"):
        value = getattr(text_config, name, None)
        if isinstance(value, int) and value > 0:
            if config.model_type in _OFFSET_POSITIONS:
                value -= (getattr(text_config, "pad_token_id", None) or 0) + 1
            limits.append(value)
            break
    of_tokenizer = getattr(tokenizer, "model_max_length", None)
    if of_tokenizer is not None and of_tokenizer < _NO_LIMIT:
        limits.append(int(of_tokenizer))
    return min(limits) if limits else None


def _power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length()
