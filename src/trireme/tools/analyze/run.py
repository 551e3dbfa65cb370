"""A whole analysis: the server opened, models measured and put back, results reported."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType

from trireme.tools.analyze.apply import apply_best
from trireme.tools.analyze.checkpoint import Checkpoint, Findings, fingerprint
from trireme.tools.analyze.configuration.variant_config import is_ensemble, is_language_model
from trireme.tools.analyze.errors import INTERRUPTED, UNMET, ClientError, Interrupted, MeasurementError
from trireme.tools.analyze.measuring.basis import basis_of
from trireme.tools.analyze.measuring.trial_run import LoadedModel, TrialRunner
from trireme.tools.analyze.options import AnalyzeOptions
from trireme.tools.analyze.plan import Search, plan_searches
from trireme.tools.analyze.progress import Progress
from trireme.tools.analyze.ranking import Ranking
from trireme.tools.analyze.report.subject import Subject
from trireme.tools.analyze.report.variant_folders import check_repository, write_variants
from trireme.tools.analyze.report.write import check_folders, check_formats, report
from trireme.tools.analyze.search.brute import brute
from trireme.tools.analyze.search.fit.search import fit
from trireme.tools.analyze.search.parzen import parzen
from trireme.tools.analyze.search.quick import quick
from trireme.tools.analyze.server.control import ModelControl
from trireme.tools.analyze.server.death_watchdog import DeathWatchdog
from trireme.tools.analyze.server.metrics_page import resource_watch
from trireme.tools.analyze.server.resources import ResourceWatch
from trireme.tools.analyze.server.target import Target, open_target
from trireme.tools.analyze.session import Session
from trireme.tools.analyze.signals import Signals, Waits
from trireme.tools.client.errors import AnswerError
from trireme.tools.perf.measure.interruption import Interruption


def analyze(options: AnalyzeOptions) -> int:
    """Measures and reports; the exit code. Raises ClientError where there is nothing to report."""
    check_formats(options.output)
    check_folders(options.output)
    check_repository(options.output, options.repository)
    return _Analysis(options).run()


@dataclass(slots=True)
class _Ended:
    """How the measuring ended."""

    is_interrupted: bool = False
    failure: ClientError | None = None

    @property
    def is_early(self) -> bool:
        return self.is_interrupted or self.failure is not None


class _Analysis:
    """One run of the command."""

    def __init__(self, options: AnalyzeOptions) -> None:
        self._options = options
        self._progress = Progress(options.output)
        self._checkpoint = Checkpoint(options.output.checkpoint_folder)
        self._findings = Findings() if options.ignores_checkpoint else self._checkpoint.read()
        self._interruption = Interruption()
        self._seconds: dict[str, float] = {}

    def run(self) -> int:
        with Signals(self._interruption, self._progress.tell_at_once) as signals, ExitStack() as opened:
            opened.enter_context(self._progress.repeating())
            try:
                return self._run(opened, signals.waiting)
            except Interrupted:
                self._tell_interrupted()
                return INTERRUPTED

    def _run(self, opened: ExitStack, waits: Waits) -> int:
        """Raises Interrupted where there was nothing to measure yet, or no more."""
        self._progress.begin("starting the server" if self._options.place.launch_mode == "local" else "connecting")
        target = opened.enter_context(open_target(self._options, waits))
        retries = self._options.place.max_retries
        control = ModelControl(target.client, target.quick_client, retries, self._progress.tell)
        if target.local_id is None:
            opened.push(partial(_put_back, control))
        with waits():
            searches = plan_searches(self._options, control.own_config)
            self._check_findings(searches, control)
        watchdog = opened.enter_context(DeathWatchdog(lambda: _leave(control, target, searches)))
        session, ended = self._session(target, control, searches, waits), _Ended()
        self._search(session, searches, ended)
        self._progress.begin("putting the models back")
        is_wanted = target.local_id is None or not ended.is_early  # a server of our own ends with the analysis
        problems = control.put_back() if is_wanted else []
        if problems:
            watchdog.leave()
        else:
            watchdog.release()
        self._progress.begin("writing the reports")
        subjects = self._report(searches, session)
        code = self._code(subjects, ended, session, problems)
        if self._options.applies and code == 0:
            code = apply_best(self._options, subjects, session, control, self._progress.conclude)
        return code

    def _check_findings(self, searches: Sequence[Search], control: ModelControl) -> None:
        """What was measured of a model counts as long as its own configuration is the same, and what else it rests
        on."""
        for model in _models_of(searches):
            own, basis = dict(control.own_config(model)), basis_of(self._options, model)
            known = self._findings.configs.get(model)
            if known is not None:
                before = {**self._findings.bases.get(model, {}), "configuration": fingerprint(known)}
                now = {**basis, "configuration": fingerprint(own)}
                changed = [name for name in now if before.get(name) != now[name]]
                if changed:
                    self._progress.tell(
                        f"the {changed[0]} of '{model}' {_has(changed[0])} changed: it is measured anew"
                    )
                    self._findings.forget(model)
            self._findings.configs[model], self._findings.bases[model] = own, basis
        asked = {model.name for search in searches for model in search.models}
        kept = [one for one in self._findings.results if {load.model for load in one.trial.loads} & asked]
        outside = sum(1 for one in kept if not any(search.space.has(one.trial) for search in searches))
        if kept:
            left_out = f"; {outside} of them are outside of what is searched now, and do not count" if outside else ""
            self._progress.tell(
                f"going on from '{self._checkpoint.newest()}', which has {_measurements(len(kept))}{left_out}"
            )

    def _session(self, target: Target, control: ModelControl, searches: Sequence[Search], waits: Waits) -> Session:
        measuring = self._options.measuring
        with waits():
            watch = self._watch(target)
        models = [
            LoadedModel(
                model.name, self._words(target, model.name, model.perf_flags, control), self._is_llm(model.name)
            )
            for search in searches
            for model in search.models
        ]
        progress = self._progress
        runner = TrialRunner(
            target.client, models, measuring, watch, self._interruption, progress.show_state, progress.tell
        )
        return Session(
            control,
            runner,
            self._findings,
            self._checkpoint,
            self._progress,
            waits,
            [name for search in searches for name in search.cpu_only],
        )

    def _watch(self, target: Target) -> ResourceWatch | None:
        """Looks at the accelerators of the server without load first; None where nothing can be seen of it."""
        measuring = self._options.measuring
        watch, process_id = resource_watch(target, measuring.metrics_interval_s, self._progress.tell)
        if watch is None:
            return None
        if process_id is None:
            self._progress.tell("the server's processes cannot be seen from here: memory is that of its whole machine")
        watch.start()
        if watch.sees_devices:
            time.sleep(measuring.idle_s)
        self._findings.idle = watch.stop()
        return watch

    def _is_llm(self, model: str) -> bool:
        return is_language_model(self._findings.configs[model])

    def _words(self, target: Target, model: str, flags: Sequence[str], control: ModelControl) -> tuple[str, ...]:
        """Where the server is, what its models need, and what the user says."""
        config = control.own_config(model)
        words = [*target.load_words(self._is_llm(model)), *flags]
        is_decoupled = bool(config.get("model_transaction_policy", {}).get("decoupled"))
        if is_decoupled and not self._is_llm(model) and "--streaming" not in flags:
            words += ["--async", "--streaming"]
        if self._options.called_models and not is_ensemble(config):
            words += ["--bls-composing-models", ",".join(self._options.called_models)]
        return tuple(words)

    def _search(self, session: Session, searches: Sequence[Search], ended: _Ended) -> None:
        """All of them; what ends one early ends all, with what there is."""
        try:
            for search in searches:
                began = time.monotonic()
                self._progress.tell(
                    f"{search.title}: search '{search.mode}' of {search.space.size()} combinations of configuration "
                    "and load"
                )
                try:
                    self._run_search(session, search)
                finally:
                    self._seconds[search.title] = time.monotonic() - began
        except Interrupted:
            ended.is_interrupted = True
        except ClientError as error:
            ended.failure = error
        self._progress.clear()

    def _run_search(self, session: Session, search: Search) -> None:
        ranking = Ranking(search.models)
        options, top = self._options.search, self._options.output.configs_per_model
        if search.mode == "fit":
            predictions = fit(search.space, session.measure, ranking, self._progress.tell)
            kept = [one for one in self._findings.predictions if one[0].loads[0].model != search.title]
            self._findings.predictions = kept + [(one.trial, dict(one.metrics)) for one in predictions]
            self._checkpoint.write(self._findings)
        elif search.mode == "quick":
            quick(search.space, session.measure, ranking, top)
        elif search.mode == "optuna":
            parzen(search.space, session.measure, ranking, options, top)
        else:
            brute(search.space, session.measure, ranking, options.exits_early)

    def _report(self, searches: Sequence[Search], session: Session) -> list[Subject]:
        output = self._options.output
        subjects = []
        for search in searches:
            # Names and numbers of variants are those of all findings, also of those that no search of now would make.
            inside = replace(
                self._findings, results=[one for one in self._findings.results if search.space.has(one.trial)]
            )
            predicted = [one for one in self._findings.predictions if one[0].loads[0].model == search.title]
            subjects.append(
                Subject(
                    tuple(model.name for model in search.models),
                    search.tuned,
                    inside,
                    Ranking(search.models),
                    output.configs_per_model,
                    frozenset(search.cpu_only),
                    self._seconds.get(search.title, 0.0),
                    search.mode,
                    predicted,
                )
            )
        if any(subject.ranked for subject in subjects):
            written = report(subjects, output, self._options.repository)
            for subject in subjects:
                write_variants(subject, output)
            pages = [path for path in written if path.name.startswith("result_summary")]
            self._progress.tell(
                f"{_measurements(session.count)}; results in {output.export_path}"
                + (f", report {', '.join(map(str, pages))}" if pages else "")
            )
        return subjects

    def _code(self, subjects: Sequence[Subject], ended: _Ended, session: Session, problems: Sequence[str]) -> int:
        """Raises what ended the measuring early, or what could not be put back."""
        told = [*problems, "another process tries for a while to put it back"] if problems else []
        if ended.failure is not None:
            raise type(ended.failure)("\n".join([str(ended.failure), *told]))
        if ended.is_interrupted:
            for sentence in told:
                self._progress.tell(sentence)
            self._tell_interrupted()
            return INTERRUPTED
        if problems:
            raise AnswerError("\n".join(told))
        for subject in subjects:
            if not subject.ranked:
                reason = next(iter(session.failures.values()), "nothing could be measured")
                raise MeasurementError(f"model '{subject.title}' could not be measured: {reason}")
        return 0 if all(subject.is_met for subject in subjects) else UNMET

    def _tell_interrupted(self) -> None:
        self._progress.tell(f"interrupted; the same command goes on from {self._checkpoint.newest() or 'the start'}")


def _put_back(
    control: ModelControl, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
) -> None:
    """At the end of everything, whatever ended it; but whoever wants to leave at once does not wait for it."""
    if kind is not KeyboardInterrupt:
        control.put_back()


def _leave(control: ModelControl, target: Target, searches: Sequence[Search]) -> None:
    """In another process, when this one is gone: every model that may have been touched is put back."""
    if target.local_id is not None:
        target.abandon()
    else:
        control.put_back_late(sorted({name for search in searches for name in search.tuned}))


def _models_of(searches: Sequence[Search]) -> list[str]:
    names = [name for search in searches for name in (*search.tuned, *(model.name for model in search.models))]
    return list(dict.fromkeys(names))


def _has(name: str) -> str:
    return "have" if name.endswith("s") else "has"


def _measurements(count: int) -> str:
    return "1 measurement" if count == 1 else f"{count} measurements"
