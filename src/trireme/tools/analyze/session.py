"""One server, the models on it and what is known of them: measures trials for a search, and remembers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from trireme.tools.analyze.checkpoint import Checkpoint, Findings
from trireme.tools.analyze.configuration.variant_config import is_same, variant_config
from trireme.tools.analyze.errors import ClientError, InputError, MeasurementError
from trireme.tools.analyze.measuring.trial_run import TrialRunner
from trireme.tools.analyze.progress import Progress
from trireme.tools.analyze.search.port import Rank
from trireme.tools.analyze.server.control import ControlRefusedError, ModelControl
from trireme.tools.analyze.signals import Waits
from trireme.tools.analyze.trial import Result, Setting, Trial
from trireme.tools.client.errors import TimedOutError, UnreachableError

_ATTEMPTS = 3


class Session:
    """Measures; raises Interrupted, UnreachableError where the server does not come back, and InputError where models
    cannot be measured as they are."""

    def __init__(
        self,
        control: ModelControl,
        runner: TrialRunner,
        findings: Findings,
        checkpoint: Checkpoint,
        progress: Progress,
        waits: Waits,
        cpu_only: Sequence[str] = (),
    ) -> None:
        self._control = control
        self._runner = runner
        self._findings = findings
        self._checkpoint = checkpoint
        self._progress = progress
        self._waits = waits
        self._cpu_only = set(cpu_only)
        self.failures: dict[Trial, str] = {}
        self._working: set[tuple[str, ...]] = set()
        """Models, as they are loaded together, that could be measured with some configuration."""
        self.count = 0
        """Measurements of this run, without what was remembered."""

    def measure(self, trial: Trial, is_probe: bool = False, again: Rank | None = None) -> Result | None:
        """Remembered, or measured now; None where the configuration or the load does not work. Raises MeasurementError
        where none would."""
        trial = self._known_as(trial)
        known = self._findings.find(trial, is_probe)
        if known is not None:
            self._working.add(_loaded(trial))
        if (known is not None and again is None) or trial in self.failures:
            return known
        title = self._title(trial)
        self._progress.begin(title)
        try:
            with self._waits():
                result = self._measured(trial, is_probe)
        except MeasurementError as error:
            self._progress.tell(f"{title}: {_first_line(error)}")
            if known is None:
                self.failures[trial] = str(error)
                self._check_others(trial, error)
            return known
        self.count += 1
        self._working.add(_loaded(trial))
        self._progress.tell(f"{title}: {_numbers(result)}")
        if known is not None and again is not None and again(known) >= again(result):
            self._findings.add_repeat(known, result)
            return known
        self._findings.add(result)
        self._checkpoint.write(self._findings)
        return result

    def _known_as(self, trial: Trial) -> Trial:
        """With no setting where it changes nothing: the model's own configuration is measured once."""
        settings = []
        for model, setting in trial.settings:
            own = self._findings.configs.get(model, {})
            config = variant_config(own, setting, model in self._cpu_only) if own else {}
            settings.append((model, Setting() if own and is_same(own, config) else setting))
        return replace(trial, settings=tuple(settings))

    def _check_others(self, trial: Trial, error: MeasurementError) -> None:
        """Raises MeasurementError where nothing could be measured yet, and the models as they are fail in the same way:
        no other configuration would mend that."""
        if _loaded(trial) in self._working or _is_default(trial):
            return
        alike = [one for one, why in self.failures.items() if why == str(error) and _loaded(one) == _loaded(trial)]
        if any(map(_is_default, alike)):
            raise MeasurementError(
                f"model '{','.join(_loaded(trial))}' could not be measured, and fails in the same way with another "
                f"configuration: {error}"
            )

    def reload(self, model: str) -> None:
        """As the repository has it now; raises Interrupted, ClientError."""
        with self._waits():
            self._control.reload(model)

    def measure_as_it_is(self, trial: Trial) -> Result:
        """The loads of a trial on the models as they are loaded now; raises MeasurementError, Interrupted."""
        self._progress.begin("as written")
        with self._waits():
            result = self._runner.run(trial, is_probe=False)
        self._progress.tell(f"as written: {_numbers(result)}")
        return result

    def measure_as_searched(self, trial: Trial) -> Result:
        """A trial as the search measured it, loaded by request, which is not remembered; raises MeasurementError,
        Interrupted."""
        self._progress.begin("as searched")
        with self._waits():
            result = self._measured(trial, is_probe=False)
        self._progress.tell(f"as searched, at the same time: {_numbers(result)}")
        return result

    def _measured(self, trial: Trial, is_probe: bool) -> Result:
        """Again where the server went away meanwhile and came back."""
        for attempt in range(_ATTEMPTS):
            try:
                self._configure(trial)
                return self._runner.run(trial, is_probe)
            except (InputError, MeasurementError, UnreachableError) as error:
                if not self._was_lost(trial, error) or attempt == _ATTEMPTS - 1:
                    raise self._judged(trial, error) from None
                self._progress.tell(f"the server went away: {_first_line(error)}")
                self._control.forget()
                self._control.wait_for_server()
        raise MeasurementError("the server went away each time")

    def _judged(self, trial: Trial, error: ClientError) -> ClientError:
        """What fails with the models as they are ends the search, and so does what cannot be sent, where nothing could
        be yet; a configuration that fails is left out. Raises UnreachableError where there is no server any more."""
        if isinstance(error, UnreachableError):
            self._control.forget()
            self._control.wait_for_server()
        if isinstance(error, MeasurementError) or _is_default(trial):
            return error
        if isinstance(error, InputError) and _loaded(trial) not in self._working:
            return error
        return MeasurementError(str(error))

    def _configure(self, trial: Trial) -> None:
        for model, setting in trial.settings:
            try:
                self._control.use(model, setting, model in self._cpu_only and not setting.is_default)
            except (UnreachableError, ControlRefusedError):
                raise
            except ClientError as error:
                if setting.is_default:
                    raise
                raise MeasurementError(f"cannot be loaded: {error}") from None

    def _was_lost(self, trial: Trial, error: ClientError) -> bool:
        """Whether the server is gone, or is another one than before: what was loaded is not there any more, or the
        connection broke while it was being loaded."""
        if isinstance(error, UnreachableError) and not isinstance(error, TimedOutError):
            return True
        try:
            return not all(self._control.is_in_use(model, setting) for model, setting in trial.settings)
        except ClientError:
            return True

    def _title(self, trial: Trial) -> str:
        names = [self._findings.variant_name(model, setting) for model, setting in trial.settings]
        loads = [
            f"concurrency {load.concurrency}" if load.request_rate is None else f"{load.request_rate:g} requests/s"
            for load in trial.loads
        ]
        sizes = {load.batch_size for load in trial.loads} - {1}
        batch = f", batch {max(sizes)}" if sizes else ""
        return f"{' + '.join(names)}, {' + '.join(dict.fromkeys(loads))}{batch}"


def _loaded(trial: Trial) -> tuple[str, ...]:
    return tuple(load.model for load in trial.loads)


def _is_default(trial: Trial) -> bool:
    return all(setting.is_default for _, setting in trial.settings)


def _numbers(result: Result) -> str:
    return "; ".join(_line(one.metrics) for one in result.measured)


def _line(metrics: Mapping[str, float]) -> str:
    parts = [f"{metrics['perf_throughput']:.1f} infer/sec", f"p99 {metrics.get('perf_latency_p99', 0.0):.2f} ms"]
    if "output_token_throughput" in metrics:
        parts.insert(0, f"{metrics['output_token_throughput']:.1f} tokens/sec")
    if "time_to_first_token_p99" in metrics:
        parts.append(f"first token p99 {metrics['time_to_first_token_p99']:.1f} ms")
    return ", ".join(parts)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
