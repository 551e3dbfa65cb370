"""A language-model engine with in-flight batching, usable alone: `from trireme.llm import Engine`."""

from trireme.llm.admission_errors import EngineBusyError, EngineClosedError
from trireme.llm.options import EngineOptions
from trireme.llm.request import FinishReason
from trireme.llm.sampling_params import SamplingError, SamplingParams
from trireme.llm.text_engine import Completion, Engine

__all__ = [
    "Completion",
    "Engine",
    "EngineBusyError",
    "EngineClosedError",
    "EngineOptions",
    "FinishReason",
    "SamplingError",
    "SamplingParams",
]
