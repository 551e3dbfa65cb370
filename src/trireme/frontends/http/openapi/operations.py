"""What each path of the API is for: the words of its description, and the bodies that it takes and gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
FORM: Final = "multipart/form-data"
OCTETS: Final = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path."""

    summary: str
    request: str = ""
    """The schema of its body; empty where it takes none."""
    response: str = ""
    """The schema of its answer; empty where that has no body."""
    description: str = ""
    tag: str = ""
    """The group of paths that it stands in; that of its API where nothing is said."""
    other_requests: tuple[str, ...] = ()
    """Further types that the body may have."""
    other_responses: tuple[str, ...] = ()
    response_type: str = JSON
    """What the answer is, where it is no JSON."""
    is_openai: bool = False
    """Whether errors have OpenAI's form."""


_INFER: Final = Operation(
    "Ask a model for an answer",
    "InferRequest",
    "InferResponse",
    "Tensors may follow the JSON as they are: `Inference-Header-Content-Length` then says how long the JSON is. Form "
    "data carries files. `Accept: text/event-stream` gets the responses of a decoupled model one by one. "
    "`X-Explain: 1` gets the time of each phase in a header of the same name, or as the last event of a stream.",
    other_requests=(OCTETS, FORM),
    other_responses=(OCTETS, EVENTS),
)

OPERATIONS: Final[dict[tuple[str, str], Operation]] = {
    ("GET", "/v2"): Operation("Describe the server", response="ServerMetadata"),
    ("GET", "/v2/health/live"): Operation("Whether the server lives", description="200 for yes, 400 for no."),
    ("GET", "/v2/health/ready"): Operation("Whether the server is ready", description="200 for yes, 400 for no."),
    ("GET", "/v2/models/{model}/ready"): Operation("Whether a model serves", description="200 for yes, 400 for no."),
    ("GET", "/v2/models/{model}"): Operation("Describe a model", response="ModelMetadata"),
    ("GET", "/v2/models/{model}/config"): Operation("The configuration of a model", response="ModelConfig"),
    ("GET", "/v2/models/{model}/stats"): Operation("The statistics of a model", response="Statistics"),
    ("GET", "/v2/models/stats"): Operation("The statistics of all models", response="Statistics"),
    ("POST", "/v2/models/{model}/infer"): _INFER,
    ("POST", "/v2/models/{model}/generate"): Operation(
        "Ask with plain names and values", "GenerateRequest", "GenerateResponse", other_requests=(FORM,)
    ),
    ("POST", "/v2/models/{model}/generate_stream"): Operation(
        "The same as a stream of events",
        "GenerateRequest",
        "GenerateResponse",
        other_requests=(FORM,),
        response_type=EVENTS,
    ),
    ("POST", "/v2/repository/index"): Operation("All models and their states", "IndexRequest", "Index"),
    ("POST", "/v2/repository/models/{model}/load"): Operation(
        "Load or reload a model", "LoadRequest", description="Needs --model-control-mode=explicit or auto."
    ),
    ("POST", "/v2/repository/models/{model}/unload"): Operation("Unload a model", "UnloadRequest"),
    ("GET", "/v2/trace/setting"): Operation("The settings of tracing", response="TraceSettings"),
    ("POST", "/v2/trace/setting"): Operation("Change the settings of tracing", "TraceSettings", "TraceSettings"),
    ("GET", "/v2/models/{model}/trace/setting"): Operation("Those of one model", response="TraceSettings"),
    ("POST", "/v2/models/{model}/trace/setting"): Operation("Change them", "TraceSettings", "TraceSettings"),
    ("GET", "/v2/logging"): Operation("The settings of the log", response="LogSettings"),
    ("POST", "/v2/logging"): Operation("Change the settings of the log", "LogSettings", "LogSettings"),
    ("GET", "/v2/recording"): Operation("Whether requests are being recorded", response="RecordingState"),
    ("POST", "/v2/recording/start"): Operation(
        "Begin a recording", "RecordingRequest", "RecordingFile", "Needs --allow-recording.", response_type=OCTETS
    ),
    ("POST", "/v2/recording/fetch"): Operation(
        "What was recorded behind the calls that have arrived", "RecordingPlace", "RecordingFile", response_type=OCTETS
    ),
    ("POST", "/v2/recording/stop"): Operation("End a recording", "RecordingStop", "Recording"),
    ("POST", "/v1/chat/completions"): Operation(
        "Carry on a conversation",
        "ChatRequest",
        "ChatResponse",
        tag="openai",
        other_responses=(EVENTS,),
        is_openai=True,
    ),
    ("POST", "/v1/completions"): Operation(
        "Carry on a text",
        "CompletionRequest",
        "CompletionResponse",
        tag="openai",
        other_responses=(EVENTS,),
        is_openai=True,
    ),
    ("POST", "/v1/embeddings"): Operation(
        "Make vectors of texts", "EmbeddingRequest", "EmbeddingResponse", tag="openai", is_openai=True
    ),
    ("GET", "/v1/models"): Operation("The models of this API", response="OpenAIModels", tag="openai", is_openai=True),
    ("GET", "/v1/models/{model}"): Operation("One of them", response="OpenAIModel", tag="openai", is_openai=True),
    ("POST", "/tokenize"): Operation(
        "Cut a text into tokens", "TokenizeRequest", "TokenizeResponse", tag="openai", is_openai=True
    ),
    ("POST", "/detokenize"): Operation(
        "Put tokens together", "DetokenizeRequest", "DetokenizeResponse", tag="openai", is_openai=True
    ),
}


def _shared_memory(kind: str, name: str) -> dict[tuple[str, str], Operation]:
    base, region = f"/v2/{kind}sharedmemory", f"/v2/{kind}sharedmemory/region/{{region}}"
    return {
        ("GET", f"{base}/status"): Operation(f"Regions of {name} memory", response="Regions"),
        ("GET", f"{region}/status"): Operation("One of them", response="Regions"),
        ("POST", f"{region}/register"): Operation("Register a region", "RegisterRegion"),
        ("POST", f"{base}/unregister"): Operation(f"Unregister all regions of {name} memory"),
        ("POST", f"{region}/unregister"): Operation("Unregister a region"),
    }


OPERATIONS.update(_shared_memory("system", "system"))
OPERATIONS.update(_shared_memory("cuda", "CUDA"))
