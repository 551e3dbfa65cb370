"""Compares what a call was answered before with what it is answered now."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from trireme.core.datatype import BYTES, Parameter
from trireme.core.elements import decode_bytes
from trireme.core.recorded_call import RecordedCall
from trireme.core.tensor import Tensor
from trireme.tools.replay.options import CompareOptions
from trireme.tools.replay.sending import Reply
from trireme.tools.replay.values import difference, same_json

_MARKS = frozenset(("triton_final_response", "sequence_id", "sequence_start", "sequence_end"))
"""Parameters that a protocol adds."""
_REQUEST_ID = re.compile(r"\[request id: [^]]*\] ")


class Verdict(enum.Enum):
    """What became of a call."""

    SAME = "same"
    DIFFERS = "differs"
    FAILS = "fails now"
    """It was answered before and ends with an error now."""
    RECOVERED = "failed before"
    """The other way round."""
    SAME_ERROR = "same error"
    OTHER_ERROR = "other error"
    UNCOMPARED = "not compared"
    """There was no answer before."""
    UNPLAYABLE = "not replayable"
    UNANSWERED = "no answer"
    """The server, or the one to compare with, could not be reached."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The verdict and what it rests on."""

    verdict: Verdict
    details: tuple[str, ...] = ()


class Response(Protocol):
    """A response of either side."""

    @property
    def outputs(self) -> Sequence[Tensor]:
        """The tensors."""

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """What stands beside them."""


@dataclass(frozen=True, slots=True)
class EarlierAnswer:
    """What the call was answered before, by whoever: the recorded server, or another one just now."""

    responses: tuple[Response, ...]
    error: str | None
    is_known: bool = True
    is_cut: bool = False
    """Whether there were more responses than these."""


def recorded_answer(call: RecordedCall) -> EarlierAnswer:
    """What the recording has."""
    responses = tuple(response for response in call.responses if response.error is None)
    is_known = call.has_answer and (call.is_finished or call.error is not None) and bool(responses or not call.is_cut)
    return EarlierAnswer(responses, call.error, is_known, call.is_cut)


def other_answer(reply: Reply) -> EarlierAnswer:
    """What another server answered just now."""
    return EarlierAnswer(reply.answers, reply.error)


def compare(before: EarlierAnswer, now: Reply, options: CompareOptions) -> Comparison:
    """The verdict on one call."""
    if now.is_unreachable:
        return Comparison(Verdict.UNANSWERED, (now.error or "",))
    if not before.is_known:
        return Comparison(Verdict.UNCOMPARED if now.error is None else Verdict.FAILS, _told(now.error))
    if now.error is not None:
        if before.error is None:
            return Comparison(Verdict.FAILS, (now.error,))
        is_same = _without_id(before.error) == _without_id(now.error)
        told = () if is_same else (f"{before.error!r} became {now.error!r}",)
        return Comparison(Verdict.SAME_ERROR if is_same else Verdict.OTHER_ERROR, told)
    if before.error is not None:
        return Comparison(Verdict.RECOVERED, (before.error,))
    details = tuple(_differences(_meaningful(before.responses), _meaningful(now.answers), options, before.is_cut))
    return Comparison(Verdict.DIFFERS if details else Verdict.SAME, details)


def _told(error: str | None) -> tuple[str, ...]:
    return () if error is None else (error,)


def _meaningful(responses: Sequence[Response]) -> list[Response]:
    """Without the marks that end a stream."""
    return [response for response in responses if response.outputs]


def _differences(before: list[Response], now: list[Response], options: CompareOptions, is_cut: bool) -> list[str]:
    """Response by response; a text that came in other pieces is the same text. Where more came before than is known,
    now there have to be as many at least."""
    if len(now) < len(before) if is_cut else len(now) != len(before):
        if _same_text(before, now, options, is_cut):
            return []
        return [f"{len(before)} responses{' and more' if is_cut else ''} became {len(now)}"]
    found = []
    for number, (old, new) in enumerate(zip(before, now, strict=False)):  # those that were left out are not known
        where = f"response {number + 1}: " if len(before) > 1 else ""
        found += [f"{where}{told}" for told in _response_differences(old, new, options)]
    if found and (is_cut or len(before) > 1) and _same_text(before, now, options, is_cut):
        return []
    return found


def _response_differences(before: Response, now: Response, options: CompareOptions) -> list[str]:
    old = {tensor.name: tensor for tensor in before.outputs if tensor.name not in options.ignored_outputs}
    new = {tensor.name: tensor for tensor in now.outputs if tensor.name not in options.ignored_outputs}
    found = [f"output '{name}' is missing" for name in old if name not in new]
    found += [f"output '{name}' is new" for name in new if name not in old]
    for name, tensor in old.items():
        told = difference(tensor, new[name], options) if name in new else None
        if told is not None:
            found.append(f"output '{name}': {told}")
    was, is_now = _own(before.parameters, options), _own(now.parameters, options)
    names = sorted(name for name in was.keys() | is_now.keys() if was.get(name) != is_now.get(name))
    return found + [f"parameter '{name}': {was.get(name)!r} became {is_now.get(name)!r}" for name in names]


def _own(parameters: Mapping[str, Parameter], options: CompareOptions) -> dict[str, Parameter]:
    left_out = _MARKS | options.ignored_keys | options.ignored_outputs
    return {name: value for name, value in parameters.items() if name not in left_out}


def _same_text(before: list[Response], now: list[Response], options: CompareOptions, is_cut: bool) -> bool:
    """Whether the texts of both streams, put together, are the same, or the one begins with all that is known of the
    other; only where all they hold is text."""
    left, right = _joined(before, options), _joined(now, options)
    if left is None or right is None or left.keys() != right.keys():
        return False
    if is_cut:
        return all(right[name].startswith(left[name]) for name in left)
    return all(left[name] == right[name] or same_json(left[name], right[name], options) for name in left)


def _joined(responses: list[Response], options: CompareOptions) -> dict[str, bytes] | None:
    texts: dict[str, bytes] = {}
    for response in responses:
        for tensor in response.outputs:
            if tensor.name in options.ignored_outputs:
                continue
            if tensor.datatype != BYTES:
                return None
            try:
                elements = decode_bytes(tensor.data)
            except ValueError:
                return None
            if len(elements) > 1:
                return None
            texts[tensor.name] = texts.get(tensor.name, b"") + b"".join(elements)
    return texts


def _without_id(error: str) -> str:
    return _REQUEST_ID.sub("", error)
