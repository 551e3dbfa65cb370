"""Prompts as requests, for each kind of endpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import numpy as np
import orjson

from trireme.core.datatype import BYTES, NUMPY_DTYPE
from trireme.core.elements import encode_bytes
from trireme.tools.perf.address import Address
from trireme.tools.perf.control.connect import connect, probe, server_address
from trireme.tools.perf.data.batches import RequestContent, RequestInput
from trireme.tools.perf.errors import PerfError
from trireme.tools.perf.llm.options import LlmOptions
from trireme.tools.perf.llm.prompts import Prompt
from trireme.tools.perf.load.building import LoadRecipe
from trireme.tools.perf.model import ModelDescription, TensorSpec, describe
from trireme.tools.perf.options import LoadMode, PerfOptions, TlsOptions
from trireme.tools.perf.payloads import prepared_bodies
from trireme.tools.perf.preparation import PreparedLoad, server_endpoint
from trireme.tools.perf.wire import answers
from trireme.tools.perf.wire.grpc_headers import call_headers
from trireme.tools.perf.wire.grpc_requests import GrpcInferForm

_DEFAULT_ANSWER = 256
_PATHS = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "embeddings": "/v1/embeddings",
    "rankings": "/v1/ranking",
}
_ASKED_FIRST = {"generate": "/v2/health/live"}
"""Before the load, which waits for as long as an answer takes to write; OpenAI's endpoints have a list of models."""


def load_options(options: LlmOptions) -> PerfOptions:
    """The load of a run, in the words of perf_analyzer."""
    return PerfOptions(
        model_name=options.model,
        protocol=options.protocol,
        url=options.url,
        headers=options.headers,
        tls=TlsOptions(ca_file=options.ca_file),
        is_streaming=options.is_streaming,
        mode=LoadMode.CONCURRENCY if options.request_rate is None else LoadMode.REQUEST_RATE,
        seed=options.prompts.seed,
    )


def prepare(options: LlmOptions, prompts: Sequence[Prompt]) -> PreparedLoad:
    """A load of these prompts, whose answers are kept; raises PerfError."""
    if options.endpoint_type == "kserve":
        return _prepare_tensors(options, prompts)
    probe(load_options(options), _ASKED_FIRST.get(options.endpoint_type, "/v1/models"))
    bodies = [RequestContent((), (), payload=orjson.dumps(body_of(options, prompt))) for prompt in prompts]
    prepared = prepared_bodies(load_options(options), bodies, _path(options))
    return replace(prepared, recipe=replace(prepared.recipe, keeps_bodies=True))


def body_of(options: LlmOptions, prompt: Prompt) -> dict[str, Any]:
    """The JSON body of one request."""
    if not options.has_tokens:
        return _body_of_texts(options, prompt)
    body: dict[str, Any]
    if options.endpoint_type == "generate":
        body = {"text_input": prompt.text}
    else:
        body = {"model": options.model}
        if options.endpoint_type == "chat":
            system = options.prompts.system_prompt
            first = [] if system is None else [{"role": "system", "content": system}]
            body["messages"] = [*first, {"role": "user", "content": prompt.text}]
        else:
            body["prompt"] = prompt.text
        if options.is_streaming:
            body["stream_options"] = {"include_usage": True}
    if options.is_streaming:
        body["stream"] = True
    if prompt.max_tokens is not None:
        body["max_tokens"] = prompt.max_tokens
        if options.prompts.is_output_exact:
            body["min_tokens"] = prompt.max_tokens
    return {**body, **options.extra_inputs}


def _body_of_texts(options: LlmOptions, prompt: Prompt) -> dict[str, Any]:
    """Rankings are asked for in the form of NVIDIA's service, or of Hugging Face's text-embeddings-inference."""
    if options.endpoint_type == "embeddings":
        return {"model": options.model, "input": list(prompt.texts), **options.extra_inputs}
    extra = dict(options.extra_inputs)
    if extra.get("rankings") == "tei":
        del extra["rankings"]
        return {"query": prompt.text, "texts": list(prompt.texts), **extra}
    passages = [{"text": text} for text in prompt.texts]
    return {"query": {"text": prompt.text}, "passages": passages, "model": options.model, **extra}


def input_data(options: LlmOptions, prompts: Sequence[Prompt], prepared: PreparedLoad) -> dict[str, Any]:
    """What is sent, in the form that `--input-data` of perf_analyzer takes."""
    if options.endpoint_type != "kserve":
        return {"data": [{"payload": [body_of(options, prompt)]} for prompt in prompts]}
    names = {one.name for one in prepared.contents[0].inputs}
    return {
        "data": [
            {name: [value] for name, value in values_of(options, prompt).items() if name in names} for prompt in prompts
        ]
    }


def _path(options: LlmOptions) -> str:
    if options.endpoint is not None:
        return f"/{options.endpoint.lstrip('/')}"
    if options.endpoint_type == "generate":
        action = "generate_stream" if options.is_streaming else "generate"
        return f"/v2/models/{quote(options.model, safe='')}/{action}"
    return _PATHS[options.endpoint_type]


def _prepare_tensors(options: LlmOptions, prompts: Sequence[Prompt]) -> PreparedLoad:
    """Requests through gRPC streams, with the tensors that the model has."""
    load = replace(load_options(options), is_streaming=True)
    address: Address = server_address(load)
    calls = connect(load)
    try:
        model = describe(calls.metadata(options.model, ""), calls.config(options.model, ""), "", calls.config, ())
    except PerfError as error:
        raise PerfError(f"error: failed to get model metadata: {error}\n", error.exit_code) from None
    finally:
        calls.close()
    contents = [RequestContent(_inputs(model, values_of(options, prompt)), ()) for prompt in prompts]
    forms = [
        GrpcInferForm(model.name, "", content, {}, parameters=(), encoding=None, wants_empty_final=model.is_decoupled)
        for content in contents
    ]
    recipe = LoadRecipe(
        options=load,
        endpoint=server_endpoint(load, address),
        streams=[forms],
        kind=answers.GRPC_STREAM,
        headers=call_headers("ModelStreamInfer", address.authority, is_tls=address.is_tls, extra=options.headers),
        is_decoupled=model.is_decoupled,
        keeps_bodies=True,
    )
    return PreparedLoad(recipe, tuple(contents), outputs=tuple(spec.name for spec in model.outputs))


def values_of(options: LlmOptions, prompt: Prompt) -> dict[str, Any]:
    """What tensors are to say, for the backends of vLLM and TensorRT-LLM alike: a model gets those that it has."""
    sampling = {str(name): str(value) for name, value in options.extra_inputs.items()}
    least: dict[str, Any] = {}
    if prompt.max_tokens is not None:
        sampling["max_tokens"] = str(prompt.max_tokens)
        if options.prompts.is_output_exact:
            sampling["min_tokens"] = str(prompt.max_tokens)
            least = {"min_tokens": prompt.max_tokens, "min_length": prompt.max_tokens}
    return {
        "text_input": prompt.text,
        "stream": options.is_streaming,
        "sampling_parameters": orjson.dumps(sampling).decode(),
        "exclude_input_in_output": True,
        "max_tokens": _DEFAULT_ANSWER if prompt.max_tokens is None else prompt.max_tokens,
        **least,
        **options.extra_inputs,
    }


def _inputs(model: ModelDescription, values: dict[str, Any]) -> tuple[RequestInput, ...]:
    inputs = []
    for spec in model.inputs:
        if spec.name in values:
            inputs.append(_input(spec, values[spec.name], model.max_batch_size > 0))
        elif not spec.is_optional:
            raise PerfError(f"the model wants the input '{spec.name}': give it with --extra-inputs {spec.name}:VALUE")
    if not any(one.name == "text_input" for one in inputs):
        raise PerfError(f"model '{model.name}' has no input text_input: is it a language model?")
    return tuple(inputs)


def _input(spec: TensorSpec, value: Any, has_batch: bool) -> RequestInput:
    shape = tuple(1 if dim < 0 else dim for dim in spec.shape)
    shape = (1, *shape) if has_batch else shape
    if spec.datatype == BYTES:
        return RequestInput(spec.name, spec.datatype, shape, encode_bytes([value]))
    try:
        data = np.array([value]).astype(NUMPY_DTYPE[spec.datatype]).tobytes()
    except (ValueError, TypeError, KeyError):
        raise PerfError(f"'{value}' is no {spec.datatype} for the input '{spec.name}'") from None
    return RequestInput(spec.name, spec.datatype, shape, data)
