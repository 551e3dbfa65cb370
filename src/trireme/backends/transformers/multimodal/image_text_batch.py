"""Prompts with images and sounds as one batch on the model's device."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from trireme.backends.transformers.loading import Loaded
from trireme.backends.transformers.text.text_batch import TextBatches, TokenIds

_PADDED = ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids")
"""Rows that go along with the ids, and are zero where there is padding."""
_PROBE = 5
_TOLERANCE = 0.02  # of the largest logit: far above what half precision does, far below what a shifted position does


class InputBatches:
    """Made of a loaded model."""

    def __init__(self, loaded: Loaded, texts: TextBatches) -> None:
        self._torch = loaded.torch
        self._model = loaded.model
        self._device = loaded.device
        self._texts = texts
        text_config = loaded.model.config.get_text_config(decoder=True)
        self.is_encoded = bool(loaded.model.config.is_encoder_decoder or text_config.is_encoder_decoder)
        """Whether the answer has a context of its own."""
        self._can_pad = not self.is_encoded and self._sees_no_padding()

    def parted(self, inputs: Mapping[str, Any]) -> tuple[TokenIds, dict[str, Any]]:
        """The rows of ids, and all else."""
        ids = inputs.get("input_ids")
        if ids is None:
            return {}, dict(inputs)
        shape = tuple(ids.shape)
        rows = {name: inputs[name] for name in _PADDED if name in inputs and tuple(inputs[name].shape) == shape}
        rest = {name: value for name, value in inputs.items() if name not in rows}
        return {name: row[0].tolist() for name, row in rows.items()}, rest

    def key(self, ids: TokenIds, tensors: Mapping[str, Any]) -> Hashable:
        """What can be joined along the first dimension; prompts of any length where the model does not see padding."""
        if not all(self._torch.is_tensor(value) and value.dim() > 0 for value in tensors.values()):
            return id(tensors)
        shapes = tuple(sorted((name, str(value.dtype), tuple(value.shape[1:])) for name, value in tensors.items()))
        return (tuple(ids), shapes, None if self._can_pad else len(ids.get("input_ids", ())))

    def joined(self, rows: Sequence[TokenIds], tensors: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """One batch; keys are equal."""
        batch: dict[str, Any] = {}
        if rows[0] and self._can_pad:
            batch = self._texts.pad(rows)
        elif rows[0]:
            batch = {name: self._torch.tensor([row[name] for row in rows], device=self._device) for name in rows[0]}
        row_count = len(next(iter(batch.values()))) if batch else len(rows)
        filled = [*tensors, *[tensors[0]] * (row_count - len(tensors))]  # static shapes take copies
        for name, value in tensors[0].items():
            is_joined = self._torch.is_tensor(value) and value.dim() > 0
            batch[name] = self._placed(self._torch.cat([entry[name] for entry in filled]) if is_joined else value)
        return batch

    def _placed(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(self._placed(entry) for entry in value)
        if not self._torch.is_tensor(value):
            return value
        value = value.to(self._device)
        return value.to(self._model.dtype) if value.is_floating_point() else value

    def _sees_no_padding(self) -> bool:
        """Whether padding on the left changes nothing: tried out, since some models count positions from the first
        token, whatever the mask says."""
        config = self._model.config.get_text_config()
        ids = [token % config.vocab_size for token in range(_PROBE, 2 * _PROBE)]
        try:
            plain, padded = (self._next_logits([0] * count, ids) for count in (0, _PROBE))
        except Exception:  # which it does where it takes nothing without an image
            return False
        return bool((plain - padded).abs().max() <= _TOLERANCE * plain.abs().max())

    def _next_logits(self, padding: list[int], ids: list[int]) -> Any:
        mask = [0] * len(padding) + [1] * len(ids)
        with self._torch.inference_mode():
            found = self._model.generate(
                input_ids=self._torch.tensor([[self._texts.padding_id] * len(padding) + ids], device=self._device),
                attention_mask=self._torch.tensor([mask], device=self._device),
                max_new_tokens=1,
                do_sample=False,
                num_beams=1,
                return_dict_in_generate=True,
                output_logits=True,
            )
        return found.logits[0].float()
