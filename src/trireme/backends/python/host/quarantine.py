"""Requests that were running when a worker died, and the refusal of those that keep killing workers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from trireme.core.clock import Clock, monotonic_ns
from trireme.core.elements import Buffer
from trireme.core.errors import ServingError, UnavailableError
from trireme.core.request import InferenceRequest

KILLS_BEFORE_REFUSAL = 3
EXPIRY_S = 600
MAX_SUSPECTS = 1024
EDGE_BYTES = 256
PIECES = 64
PIECE_BYTES = 1 << 16


class Quarantine:
    """Shared by the instances of one model. While `suspects` is empty nothing else here need be called."""

    def __init__(self, model_name: str, clock: Clock = monotonic_ns) -> None:
        self.suspects: dict[bytes, _Suspect] = {}
        self._model_name = model_name
        self._clock = clock
        self._outlines: set[int] = set()
        self._tried: bytes | None = None  # the one suspect on its last chance that runs
        self._let_go: set[bytes] = set()  # those that run on, and whose trial holds up nobody any more

    def blame(self, requests: Iterable[InferenceRequest]) -> int:
        """Notes that a worker died while it ran these; returns the highest count of kills among them.

        Where several ran, none is convicted by that: they stay one kill short of it and are tried one at a time.
        The one that was on trial is to blame alone when that happens for the second time: what ran beside it may have
        been the killer once."""
        now, worst = self._clock(), 0
        outlines = {fingerprint_of(request): outline_of(request) for request in requests}
        on_trial = {entry for entry in outlines if entry == self._tried or entry in self._let_go}
        for entry in on_trial:
            self.end(entry)
        if len(on_trial) == 1 and any(self._has_died_on_trial(entry) for entry in on_trial):
            outlines = {entry: outlines[entry] for entry in on_trial}
        most = KILLS_BEFORE_REFUSAL if len(outlines) == 1 else KILLS_BEFORE_REFUSAL - 1
        for fingerprint, outline in outlines.items():
            known = self.suspects.pop(fingerprint, None)
            kills = known.kills if known is not None and known.expires_ns > now else 0
            kills = max(kills, min(kills + 1, most))
            suspect = self.suspects[fingerprint] = _Suspect(kills, now + EXPIRY_S * 1_000_000_000, outline)
            suspect.has_died_on_trial = fingerprint in on_trial
            worst = max(worst, kills)
        while len(self.suspects) > MAX_SUSPECTS:
            del self.suspects[next(iter(self.suspects))]
        self._note_outlines()
        return worst

    def examine(self, request: InferenceRequest) -> tuple[bytes | None, ServingError | None]:
        """The fingerprint of a request that may be a suspect, and the error with which it is refused; else None."""
        self._forget_expired()
        if outline_of(request) not in self._outlines:
            return None, None
        fingerprint = fingerprint_of(request)
        suspect = self.suspects.get(fingerprint)
        if suspect is None or suspect.kills < KILLS_BEFORE_REFUSAL:
            return fingerprint, None
        left_s = (suspect.expires_ns - self._clock()) // 1_000_000_000
        text = (
            f"request refused: its inputs killed {suspect.kills} worker processes of model '{self._model_name}' "
            f"one after another; the same inputs are refused for another {max(left_s, 1)} s"
        )
        return fingerprint, UnavailableError(text)

    def last_chance(self, requests: Sequence[InferenceRequest]) -> InferenceRequest | None:
        """One that must run alone, because one more kill will have it refused: what merely shared a batch with the
        killer is cleared that way. None where all may run together."""
        if len(requests) > 1:
            for request in requests:
                fingerprint, refusal = self.examine(request)
                suspect = self.suspects.get(fingerprint) if fingerprint is not None else None
                if refusal is None and suspect is not None and suspect.kills == KILLS_BEFORE_REFUSAL - 1:
                    return request
        return None

    def begin(self, fingerprint: bytes) -> ServingError | None:
        """Lets a suspect run, on trial where it is its last chance; the error while another one is on trial."""
        suspect = self.suspects.get(fingerprint)
        if suspect is None or suspect.kills < KILLS_BEFORE_REFUSAL - 1:
            return None
        if self._tried is not None and self._tried != fingerprint:
            return UnavailableError(
                f"request put off: {suspect.kills} worker processes of model '{self._model_name}' died while the same "
                "inputs and others were running, so those are tried one at a time and another one is; send it again"
            )
        self._tried = fingerprint
        return None

    def let_go(self, fingerprint: bytes) -> None:
        """The suspect has given a first response, and others need not wait until it ends; unless a worker has died
        under it before."""
        if self._tried == fingerprint and not self._has_died_on_trial(fingerprint):
            self._tried = None
            self._let_go.add(fingerprint)

    def end(self, fingerprint: bytes) -> None:
        """The suspect runs no more."""
        self._let_go.discard(fingerprint)
        if self._tried == fingerprint:
            self._tried = None

    def _has_died_on_trial(self, fingerprint: bytes) -> bool:
        suspect = self.suspects.get(fingerprint)
        return suspect is not None and suspect.has_died_on_trial

    def clear(self, fingerprint: bytes) -> None:
        """The same inputs were executed and the worker lives."""
        if self.suspects.pop(fingerprint, None) is not None:
            self._note_outlines()

    def _note_outlines(self) -> None:
        self._outlines = {suspect.outline for suspect in self.suspects.values()}

    def _forget_expired(self) -> None:
        now = self._clock()
        while self.suspects:
            oldest = next(iter(self.suspects))  # blaming moves an entry to the end, so the first expires first
            if self.suspects[oldest].expires_ns > now:
                return
            del self.suspects[oldest]
            self._note_outlines()


def outline_of(request: InferenceRequest) -> int:
    """Differs for most requests that differ, and costs little however large they are."""
    edges = [
        (
            tensor.name,
            tensor.datatype,
            tuple(tensor.shape),
            bytes(tensor.data[:EDGE_BYTES]),
            bytes(tensor.data[-EDGE_BYTES:]),
        )
        for tensor in request.inputs.values()
    ]
    return hash(tuple(sorted(edges)))


def fingerprint_of(request: InferenceRequest) -> bytes:
    """Equal for requests with the same inputs: names, types, shapes and bytes, in any order; of an input of more than
    4 MiB the 4 MiB in 64 pieces of it that are looked at."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(request.inputs):
        tensor = request.inputs[name]
        digest.update(repr((name, tensor.datatype, tuple(tensor.shape), len(tensor.data))).encode())
        for piece in _pieces(tensor.data):
            digest.update(piece)
    return digest.digest()


def _pieces(data: Buffer) -> Iterable[Buffer]:
    """All of what is not large, and evenly spaced pieces of the rest, because this is done on the event loop."""
    size = len(data)
    if size <= PIECES * PIECE_BYTES:
        return (data,)
    view, last = memoryview(data), size - PIECE_BYTES
    starts = (last * number // (PIECES - 1) for number in range(PIECES))
    return (view[start : start + PIECE_BYTES] for start in starts)


class _Suspect:
    __slots__ = ("expires_ns", "has_died_on_trial", "kills", "outline")

    def __init__(self, kills: int, expires_ns: int, outline: int) -> None:
        self.kills = kills
        self.has_died_on_trial = False  # the last worker under it
        self.expires_ns = expires_ns
        self.outline = outline
