"""A whole replay: the models looked up, calls played, answers compared, and what ended it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from trireme.core.recorded_call import RecordedCall
from trireme.tools.client.errors import AnswerError, ClientError, InputError, UnknownModelError
from trireme.tools.client.model import nearest, served_model
from trireme.tools.record.reading import CallPlace, RecordingReader
from trireme.tools.replay.comparison import Comparison, EarlierAnswer, Verdict, compare, other_answer, recorded_answer
from trireme.tools.replay.kept_clients import KeptClient
from trireme.tools.replay.options import ReplayOptions
from trireme.tools.replay.player import Job, Play, Player
from trireme.tools.replay.results import Results, Timing
from trireme.tools.replay.sending import Reply, call_again, send

_OTHER_SERVER = "the server to compare with"
NewClient = Callable[[str], KeptClient]
"""A client of the server for a protocol that a call was recorded with; for one thread."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of it."""

    results: Results
    planned_count: int
    seconds: float
    end_reason: str
    """Why it did not come to its end; "" where it did."""
    is_server_gone: bool
    warnings: tuple[str, ...]
    is_interrupted: bool = False
    """Whether Ctrl+C ended it."""

    @property
    def is_all_answered(self) -> bool:
        """Whether the server answered whatever it was asked."""
        return not self.results.count(Verdict.UNANSWERED)

    @property
    def is_success(self) -> bool:
        """Whether all requests were sent, and what was planned was answered as it was."""
        is_whole = not self.end_reason and self.results.sent_count > 0 and not self.results.count(Verdict.UNPLAYABLE)
        return is_whole and self.is_all_answered and not self.results.bad_count


class Replay:
    """One recording against one server, compared with what is recorded or with a second server."""

    def __init__(
        self,
        recording: RecordingReader,
        options: ReplayOptions,
        new_client: NewClient,
        new_baseline: NewClient | None,
        on_progress: Callable[[Results, int], None],
    ) -> None:
        self._recording = recording
        self._options = options
        self._new_client = new_client
        self._new_baseline = new_baseline
        self._clients: list[KeptClient] = []  # of all threads
        self._on_progress = on_progress
        self._places = _chosen(recording, options)
        self._results = Results(options.shown_differences)
        self._reading = threading.Lock()
        self._streamed: dict[str, bool] = {}
        self._unanswered = 0  # in a row
        self._silent = ""  # who did not answer the last of them
        self._warnings = list(recording.contents.warnings())

    def run(self) -> Replayed:
        """Plays it; raises ClientError where the server cannot be asked at all."""
        try:
            self._look_up()
            return self._play_back()
        finally:
            for client in self._clients:
                client.kept.close()

    def _play_back(self) -> Replayed:
        options = self._options
        player = Player(self._places, options.speed, options.connections, self._new_play)
        began = time.monotonic()
        reason, is_gone, is_interrupted = "", False, False
        try:
            if not player.run():
                is_gone = True
                reason = f"{self._silent} did not answer {self._unanswered} requests in a row"
        except KeyboardInterrupt:
            reason, is_interrupted = "Ctrl+C", True
        except Exception as error:  # what there is is reported, and not as a success
            reason = f"the replay itself failed: {type(error).__name__}: {error}"
        seconds = time.monotonic() - began
        warnings = tuple(self._warnings)
        return Replayed(self._results, len(self._places), seconds, reason, is_gone, warnings, is_interrupted)

    def _look_up(self) -> None:
        """Which models answer in streams; a model that is not there fails call by call."""
        client = self._kept(self._new_client(""))
        version = self._options.version or ""
        for name in dict.fromkeys(place.model for place in self._places):
            target = self._target(name)
            try:
                self._streamed[name] = served_model(client, target, version).is_decoupled
            except UnknownModelError as error:
                self._streamed[name] = False
                self._warnings.append(f"model '{target}': {error}")
            except AnswerError as error:  # it may be that only metadata is locked
                self._streamed[name] = False
                self._warnings.append(f"model '{target}' is taken to answer once for each request: {error}")
        if self._new_baseline is not None and self._places:
            with contextlib.suppress(UnknownModelError, AnswerError):  # its answers are compared, whatever they are
                served_model(self._kept(self._new_baseline("")), self._places[0].model, "")

    def _target(self, model: str) -> str:
        return self._options.renamed.get(model, model)

    def _kept(self, client: KeptClient) -> KeptClient:
        """To be closed when all is over."""
        self._clients.append(client)
        return client

    def _new_play(self) -> Play:
        """For one thread: its own connections."""
        clients: dict[str, KeptClient] = {}
        baselines: dict[str, KeptClient] = {}

        def play(job: Job) -> bool:
            try:
                call = self._read(job.place)
            except (ClientError, ValueError) as error:
                self._add(job, None, Comparison(Verdict.UNPLAYABLE, (str(error),)), None, None)
                return True
            if call.unplayable:
                self._add(job, call, Comparison(Verdict.UNPLAYABLE, (call.unplayable,)), None, None)
                return True
            protocol = call.protocol
            if protocol not in clients:
                clients[protocol] = self._kept(self._new_client(protocol))
                if self._new_baseline is not None:
                    baselines[protocol] = self._kept(self._new_baseline(protocol))
            return self._play(job, call, clients[protocol], baselines.get(protocol))

        return play

    def _play(self, job: Job, call: RecordedCall, client: KeptClient, baseline: KeptClient | None) -> bool:
        late_ns = None if job.due_ns is None else max(0, time.monotonic_ns() - job.due_ns)
        is_stream = self._streamed[job.place.model]
        again = call_again(call, self._target(call.model), self._options.version)
        before = call_again(call, call.model, None)
        other: Reply | None = None
        if baseline is not None and job.number % 2:  # in turns, so that neither is always the first to be asked
            other = send(baseline, before, is_stream)
        reply = send(client, again, is_stream)
        if baseline is not None and other is None:
            other = send(baseline, before, is_stream)
        if other is not None and other.is_unreachable:
            comparison = Comparison(Verdict.UNANSWERED, (f"{_OTHER_SERVER}: {other.error}",))
        else:
            told = recorded_answer(call) if other is None else other_answer(other)
            comparison = _compared(told, reply, self._options)
        self._add(job, call, comparison, _timing(call, reply, other, is_stream), late_ns)
        self._silent = "the server" if reply.is_unreachable else _OTHER_SERVER
        self._unanswered = self._unanswered + 1 if comparison.verdict is Verdict.UNANSWERED else 0
        return self._unanswered < self._options.give_up_after

    def _read(self, place: CallPlace) -> RecordedCall:
        with self._reading:
            return self._recording.call(place)

    def _add(
        self,
        job: Job,
        call: RecordedCall | None,
        comparison: Comparison,
        timing: Timing | None,
        late_ns: int | None,
    ) -> None:
        request_id = "" if call is None else call.request_id
        self._results.add(job.number + 1, job.place.model, request_id, comparison, timing, late_ns)
        self._on_progress(self._results, len(self._places))


def _compared(before: EarlierAnswer, reply: Reply, options: ReplayOptions) -> Comparison:
    """The verdict; an answer that cannot be compared is none."""
    try:
        return compare(before, reply, options.compare)
    except Exception as error:  # its shapes, datatypes and bytes are whatever a server sends
        return Comparison(Verdict.FAILS, (f"the answer cannot be compared: {type(error).__name__}: {error}",))


def _chosen(recording: RecordingReader, options: ReplayOptions) -> list[CallPlace]:
    places = [place for place in recording.contents.places if not options.models or place.model in options.models]
    if not places:
        known = ", ".join(sorted(recording.contents.models)) or "none"
        raise InputError(f"'{recording.path}' has no requests to play back; models in it: {known}")
    for name in (*options.models, *options.renamed):  # a slip of the pen is not to be taken for a model that is as good
        if name not in recording.contents.models:
            raise InputError(
                f"'{recording.path}' has no requests to '{name}'{nearest(name, sorted(recording.contents.models))}"
            )
    return places if options.limit is None else places[: options.limit]


def _timing(call: RecordedCall, reply: Reply, other: Reply | None, is_stream: bool) -> Timing:
    before_ns = call.answer_ns if other is None else other.took_ns
    if not is_stream:
        return Timing(before_ns, reply.took_ns)
    first = call.responses[0].after_ns if call.responses else None
    return Timing(before_ns, reply.took_ns, first if other is None else other.first_ns, reply.first_ns)
