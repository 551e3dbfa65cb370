"""TensorFlow Serving: signatures of saved models in, predictions out, over gRPC."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError

from trireme.core.datatype import BYTES
from trireme.tools.perf.address import tls_context
from trireme.tools.perf.control.connect import server_address
from trireme.tools.perf.control.unary_call import UnaryCaller
from trireme.tools.perf.data.batches import request_contents
from trireme.tools.perf.data.tensor_source import load_dataset
from trireme.tools.perf.errors import PerfError
from trireme.tools.perf.load.building import LoadRecipe
from trireme.tools.perf.model import ModelDescription, TensorSpec
from trireme.tools.perf.options import PerfOptions
from trireme.tools.perf.preparation import PreparedLoad, expected_outputs, server_endpoint
from trireme.tools.perf.wire import answers
from trireme.tools.perf.wire.grpc_headers import call_headers
from trireme.tools.perf.wire.tensorflow_messages import (
    DATATYPES,
    GetModelMetadataRequest,
    GetModelMetadataResponse,
    SignatureDefMap,
)
from trireme.tools.perf.wire.tensorflow_requests import SERVICE, PredictForm, set_model

_SIGNATURES = "signature_def"


def look_up_signature(options: PerfOptions) -> ModelDescription:
    """The model as the signature describes it; raises PerfError."""
    address = server_address(options)
    context = tls_context(options.tls, ["h2"]) if address.is_tls else None
    request = GetModelMetadataRequest(metadata_field=[_SIGNATURES])
    set_model(request.model_spec, options.model_name, options.model_version)
    caller = UnaryCaller(address, options.headers, context)
    try:
        answer = GetModelMetadataResponse.FromString(
            caller.call(SERVICE, "GetModelMetadata", request.SerializeToString())
        )
        found = SignatureDefMap.FromString(answer.metadata[_SIGNATURES].value).signature_def
    except PerfError as error:
        raise PerfError(f"error: failed to get model metadata: {error}\n") from None
    except DecodeError:
        raise PerfError(
            f"error: failed to get model metadata: the answer of {address.authority} is none of TensorFlow Serving\n"
        ) from None
    name = options.signature_name
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        raise PerfError(
            "error: failed to create model parser: "
            f'Failed to find signature_name "{name}" in the metadata; there is: {known}\n'
        )
    return _described(found[name], options)


def prepare_predictions(options: PerfOptions, model: ModelDescription) -> PreparedLoad:
    """The predictions to send; raises PerfError."""
    address = server_address(options)
    dataset = load_dataset(model, options.inputs, options.seed)
    steps = tuple(step for stream in dataset.streams for step in stream)
    contents = tuple(request_contents(steps, options.inputs.batch_size, model.max_batch_size > 0))
    forms = [
        PredictForm(model.name, model.version, options.signature_name, content, encoding=options.grpc_compression)
        for content in contents
    ]
    headers = call_headers(
        "Predict",
        address.authority,
        is_tls=address.is_tls,
        encoding=options.grpc_compression,
        extra=options.headers,
        service=SERVICE,
    )
    recipe = LoadRecipe(
        options=options,
        endpoint=server_endpoint(options, address),
        streams=[forms],
        kind=answers.TENSORFLOW,
        headers=headers,
        keeps_bodies=options.report.profile_file is not None,
        expected=expected_outputs(dataset, contents),
    )
    return PreparedLoad(recipe, contents, None, tuple(spec.name for spec in model.outputs))


def _described(signature: Any, options: PerfOptions) -> ModelDescription:
    """Requests have a batch dimension where -b says so, and else the shapes of the signature as they are."""
    inputs = options.inputs
    return ModelDescription(
        name=options.model_name,
        version=options.model_version,
        max_batch_size=inputs.batch_size if inputs.is_batch_size_given else 0,
        inputs=tuple(_spec(name, signature.inputs[name], options) for name in sorted(signature.inputs)),
        outputs=tuple(
            TensorSpec(name, DATATYPES.get(signature.outputs[name].dtype, BYTES), ())
            for name in sorted(signature.outputs)
        ),
    )


def _spec(name: str, info: Any, options: PerfOptions) -> TensorSpec:
    datatype = DATATYPES.get(info.dtype)
    if datatype is None:
        raise PerfError(f"error: input '{name}' has TensorFlow's datatype {info.dtype}, which cannot be sent\n")
    has_batch = options.inputs.is_batch_size_given
    if info.tensor_shape.unknown_rank:
        if has_batch:
            raise PerfError("error: Can not specify -b flag for saved model with unknown ranked inputs\n")
        given = options.inputs.shapes.get(name)
        return TensorSpec(name, datatype, (-1,) if given is None else given)
    shape = tuple(dim.size for dim in info.tensor_shape.dim)
    if has_batch and shape[:1] != (-1,):
        raise PerfError(
            f"error: Can not specify -b flag for saved model with input '{name}' not having its first dim as -1\n"
        )
    return TensorSpec(name, datatype, shape[1:] if has_batch else shape)
