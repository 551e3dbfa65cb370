"""A client's call of a model, whole and free of protocols: front ends decode what goes in and encode what comes out.

called = server.calls.open(name, version)   # the model is found, or the error says why there is none
request = ...                               # decoded, with the parameters of its outputs
called.start(request, arrival)              # checked and enqueued; `request.respond` gets finished responses
"""

from __future__ import annotations

from trireme.config.picture_parameters import picture_config
from trireme.core.errors import ServingError
from trireme.core.request import InferenceRequest, OutputParameters, OutputTarget
from trireme.core.response import InferenceResponse
from trireme.registry.model import Model
from trireme.server.inference import Inference
from trireme.server.pictures.picture_input import PictureInput
from trireme.server.recording.recorder import Recorder
from trireme.server.shared_memory import SharedMemory
from trireme.server.text_models.forms import (
    EmbeddingForm,
    GenerationForm,
    embedding_form,
    generation_form,
    inputs_in_the_way,
)
from trireme.server.text_models.mistaken_names import MistakenNames
from trireme.server.trace.tracing import Arrival, Tracing


class Calls:
    """Opens calls. The parts it is made of serve requests from inside the server too; front ends use this alone."""

    def __init__(self, inference: Inference, tracing: Tracing, shared_memory: SharedMemory) -> None:
        self.inference = inference
        self._find = inference.find
        self.tracing = tracing
        self.shared_memory = shared_memory
        self.mistaken_names = MistakenNames()
        self.recorder: Recorder | None = None  # while calls are recorded
        self.read_region = shared_memory.read
        """`read_region(region, offset, size_bytes)` is the data of an input that lies in shared memory."""

    def open(self, name: str, version: str) -> CalledModel:
        """The model that serves, or is being loaded for the call; raises the error that says why there is none."""
        model = self._find(name, version)
        called = model.called
        if not isinstance(called, CalledModel):
            called = model.called = CalledModel(self, model)
        return called

    async def wait_until_loaded(self, name: str, version: str) -> None:
        """Returns when the model can be asked for its inputs; raises ServingError when it never can."""
        await self.inference.loaded(name, version)

    def refuse_unread(self, name: str, version: str, error: ServingError) -> None:
        """Tells whoever watches refusals of a call that could not be read, so that there is no request of it."""
        if self.inference.on_refused is not None:
            self.inference.on_refused(InferenceRequest(name, version, "", {}, _nobody_waits), error.message)


class CalledModel:
    """A model as front ends see it, from before a body is read. It keeps nothing of a single call, so that one of these
    does for all calls of the model. Used on the event loop's thread."""

    __slots__ = ("_calls", "_model")

    def __init__(self, calls: Calls, model: Model) -> None:
        self._calls = calls
        self._model = model

    @property
    def is_decoupled(self) -> bool:
        """Whether there may be any number of responses."""
        return self._model.is_decoupled

    @property
    def is_loading(self) -> bool:
        """Whether the model is still being loaded, so that its inputs are not known for sure."""
        return self._model.is_placeholder

    @property
    def has_batch(self) -> bool:
        """Whether inputs have one more dimension in front than `inputs` says."""
        return self._model.config.max_batch_size > 0

    @property
    def backend(self) -> str:
        """What runs the model, as its configuration says."""
        return self._model.config.backend

    @property
    def has_adapters(self) -> bool:
        """Whether the model can be asked to write with adapters."""
        return self._model.adapters_folder is not None

    def generation(self) -> GenerationForm | None:
        """How the model is asked for texts; None where it writes none."""
        return generation_form(self._model.config)

    def inputs_in_the_way(self) -> list[str]:
        """The inputs for which a model that takes and gives texts is not asked for them; none: others are why."""
        return inputs_in_the_way(self._model.config)

    def embedding(self) -> EmbeddingForm | None:
        """How the model is asked for vectors; None where it makes none."""
        return embedding_form(self._model.config)

    def outputs(self) -> list[str]:
        """The names of the outputs."""
        return list(self._model.config.outputs)

    def picture_input(self) -> PictureInput | None:
        """The input that is made of pictures; None where the configuration does not say how."""
        config = self._model.config
        declared = picture_config(config.name, self.inputs(), config.parameters, self.has_batch)
        return None if declared is None else PictureInput(declared, self.has_batch)

    def inputs(self) -> list[tuple[str, str, tuple[int, ...]]]:
        """Name, datatype and dims of each input, as the configuration has them."""
        return [(entry.name, entry.datatype, entry.dims) for entry in self._model.config.inputs.values()]

    def start(self, request: InferenceRequest, arrival: Arrival | None = None) -> None:
        """Sends the request in; raises ServingError where it is refused. `arrival` where it may be traced."""
        calls = self._calls
        output_parameters = request.output_parameters
        if output_parameters is not None and output_parameters.places:
            request.output_parameters = OutputParameters(
                output_parameters.class_counts, output_parameters.places, self._targets(output_parameters)
            )
        if arrival is not None:
            request.trace = calls.tracing.arrived(self._model.name, arrival)
        if calls.recorder is None:
            calls.inference.infer_on(self._model, request)
        else:
            calls.recorder.infer_on(self._model, request)

    def start_generation(self, request: InferenceRequest, arrival: Arrival | None = None) -> None:
        """The same for a request whose unknown names have become parameters."""
        if request.parameters:
            self._calls.mistaken_names.look_at(self._model, request)
        self.start(request, arrival)

    def _targets(self, output_parameters: OutputParameters) -> dict[str, OutputTarget]:
        find = self._calls.shared_memory.target
        return {
            name: find(place.region, place.offset, place.size_bytes) for name, place in output_parameters.places.items()
        }


def _nobody_waits(response: InferenceResponse) -> None:
    """The call is answered where it could not be read."""
