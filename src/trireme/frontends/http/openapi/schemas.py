"""The bodies of requests and answers, as OpenAPI describes them."""

from __future__ import annotations

from typing import Any, Final

Schema = dict[str, Any]


def ref(name: str) -> Schema:
    """The schema of this name."""
    return {"$ref": f"#/components/schemas/{name}"}


def listed(items: Schema) -> Schema:
    """A list of them."""
    return {"type": "array", "items": items}


def record(description: str, required: str = "", **properties: Schema) -> Schema:
    """An object; `required` names the properties that are always there, separated by spaces."""
    schema: Schema = {"type": "object", "description": description, "properties": properties}
    if required:
        schema["required"] = required.split()
    return schema


def text(description: str = "") -> Schema:
    return {"type": "string", "description": description}


def whole(description: str = "") -> Schema:
    return {"type": "integer", "format": "int64", "description": description}


def number(description: str = "") -> Schema:
    return {"type": "number", "description": description}


def flag(description: str = "") -> Schema:
    return {"type": "boolean", "description": description}


_SHAPE: Final = listed(whole("Sizes; -1 where any is taken."))
_PARAMETERS: Final = {"type": "object", "additionalProperties": True, "description": "Names and plain values."}
_DURATION: Final = ref("Duration")
_MESSAGE: Final = record(
    "One turn of a conversation.", "role", role=text("system, user, assistant or tool"), content=text("What it says.")
)
_CHOICE_TEXT: Final = {
    "max_tokens": whole("The most tokens that are written."),
    "temperature": number("0 takes the most probable token."),
    "top_p": number("The share of probability that tokens are chosen from."),
    "n": whole("How many answers."),
    "stop": {"oneOf": [text(), listed(text())], "description": "Texts that end the answer."},
    "seed": whole("The same seed gives the same answer."),
    "stream": flag("Server-sent events in place of one answer."),
}
_USAGE: Final = record("", prompt_tokens=whole(), completion_tokens=whole(), total_tokens=whole())

SCHEMAS: Final[dict[str, Schema]] = {
    "Error": record("What went wrong.", "error", error=text("The message.")),
    "OpenAIError": record(
        "What went wrong, in OpenAI's form.",
        "error",
        error=record("", "message", message=text(), type=text(), code=text(), param=text()),
    ),
    "ServerMetadata": record(
        "The server.", "name version extensions", name=text(), version=text(), extensions=listed(text())
    ),
    "TensorMetadata": record(
        "An input or output.", "name datatype shape", name=text(), datatype=text("FP32, INT64, BYTES…"), shape=_SHAPE
    ),
    "ModelMetadata": record(
        "A model.",
        "name versions platform inputs outputs",
        name=text(),
        versions=listed(text()),
        platform=text(),
        inputs=listed(ref("TensorMetadata")),
        outputs=listed(ref("TensorMetadata")),
    ),
    "ModelConfig": {"type": "object", "description": "The configuration in force, Triton's `ModelConfig` as JSON."},
    "RequestInput": record(
        "An input. Its data follows the JSON where `binary_data_size` is given.",
        "name datatype shape",
        name=text(),
        datatype=text(),
        shape=_SHAPE,
        parameters=_PARAMETERS,
        data={"type": "array", "items": {}, "description": "Its elements, flat or nested as its shape is."},
    ),
    "RequestedOutput": record("An output that is wanted.", "name", name=text(), parameters=_PARAMETERS),
    "InferRequest": record(
        "An inference.",
        "inputs",
        id=text("Comes back in the answer."),
        parameters=_PARAMETERS,
        inputs=listed(ref("RequestInput")),
        outputs=listed(ref("RequestedOutput")),
    ),
    "ResponseOutput": record(
        "An output.",
        "name datatype shape",
        name=text(),
        datatype=text(),
        shape=_SHAPE,
        parameters=_PARAMETERS,
        data={"type": "array", "items": {}},
    ),
    "InferResponse": record(
        "The answer.",
        "model_name model_version outputs",
        model_name=text(),
        model_version=text(),
        id=text(),
        parameters=_PARAMETERS,
        outputs=listed(ref("ResponseOutput")),
    ),
    "GenerateRequest": {
        "type": "object",
        "additionalProperties": True,
        "description": "The model's inputs by name as plain values; what is no input becomes a parameter.",
        "properties": {"id": text(), "text_input": text("The prompt, where the input has this name.")},
    },
    "GenerateResponse": {
        "type": "object",
        "additionalProperties": True,
        "description": "The model's outputs by name.",
        "properties": {"model_name": text(), "model_version": text(), "text_output": text()},
    },
    "Duration": record("How often, and how long altogether.", "count ns", count=whole(), ns=whole()),
    "ModelStatistics": record(
        "The counts of one version.",
        "name version inference_count execution_count inference_stats batch_stats",
        name=text(),
        version=text(),
        last_inference=whole("Milliseconds since the epoch."),
        inference_count=whole(),
        execution_count=whole(),
        inference_stats=record(
            "",
            success=_DURATION,
            fail=_DURATION,
            queue=_DURATION,
            compute_input=_DURATION,
            compute_infer=_DURATION,
            compute_output=_DURATION,
            cache_hit=_DURATION,
            cache_miss=_DURATION,
        ),
        response_stats={
            "type": "object",
            "description": "Of decoupled models: counts and durations by the number of the response.",
            "additionalProperties": {"type": "object", "additionalProperties": _DURATION},
        },
        batch_stats=listed(
            record(
                "",
                "batch_size",
                batch_size=whole(),
                compute_input=_DURATION,
                compute_infer=_DURATION,
                compute_output=_DURATION,
            )
        ),
        memory_usage=listed(record("", type=text(), id=whole(), byte_size=whole())),
    ),
    "Statistics": record("Of one model, or of all.", "model_stats", model_stats=listed(ref("ModelStatistics"))),
    "IndexRequest": record("What is wanted of the index.", ready=flag("Those that serve alone.")),
    "IndexEntry": record(
        "One version of a model, or a model that is not loaded.",
        "name",
        name=text(),
        version=text(),
        state=text("READY, LOADING, UNLOADING, UNAVAILABLE"),
        reason=text(),
    ),
    "Index": listed(ref("IndexEntry")),
    "LoadRequest": record(
        "What a load brings along.",
        parameters=record("", config=text("A configuration as JSON, in place of the file's. Files are `file:<path>`.")),
    ),
    "UnloadRequest": record(
        "How to unload.", parameters=record("", unload_dependents=flag("The steps of an ensemble, too."))
    ),
    "TraceSettings": {
        "type": "object",
        "additionalProperties": True,
        "description": "The settings of tracing; null gives one back to the server's.",
        "properties": {"trace_level": listed(text()), "trace_rate": text(), "trace_count": text()},
    },
    "LogSettings": record(
        "The settings of the log.",
        log_file=text(),
        log_info=flag(),
        log_warning=flag(),
        log_error=flag(),
        log_verbose_level=whole(),
        log_format=text("default or ISO8601"),
    ),
    "Region": record("A region of shared memory.", "name", name=text(), key=text(), offset=whole(), byte_size=whole()),
    "Regions": listed(ref("Region")),
    "RegisterRegion": record(
        "Where the region is.",
        "byte_size",
        key=text("System memory: its name."),
        offset=whole(),
        byte_size=whole(),
        raw_handle=record("", b64=text("CUDA: its handle.")),
        device_id=whole(),
    ),
    "RecordingRequest": record(
        "What is to be recorded.",
        sample=number("The share of requests, from 0 to 1."),
        models=listed(text("These models alone.")),
        duration_s=number("When it ends by itself."),
        limit=whole("After how many requests it ends."),
        max_bytes=whole("After how much tensor data it ends."),
        max_call_bytes=whole("The largest tensors that are kept of a request."),
        answers=flag("Whether answers are recorded, too."),
    ),
    "RecordingPlace": record(
        "Which recording, whichever runs without it, and where the client is in it.",
        id=text(),
        received=whole("Calls of it that have arrived, and are let go; without it, all that were sent before."),
    ),
    "RecordingStop": record("Which recording.", id=text(), discard=flag("Forget what was recorded.")),
    "RecordingFile": {"type": "string", "format": "binary", "description": "A piece of the file of the recording."},
    "Recording": record(
        "A recording in numbers.",
        "id seconds recorded dropped bytes",
        id=text(),
        began_at_s=number("Seconds since the epoch."),
        seconds=number(),
        sample=number(),
        models=listed(text()),
        seen=whole(),
        recorded=whole(),
        dropped=whole(),
        bytes=whole(),
        end_reason=text(),
    ),
    "RecordingState": record(
        "Whether recording is allowed, and what runs.",
        "is_allowed is_active",
        is_allowed=flag(),
        is_active=flag(),
        recording=ref("Recording"),
    ),
    "ChatRequest": record(
        "A conversation to be carried on.",
        "model messages",
        model=text(),
        messages=listed(_MESSAGE),
        tools=listed({"type": "object"}),
        response_format={"type": "object", "description": "A schema that the answer is to follow."},
        **_CHOICE_TEXT,
    ),
    "ChatResponse": record(
        "The next turn.",
        "id object choices",
        id=text(),
        object=text(),
        model=text(),
        choices=listed(record("", index=whole(), message=_MESSAGE, finish_reason=text())),
        usage=_USAGE,
    ),
    "CompletionRequest": record(
        "A text to be carried on.",
        "model prompt",
        model=text(),
        prompt={"oneOf": [text(), listed(text())], "description": "One, or several."},
        **_CHOICE_TEXT,
    ),
    "CompletionResponse": record(
        "The texts.",
        "id object choices",
        id=text(),
        object=text(),
        choices=listed(record("", index=whole(), text=text(), finish_reason=text())),
        usage=_USAGE,
    ),
    "EmbeddingRequest": record(
        "Texts to be made vectors of.",
        "model input",
        model=text(),
        input={"oneOf": [text(), listed(text())], "description": "One, or several."},
    ),
    "EmbeddingResponse": record(
        "The vectors.",
        "object data",
        object=text(),
        data=listed(record("", index=whole(), embedding=listed(number()))),
        usage=_USAGE,
    ),
    "OpenAIModel": record("A model that writes or embeds.", "id object", id=text(), object=text(), created=whole()),
    "OpenAIModels": record("All of them.", "object data", object=text(), data=listed(ref("OpenAIModel"))),
    "TokenizeRequest": record(
        "A text to be cut into tokens.", "model", model=text(), prompt=text(), messages=listed(_MESSAGE)
    ),
    "TokenizeResponse": record("Its tokens.", "count tokens", count=whole(), tokens=listed(whole())),
    "DetokenizeRequest": record("Tokens to be put together.", "model tokens", model=text(), tokens=listed(whole())),
    "DetokenizeResponse": record("Their text.", "prompt", prompt=text()),
}
