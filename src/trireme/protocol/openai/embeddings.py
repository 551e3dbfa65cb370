"""Embeddings: the request, and vectors as numbers or in base64."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import orjson
from numpy.typing import NDArray

from trireme.core.errors import InternalError
from trireme.core.tensor import Tensor
from trireme.protocol.openai.errors import FieldError
from trireme.protocol.openai.fields import Fields
from trireme.protocol.openai.requests import Prompt, read_prompts
from trireme.protocol.openai.usage import Usage, count_words

MAX_INPUTS: Final = 2048


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """`POST /v1/embeddings`."""

    model: str
    inputs: list[Prompt]
    is_base64: bool
    dimensions: int | None


def read_embedding(fields: Fields) -> EmbeddingRequest:
    """Checks the fields; raises FieldError."""
    model = fields.required_name("model")
    encoding = fields.text("encoding_format") or "float"
    if encoding not in ("float", "base64"):
        raise FieldError("encoding_format", "'encoding_format' has to be 'float' or 'base64'.", "invalid_value")
    inputs = read_prompts("input", fields, MAX_INPUTS)
    if "" in inputs:
        raise FieldError("input", "'input' has an empty text.", "invalid_value")
    return EmbeddingRequest(model, inputs, encoding == "base64", fields.integer("dimensions", 1, 1 << 20))


def encode_embeddings(request: EmbeddingRequest, vectors: list[Tensor], usage: Usage) -> bytes:
    """The answer, with words and signs counted where the model counts no tokens. Many vectors take a while: may run on
    a thread."""
    if not usage.is_known:
        usage.add_counts(sum(count_words(text) for text in request.inputs if isinstance(text, str)), 0)
    entries = []
    for index, tensor in enumerate(vectors):
        vector = _shortened(_vector_of(tensor), request.dimensions)
        value: Any = base64.b64encode(vector.tobytes()).decode() if request.is_base64 else vector
        entries.append({"object": "embedding", "index": index, "embedding": value})
    counts = {"prompt_tokens": usage.prompt_tokens, "total_tokens": usage.prompt_tokens}
    answer: dict[str, Any] = {"object": "list", "data": entries, "model": request.model, "usage": counts}
    return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)


def _vector_of(tensor: Tensor) -> NDArray[np.float32]:
    """The one vector of a text: a model that gives one for each token has them averaged."""
    array = np.ascontiguousarray(tensor.to_numpy(), dtype="<f4")
    if not array.size:
        raise InternalError(f"the model's output '{tensor.name}' is empty")
    size = array.shape[-1]
    rows = array.reshape(-1, size)
    return rows[0] if len(rows) == 1 else np.ascontiguousarray(rows.mean(axis=0), dtype="<f4")


def _shortened(vector: NDArray[np.float32], dimensions: int | None) -> NDArray[np.float32]:
    """The first dimensions, scaled to length 1 again, as models are trained for that can be shortened."""
    if dimensions is None or dimensions == len(vector):
        return vector
    if dimensions > len(vector):
        raise FieldError("dimensions", f"'dimensions' is {dimensions}; the model's vectors have {len(vector)}.")
    kept = vector[:dimensions]
    length = float(np.linalg.norm(kept))
    return np.ascontiguousarray(kept / length if length else kept, dtype="<f4")
