"""From options and a model to a load that can be started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trireme.tools.perf.address import Address, resolve, tls_context
from trireme.tools.perf.control.connect import server_address
from trireme.tools.perf.control.port import ServerCalls
from trireme.tools.perf.data.batches import RegionPart, RequestContent, request_contents
from trireme.tools.perf.data.tensor_source import load_dataset
from trireme.tools.perf.data.tensors import Dataset
from trireme.tools.perf.errors import PerfError
from trireme.tools.perf.load.building import LoadRecipe
from trireme.tools.perf.load.sockets import Endpoint
from trireme.tools.perf.load.sources import RequestForm
from trireme.tools.perf.model import ModelDescription
from trireme.tools.perf.options import PerfOptions
from trireme.tools.perf.shared_regions import SharedRegions
from trireme.tools.perf.wire import answers
from trireme.tools.perf.wire.grpc_headers import call_headers
from trireme.tools.perf.wire.grpc_requests import GrpcInferForm
from trireme.tools.perf.wire.http_requests import HttpInferForm, infer_path, post_head


@dataclass(frozen=True)
class PreparedLoad:
    """What is sent, and how."""

    recipe: LoadRecipe
    contents: tuple[RequestContent, ...]
    """What the prepared requests carry, in the order of their numbers."""
    regions: SharedRegions | None = None
    outputs: tuple[str, ...] = ()
    """The names that an empty answer is exported with."""


def prepare_load(options: PerfOptions, model: ModelDescription, calls: ServerCalls) -> PreparedLoad:
    """Reads or makes up the data, registers shared memory, encodes the requests.

    Raises PerfError, and then no region is left.
    """
    regions = SharedRegions(calls) if options.inputs.shared_memory == "system" else None
    try:
        return _prepare(options, model, regions)
    except BaseException:  # Ctrl+C as well
        if regions is not None:
            regions.remove()
        raise


def _prepare(options: PerfOptions, model: ModelDescription, regions: SharedRegions | None) -> PreparedLoad:
    address = server_address(options)
    dataset = load_dataset(model, options.inputs, options.seed)
    _check_sequence_ids(options, model)
    streams = [
        request_contents(steps, options.inputs.batch_size, model.max_batch_size > 0) for steps in dataset.streams
    ]
    outputs: Mapping[str, RegionPart | None] = {spec.name: None for spec in model.outputs}
    if regions is not None:
        streams = [[regions.place_inputs(content) for content in stream] for stream in streams]
        outputs = regions.place_outputs(model, options.inputs)
    forms = [[_form(content, options, model, address, outputs) for content in stream] for stream in streams]
    contents = tuple(content for stream in streams for content in stream)
    recipe = LoadRecipe(
        options=options,
        endpoint=server_endpoint(options, address),
        streams=forms,
        kind=_kind(options),
        headers=call_headers(
            "ModelStreamInfer" if options.is_streaming else "ModelInfer",
            address.authority,
            is_tls=address.is_tls,
            encoding=options.grpc_compression,
            extra=options.headers,
        ),
        is_sequence=model.is_sequence,
        has_own_lengths=dataset.is_given and not options.sequences.is_length_given,
        is_decoupled=model.is_decoupled,
        keeps_bodies=options.report.profile_file is not None,
        expected=expected_outputs(dataset, contents),
    )
    return PreparedLoad(recipe, contents, regions, tuple(outputs))


def server_endpoint(options: PerfOptions, address: Address) -> Endpoint:
    """Where connections go; raises PerfError where nobody listens."""
    try:
        family, place = resolve(address)
    except OSError as error:
        raise PerfError(f"failed to connect to {address.authority}: {error.strerror or error}") from None
    context = None
    if address.is_tls:
        context = tls_context(options.tls, ["h2" if options.protocol == "grpc" else "http/1.1"])
    return Endpoint(family, place, address.host, context)


def _kind(options: PerfOptions) -> str:
    if options.protocol == "http":
        return answers.HTTP
    return answers.GRPC_STREAM if options.is_streaming else answers.GRPC


def _form(
    content: RequestContent,
    options: PerfOptions,
    model: ModelDescription,
    address: Address,
    outputs: Mapping[str, RegionPart | None],
) -> RequestForm:
    if options.protocol == "grpc":
        return GrpcInferForm(
            model.name,
            model.version,
            content,
            outputs,
            parameters=options.parameters,
            encoding=options.grpc_compression,
            wants_empty_final=model.is_decoupled,
        )
    head = post_head(address.base + infer_path(model.name, model.version), address.authority, options.headers)
    return HttpInferForm(
        head,
        content,
        outputs,
        uses_json_inputs=options.inputs.uses_json_inputs,
        uses_json_outputs=options.inputs.uses_json_outputs,
    )


def expected_outputs(dataset: Dataset, contents: tuple[RequestContent, ...]) -> list[dict[str, bytes]]:
    """What each request must bring; nothing where no entry says so."""
    if not any(step.expected for stream in dataset.streams for step in stream):
        return []
    return [
        {name: b"".join(step.expected.get(name, b"") for step in content.steps) for name in content.steps[0].expected}
        for content in contents
    ]


def _check_sequence_ids(options: PerfOptions, model: ModelDescription) -> None:
    count = options.sequences.id_count
    if not model.is_sequence or count is None:
        return
    needed = max(options.concurrency.start, options.concurrency.end)
    if count < needed:
        raise PerfError(
            f"sequence id range specified is smaller than the maximum possible number of concurrent sequences: "
            f"{count} ids for {int(needed)} sequences"
        )
