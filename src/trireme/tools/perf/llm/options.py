"""What a run against a language model is to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

STREAMING = ("time_to_first_token", "time_to_second_token", "inter_token_latency", "output_token_throughput_per_user")
"""Metrics that only answers have which come piece by piece."""
GOODPUT_METRICS = (*STREAMING[:3], "request_latency", *STREAMING[3:])
WITHOUT_TOKENS = ("embeddings", "rankings")
"""Endpoint types whose answers are numbers and come whole."""
USUAL_INPUT_TOKENS = 550
SYNTHETIC = "synthetic:"
"""In front of the names of files that are not there: their texts are made up."""


@dataclass(frozen=True, slots=True)
class PromptOptions:
    """Where prompts come from."""

    input_file: str | None = None
    input_tokens_mean: int = USUAL_INPUT_TOKENS
    is_length_given: bool = False
    """Whether somebody has asked for that length; otherwise a model that takes less gets shorter prompts."""
    input_tokens_deviation: int = 0
    output_tokens_mean: int | None = None
    output_tokens_deviation: int = 0
    is_output_exact: bool = False
    """Whether an answer may not be shorter, either."""
    batch_size: int = 1
    """Texts of an embeddings request, passages of a rankings request."""
    count: int = 100
    system_prompt: str | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class LlmOptions:
    """All of a command line."""

    model: str
    endpoint_type: str = "kserve"
    """kserve, chat, completions, generate, embeddings or rankings."""
    url: str = "localhost:8001"
    endpoint: str | None = None
    is_streaming: bool = False
    concurrency: int | None = 1
    request_rate: float | None = None
    request_count: int = 10
    warmup_request_count: int = 0
    tokenizer: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    ca_file: str | None = None
    """Certificates to trust, of a server behind TLS."""
    extra_inputs: dict[str, Any] = field(default_factory=dict)
    goodput: dict[str, float] = field(default_factory=dict)
    artifact_folder: str | None = None
    makes_plots: bool = False
    export_name: str = "profile_export.json"
    prompts: PromptOptions = PromptOptions()
    notes: tuple[str, ...] = ()
    """What was asked for and is not done, for stderr."""
    shows_progress: bool | None = None
    """How the run stands, on stderr; None: in place on a terminal, a line now and then elsewhere."""

    @property
    def has_tokens(self) -> bool:
        """Whether answers are texts, which have tokens."""
        return self.endpoint_type not in WITHOUT_TOKENS

    @property
    def protocol(self) -> str:
        return "grpc" if self.endpoint_type == "kserve" else "http"
