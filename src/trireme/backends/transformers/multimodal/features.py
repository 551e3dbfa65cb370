"""Features of images and sounds: what a processor makes of one item, and several of them as a batch."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any


def shapes(features: Mapping[str, Any]) -> Hashable:
    """Equal for features that can stand in one batch; padding others would change what the model sees."""
    return tuple(sorted((name, tuple(tensor.shape)) for name, tensor in features.items()))


def joined(torch: Any, items: Sequence[Mapping[str, Any]], model: Any) -> dict[str, Any]:
    """One batch on the model's device, in its type."""
    batch = {}
    for name in items[0]:
        tensor = torch.cat([features[name] for features in items]).to(model.device)
        batch[name] = tensor.to(model.dtype) if tensor.is_floating_point() else tensor
    return batch
