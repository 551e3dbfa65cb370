"""One request on its way through the steps of an ensemble."""

from __future__ import annotations

import logging
from typing import Protocol

from trireme.core.datatype import Parameter
from trireme.core.errors import CancelledError, ErrorKind, InternalError, ServingError, unwritten_error
from trireme.core.ports import InferencePort
from trireme.core.request import SEQUENCE_END, SEQUENCE_START, InferenceRequest, ModelCalledCallback, StepRequest
from trireme.core.response import NO_SEQUENCE, InferenceResponse
from trireme.core.tensor import Tensor
from trireme.scheduling.ensemble.client_names import in_clients_names
from trireme.scheduling.ensemble.max_inflight import InflightLimit
from trireme.scheduling.ensemble.plan import EnsemblePlan, PlannedStep, renamed
from trireme.scheduling.ensemble.scope import Scope
from trireme.scheduling.passing_on import pass_on

log = logging.getLogger(__name__)


class RunOwner(Protocol):
    """What a run needs from the ensemble it belongs to."""

    name: str
    """As errors name the ensemble."""

    inference: InferencePort
    """Runs the steps."""

    is_decoupled: bool
    """Whether a request may have any number of responses."""

    max_inflight: int
    """How many requests of one run may be at the same step at once; 0 is no limit."""

    on_call: ModelCalledCallback
    """Learns which models are called from inside a step, where there is a limit."""

    def client_names(self, step: PlannedStep) -> dict[str, str]:
        """By a step's name for an input: the client's, where it is another and known."""

    def responded(self, run: EnsembleRun) -> None:
        """A first response, not the final one, is about to leave."""

    def ended(self, run: EnsembleRun, error: ServingError | None) -> None:
        """The final response is about to leave; `error` is what the run failed of."""


class _StepCall:
    """One request to a step's model, and the scope it belongs to."""

    __slots__ = ("child", "has_responded", "run", "scope", "step")

    def __init__(self, run: EnsembleRun, step: PlannedStep, scope: Scope) -> None:
        self.run = run
        self.step = step
        self.scope = scope
        self.has_responded = False
        self.child: InferenceRequest | None = None

    def respond(self, response: InferenceResponse) -> None:
        """Takes a response of the step's model."""
        run = self.run
        if run.is_over:
            return
        child, scope = self.child, self.scope
        if response.is_final:
            run.calls.discard(self)
            self.child = None  # which leads back here: without this, only the garbage collector would free both
        if response.error is not None:
            run.fail_of(self.step, response.error)
            return
        if not response.is_empty:
            if self.has_responded or not response.is_final:
                scope = scope.branch()
            self.has_responded = True
            run.advance(self.step, scope, response.outputs)
        if run.is_over:
            return
        if scope.held_count and (response.is_final or (child is not None and child.credits)):
            scope.wait(_UnsettledResponse(run, self.step, None if response.is_final else child).settle)
        elif response.is_final:
            run.step_ended(self.step)
        elif child is not None:
            child.add_credit()


class _UnsettledResponse:
    """A response whose step, or whose model where it has more to come, waits for the steps that it led to."""

    __slots__ = ("_child", "_run", "_step")

    def __init__(self, run: EnsembleRun, step: PlannedStep, child: InferenceRequest | None) -> None:
        self._run = run
        self._step = step
        self._child = child  # None: it was the last response

    def settle(self) -> None:
        if self._run.is_over:
            return
        if self._child is None:
            self._run.step_ended(self._step)
        else:
            self._child.add_credit()


class EnsembleRun:
    """Fires steps as their inputs become known, and answers the request.

    A tensor that a step's model did not produce counts as known and absent, as an optional input does that the
    client left out; whether a step can do without it, its own model says.
    """

    __slots__ = (
        "_held_response",
        "_limit",
        "_open_count",
        "_owner",
        "_plan",
        "_sent_count",
        "calls",
        "is_over",
        "request",
    )

    def __init__(self, owner: RunOwner, request: InferenceRequest, plan: EnsemblePlan) -> None:
        self._owner = owner
        self._plan = plan
        self.request = request
        self.calls: set[_StepCall] = set()
        self.is_over = False
        self._limit = InflightLimit(owner.max_inflight) if owner.max_inflight else None
        self._held_response: InferenceResponse | None = None
        self._sent_count = 0
        self._open_count = 0  # how many calls on the stack may still fire steps

    def begin(self) -> None:
        """Fires the steps that need nothing but the ensemble's inputs."""
        plan = self._plan
        inputs: dict[str, Tensor | None] = {**self.request.inputs}
        root = Scope(inputs, plan.missing[:], len(plan.outputs))
        self._open_count += 1
        for step in plan.first_steps:
            if self.is_over:
                return
            self._fire(step, root)
        self._open_count -= 1
        self._end_if_idle()

    @property
    def has_sent(self) -> bool:
        """Whether a response has left already."""
        return self._sent_count > 0

    def cancel(self) -> None:
        """Passes the cancellation on to the running steps; the first of them to end ends the run."""
        if not self.calls:
            self.fail(CancelledError(""))
            return
        self._end_steps()

    def let_go(self, model_name: str) -> None:
        """From now on the model is not made to wait for the steps behind it."""
        self._plan.let_go(model_name)
        for call in list(self.calls):
            child = call.child
            if child is not None and child.model_name == model_name and child.credits:
                child.credits = 0
                child.add_credit()  # it may be waiting; each response that comes lets it send the next

    def advance(self, step: PlannedStep, scope: Scope, outputs: list[Tensor]) -> None:
        """Takes a step's outputs into the scope and fires what was waiting for them."""
        produced = {tensor.name: tensor for tensor in outputs}
        self._open_count += 1
        for name, tensor_name in step.outputs.items():
            self._set(scope, tensor_name, produced.get(name))
            if self.is_over:
                return
        self._open_count -= 1

    def step_ended(self, step: PlannedStep) -> None:
        """A step's request has had its final response: fires one that was held back, or ends the run."""
        if self._limit is not None:
            self._limit.leave(step)
            self._fire_held(self._limit, step)
        self._end_if_idle()

    def fail_of(self, step: PlannedStep, error: ServingError) -> None:
        """The same with what a step's model refuses, told with the names that the client knows."""
        if error.kind is ErrorKind.INVALID_ARGUMENT and not self.is_over:
            names = self._owner.client_names(step)
            told = in_clients_names(error.message, names, step.model_name, self.request.parameters)
            error = error.retold(told)
        self.fail(error)

    def fail(self, error: ServingError) -> None:
        """Answers with the error and lets the other steps know that nobody waits for them."""
        if self.is_over:
            return
        told = error.retold(f"in ensemble '{self._owner.name}', {error.message}")
        self._finish(InferenceResponse.of_error(told), error)

    def _set(
        self, scope: Scope, tensor_name: str, tensor: Tensor | None, fired_above: tuple[PlannedStep, ...] = ()
    ) -> None:
        """Makes a tensor known in the scope and those below it; each step that has all its inputs by that is fired in
        the highest scope that has them."""
        scope.values[tensor_name] = tensor
        missing = scope.missing
        fired = fired_above
        for step in self._plan.consumers.get(tensor_name, ()):
            missing[step.index] -= 1
            if not missing[step.index] and step not in fired_above:
                fired = (*fired, step)
        is_complete = False
        if tensor_name in self._plan.outputs:
            scope.open_outputs -= 1
            is_complete = not scope.open_outputs
        if is_complete:
            scope.close()
            self._emit(scope)
        elif scope.branches:
            self._open_count += 1
            for branch in list(scope.branches):
                self._set(branch, tensor_name, tensor, fired)
            self._open_count -= 1
        for step in fired[len(fired_above) :]:
            if self.is_over:
                return
            self._fire(step, scope)

    def _fire(self, step: PlannedStep, scope: Scope) -> None:
        if self._limit is not None and not self._limit.enter(step, scope):
            return
        if self.request.is_cancelled:
            self.fail(CancelledError(""))
            return
        call = _StepCall(self, step, scope)
        parent, above = self.request, scope.above
        inputs = step.gather(scope.values, None if above is None else above.values)
        owner = self._owner
        name, version = step.model_name, step.model_version
        if self._limit is None:
            child = InferenceRequest(name, version, parent.id, inputs, call.respond)
        else:
            child = StepRequest(name, version, parent.id, inputs, call.respond, owner.on_call)
        child.requested_outputs = step.requested
        child.parameters = parent.parameters
        child.correlation_id = parent.correlation_id
        child.flags = parent.flags
        child.priority = parent.priority
        child.timeout_us = parent.timeout_us
        child.parent = parent
        if step.can_wait:
            child.credits = owner.max_inflight
        call.child = child
        self.calls.add(call)
        try:
            owner.inference.infer(child)
        except Exception as error:
            if not isinstance(error, ServingError):
                log.exception("step '%s' of ensemble '%s' could not be begun", name, owner.name)
            self.calls.discard(call)
            call.child = None
            self.fail_of(step, unwritten_error(error))

    def _fire_held(self, limit: InflightLimit, step: PlannedStep) -> None:
        """Fires what was held back for the step while it has room."""
        if not limit.held_count or not limit.begin_firing(step):
            return
        self._open_count += 1
        while (scope := limit.next_held(step)) is not None:
            self._fire(step, scope)
            if self.is_over:
                return
            scope.fired_held()
        self._open_count -= 1
        limit.end_firing(step)

    def _emit(self, scope: Scope) -> None:
        """Every output of the scope is known: answers with them."""
        values = scope.values
        outputs = [renamed(tensor, name) for name in self._plan.outputs if (tensor := values.get(name)) is not None]
        request = self.request
        parameters: dict[str, Parameter] | None = None
        if outputs and request.correlation_id == 0 and not request.flags:
            parameters = NO_SEQUENCE
        elif outputs:
            parameters = {
                "sequence_id": request.correlation_id,
                "sequence_start": bool(request.flags & SEQUENCE_START),
                "sequence_end": bool(request.flags & SEQUENCE_END),
            }
        response = InferenceResponse(outputs, None, parameters, False)
        if self._open_count == 1 and not self.calls and not self._is_held_back and self._held_response is None:
            response.is_final = True
            self._finish(response, None)
        elif self._owner.is_decoupled:
            self._send(response)
        else:
            self._hold(response)

    @property
    def _is_held_back(self) -> bool:
        return self._limit is not None and self._limit.held_count > 0

    def _hold(self, response: InferenceResponse) -> None:
        """Without the decoupled policy one response is expected: it is kept until it is known to be the last."""
        if self._held_response is not None:
            self._send(self._held_response)
        self._held_response = response

    def _send(self, response: InferenceResponse) -> None:
        if not self._sent_count:
            self._owner.responded(self)
        self._sent_count += 1
        pass_on(self.request, response)

    def _end_if_idle(self) -> None:
        """Ends the run where no step is running and none can be fired."""
        if self._open_count or self.calls or self.is_over:
            return
        if self._held_response is not None:
            self._held_response.is_final = True
            self._finish(self._held_response, None)
        elif self._sent_count or self._owner.is_decoupled:
            self._finish(InferenceResponse.final_mark(), None)
        else:
            self.fail(
                InternalError(
                    "unexpected deadlock, at least one output is not set while no more ensemble steps can be made"
                ).for_request(self.request.id)
            )

    def _finish(self, response: InferenceResponse, error: ServingError | None) -> None:
        self.is_over = True
        self._owner.ended(self, error)
        pass_on(self.request, response)
        self._end_steps()

    def _end_steps(self) -> None:
        """Lets running steps know that nobody waits for them; why not is the same as for the run."""
        for call in list(self.calls):
            if call.child is None:
                continue
            if self.request.is_satisfied:
                call.child.finish()
            else:
                call.child.cancel()
