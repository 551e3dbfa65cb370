"""How an ensemble's steps hang together, worked out once for each set of outputs that clients ask for."""

from __future__ import annotations

from collections import Counter
from typing import Final

from trireme.config.model_config import EnsembleStepConfig, ModelConfig
from trireme.core.request import InferenceRequest
from trireme.core.tensor import HandedTensor, Tensor

_CACHED_PLANS: Final = 64


class PlannedStep:
    """One step of a plan: what it reads, what it must produce, who is called."""

    __slots__ = ("can_wait", "index", "inputs", "model_name", "model_version", "outputs", "requested", "sole")

    def __init__(self, index: int, config: EnsembleStepConfig, wanted: set[str]) -> None:
        self.index = index
        self.model_name = config.model_name
        self.model_version = "" if config.model_version == -1 else str(config.model_version)
        self.inputs = tuple(config.input_map.items())  # the model's name, the ensemble's
        self.outputs = {name: tensor for name, tensor in config.output_map.items() if tensor in wanted}
        self.requested = tuple(self.outputs)
        self.sole: frozenset[str] = frozenset()  # the tensors that only one input of this step reads
        self.can_wait = True  # whether nobody else in the ensemble needs the instances of its model

    def gather(self, values: dict[str, Tensor | None], shared: dict[str, Tensor | None] | None) -> dict[str, Tensor]:
        """The step's inputs under the model's names, over the same data; absent tensors are left out. Tensors that are
        also in `shared` are read by other requests to the step; those that nobody reads after this are let go."""
        inputs: dict[str, Tensor] = {}
        for name, tensor_name in self.inputs:
            tensor = values.get(tensor_name)
            if tensor is None:
                continue
            is_sole = tensor_name in self.sole and (shared is None or tensor_name not in shared)
            if is_sole:
                values[tensor_name] = None
            if is_sole and isinstance(tensor, HandedTensor):
                inputs[name] = HandedTensor(name, tensor.datatype, tensor.shape, tensor.data, tensor.origin)
            else:
                inputs[name] = renamed(tensor, name)
        return inputs


class EnsemblePlan:
    """The steps needed for some outputs, and what each still misses when only the ensemble's inputs are there."""

    __slots__ = ("_steps", "consumers", "first_steps", "missing", "outputs")

    def __init__(self, config: ModelConfig, outputs: tuple[str, ...]) -> None:
        self.outputs = tuple(dict.fromkeys(outputs))
        needed, wanted = _needed(config, outputs)
        steps = [PlannedStep(index, entry, wanted) for index, entry in enumerate(config.ensemble_steps)]
        self._steps = steps
        self.missing = [0] * len(steps)
        self.consumers: dict[str, list[PlannedStep]] = {}
        self.first_steps: list[PlannedStep] = []
        for step in steps:
            if step.index not in needed:
                continue
            tensors = {tensor for _, tensor in step.inputs} - set(config.inputs)
            self.missing[step.index] = len(tensors)
            for tensor in tensors:
                self.consumers.setdefault(tensor, []).append(step)
            if not tensors:
                self.first_steps.append(step)
        users = Counter(step.model_name for step in steps if step.index in needed)
        readers = Counter(tensor for step in steps if step.index in needed for _, tensor in step.inputs)
        for step in steps:
            step.can_wait = users[step.model_name] == 1
            step.sole = frozenset(
                tensor for _, tensor in step.inputs if readers[tensor] == 1 and tensor not in self.outputs
            )

    def let_go(self, model_name: str) -> None:
        """The model is called from inside a step: it must not wait for steps any more."""
        for step in self._steps:
            if step.model_name == model_name:
                step.can_wait = False


class EnsemblePlans:
    """The plans of one ensemble, by the outputs asked for."""

    __slots__ = ("_config", "_let_go", "_plans", "all_outputs")

    def __init__(self, config: ModelConfig) -> None:
        self._config = config
        self._plans: dict[tuple[str, ...], EnsemblePlan] = {}
        self._let_go: set[str] = set()
        self.all_outputs = EnsemblePlan(config, tuple(config.outputs))

    def of(self, request: InferenceRequest) -> EnsemblePlan:
        """The plan for what this request asks for."""
        asked = request.requested_outputs
        if not asked:
            return self.all_outputs
        plan = self._plans.get(asked)
        if plan is None:
            if len(self._plans) >= _CACHED_PLANS:
                self._plans.clear()
            plan = self._plans[asked] = EnsemblePlan(self._config, asked)
            for name in self._let_go:
                plan.let_go(name)
        return plan

    def let_go(self, model_name: str) -> bool:
        """The same in every plan, those to come among them; false where it was so before."""
        if model_name in self._let_go:
            return False
        self._let_go.add(model_name)
        for plan in (self.all_outputs, *self._plans.values()):
            plan.let_go(model_name)
        return True


def renamed(tensor: Tensor, name: str) -> Tensor:
    """The tensor under another name, over the same data, which others may read too."""
    if tensor.name == name and not isinstance(tensor, HandedTensor):
        return tensor
    return Tensor(name, tensor.datatype, tensor.shape, tensor.data)


def _needed(config: ModelConfig, outputs: tuple[str, ...]) -> tuple[set[int], set[str]]:
    """The indices of the steps that lead to these outputs, and every tensor on the way."""
    writers = {tensor: index for index, step in enumerate(config.ensemble_steps) for tensor in step.output_map.values()}
    needed: set[int] = set()
    wanted: set[str] = set()
    open_tensors = list(outputs)
    while open_tensors:
        tensor = open_tensors.pop()
        if tensor in wanted:
            continue
        wanted.add(tensor)
        writer = writers.get(tensor)
        if writer is not None and writer not in needed:
            needed.add(writer)
            open_tensors.extend(config.ensemble_steps[writer].input_map.values())
    return needed, wanted
