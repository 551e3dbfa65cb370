"""The python backend of one model version: its environment, its instances, and their common fate."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trireme.backends.model_paths import checked_path
from trireme.backends.python.environment import interpreter as environment
from trireme.backends.python.host.instance_devices import InstanceDevices
from trireme.backends.python.host.quarantine import Quarantine
from trireme.backends.python.host.refusing_instance import RefusingInstance
from trireme.backends.python.host.session import WorkerSession
from trireme.backends.python.host.supervisor import Supervisor
from trireme.backends.python.host.worker_recipe import WorkerRecipe, current_verbose_level, model_file_name
from trireme.backends.python.misspelt_parameters import misspelt_parameters
from trireme.backends.python.options import SETTINGS_VARIABLE, ModelParameters, PythonOptions
from trireme.backends.python.placement import Placement, placements_of
from trireme.backends.python.process.confined_variables import confined_variables
from trireme.backends.python.process.variables import core_count, thread_share, worker_environment
from trireme.backends.python.process.worker_process import Launch
from trireme.backends.python.worker_device import CPU
from trireme.backends.services import BackendServices, ModelSource
from trireme.config.compat_words import words_of_model
from trireme.config.completion import merge_completed
from trireme.config.message import copy_of
from trireme.config.model_config import ModelConfig
from trireme.config.normalise import normalise_instance_groups
from trireme.config.text.json_form import to_json
from trireme.core.errors import InternalError, InvalidArgumentError
from trireme.core.ports import BatchRunner
from trireme.devices.environment import DEVICE_VARIABLE
from trireme.machine.regular_files import check_regular

log = logging.getLogger(__name__)

IDLE_POLL_S = 0.02

EndInstance = Callable[[Supervisor], Coroutine[Any, Any, None]]


class PythonBackend:
    """Implements `core.ports.Backend` with one worker process per instance. The code that these run is the model's
    own, or where a python-based backend runs the model, the `runtime_file` of that."""

    def __init__(self, source: ModelSource, services: BackendServices, runtime_file: Path | None = None) -> None:
        settings = services.backend_config
        self._source = source
        self._services = services
        self._runtime_file = None if runtime_file is None else runtime_file.absolute()
        self._options = PythonOptions.from_backend_config({**settings.get("", {}), **settings.get("python", {})})
        parameters = {key: value.string_value for key, value in source.config.parameters.items()}
        self._parameters = ModelParameters.from_parameters(parameters)
        if runtime_file is None:  # else that one tells what it does not know
            for sentence in misspelt_parameters(parameters):
                log.warning("model '%s': %s", source.name, sentence)
        self._is_debug = services.debug_model == source.name
        self._quarantine = Quarantine(source.name)
        own_words = words_of_model(source.name, parameters)
        words = services.compat if own_words is None else own_words
        self._devices = InstanceDevices(services.devices, source.name, source.version, words)
        self._launch: Launch | None = None
        self._thread_share: int | None = None  # None where the user has set the number of threads
        self._first: WorkerSession | None = None  # begun by complete_config, for the first instance
        self._supervisors: list[Supervisor] = []
        self._leaving: dict[Supervisor, asyncio.Task[None]] = {}  # no longer configured, with work of their own left
        self._runner: BatchRunner | None = None
        self._refusal: RefusingInstance | None = None

    async def complete_config(self) -> Any:
        """As the port says. The process that completes the configuration becomes the first instance's."""
        self._check_files()
        self._launch = await self._prepare_launch()
        if not self._services.is_auto_complete_enabled:
            return self._source.config
        expected = self._expected_config()
        wanted = self._wanted(expected)
        await self._devices.take(expected, wanted, wanted[:1])
        recipe = self._recipe(wanted[0], ModelConfig.from_message(self._source.config))
        recipe = replace(recipe, placement=replace(wanted[0], name=f"{self._source.name}_0"))
        session = await recipe.open_session()
        try:
            completed = await session.auto_complete(recipe.settings(), to_json(self._source.config))
            message = merge_completed(self._source.config, completed)
        except BaseException:
            await session.discard()
            raise
        self._first = session
        return message

    async def start(self, config: ModelConfig, runner: BatchRunner) -> None:
        if self._launch is None:
            self._check_files()
            self._launch = await self._prepare_launch()
        wanted = self._wanted(config)
        await self._devices.take(config, wanted, wanted)
        self._runner = runner
        level = current_verbose_level(self._services)
        self._refusal = RefusingInstance(self._source.name, runner)
        first, self._first = self._first, None
        supervisors = [self._supervise(placement, config) for placement in wanted]
        await self._start_all(supervisors, first)
        self._supervisors = supervisors
        if current_verbose_level(self._services) != level:  # changed while the models came up, and nobody told them
            self.set_verbose_level(current_verbose_level(self._services))
        for supervisor in supervisors:
            self._share_cores(supervisor)
            supervisor.attach()

    @property
    def supervisors(self) -> Sequence[Supervisor]:
        """The instances."""
        return self._supervisors

    @property
    def quarantine(self) -> Quarantine:
        return self._quarantine

    @property
    def worker_pids(self) -> list[int]:
        """The processes that run this model now."""
        return [pid for supervisor in self._supervisors if (pid := supervisor.pid) is not None]

    @property
    def devices(self) -> tuple[str, ...]:
        """Those that the workers say they compute on, each once; none where they do not say."""
        return tuple(dict.fromkeys(device for supervisor in self._supervisors for device in supervisor.devices))

    async def stop(self) -> None:
        await asyncio.gather(*(supervisor.take_back() for supervisor in [*self._supervisors, *self._leaving]))
        await self._end(Supervisor.stop)

    async def abandon(self) -> None:
        await self._end(Supervisor.abandon)

    async def _end(self, end: EndInstance) -> None:
        if self._refusal is not None:
            self._refusal.end()
        first, self._first = self._first, None
        if first is not None:
            await first.discard()
        supervisors, self._supervisors = self._supervisors, []
        leaving, self._leaving = self._leaving, {}
        for drain in leaving.values():
            drain.cancel()
        for supervisor in [*supervisors, *leaving]:
            self._leave_cores(supervisor)
        await _end_all([*supervisors, *leaving], end)
        self._devices.release_all()

    async def is_ready(self) -> bool:
        answers = await asyncio.gather(*(supervisor.is_ready() for supervisor in self._supervisors))
        return bool(answers) and all(answers)

    async def resize(self, config: ModelConfig) -> None:
        wanted = self._wanted(config)
        kept = [supervisor for supervisor in self._supervisors if supervisor.placement in wanted]
        gone = [supervisor for supervisor in self._supervisors if supervisor.placement not in wanted]
        present = {supervisor.placement for supervisor in kept}
        fresh: list[Placement] = []
        for placement in wanted:
            if placement in present:
                continue
            heir = next((supervisor for supervisor in gone if self._can_stay_for(supervisor, placement, config)), None)
            if heir is None:
                fresh.append(placement)
            else:
                gone.remove(heir)
                kept.append(heir)
        try:
            await self._devices.take(config, wanted, fresh)
            added = [self._supervise(placement, config) for placement in fresh]
            await self._start_all(added, None)
        except BaseException:
            self._devices.release(fresh)
            raise
        self._supervisors = kept + added
        for supervisor in added:
            self._share_cores(supervisor)
            supervisor.attach()
        leaving = [self._retire(supervisor) for supervisor in gone]
        if leaving and config.sequence_batching is None:  # sequences may go on for long, and nobody waits for their end
            await asyncio.wait(leaving)

    def _can_stay_for(self, supervisor: Supervisor, placement: Placement, config: ModelConfig) -> bool:
        """Whether an instance whose place is no longer configured is as good as a new one in this place. Its name is
        another, by which limits are known, and devices that only one instance can have."""
        old = supervisor.placement
        if replace(old, name=placement.name) != placement or not (placement.kind == "GPU" or self._is_on_cpu(old)):
            return False
        return not any(group.HasField("rate_limiter") for group in config.message.instance_group)

    @property
    def failure(self) -> str | None:
        """Why an instance has no worker; None where all is well."""
        return next((supervisor.failure for supervisor in self._supervisors if supervisor.failure), None)

    @property
    def has_worker(self) -> bool:
        """Whether an instance is left that can execute."""
        return any(supervisor.is_alive for supervisor in self._supervisors)

    def set_verbose_level(self, level: int) -> None:
        """Which of the models' log lines are wanted from now on."""
        for supervisor in self._supervisors:
            supervisor.set_verbose_level(level)

    def _retire(self, supervisor: Supervisor) -> asyncio.Task[None]:
        """Begins to end an instance that is no longer configured, once it has finished what it began."""
        task = asyncio.ensure_future(self._leave(supervisor))
        self._leaving[supervisor] = task
        return task

    async def _leave(self, supervisor: Supervisor) -> None:
        assert self._runner is not None
        await supervisor.take_back()
        await self._runner.drain(supervisor.instance)
        supervisor.detach()
        # Polled, so that the path of every batch has no event to set.
        while not supervisor.instance.is_idle:  # noqa: ASYNC110
            await asyncio.sleep(IDLE_POLL_S)
        del self._leaving[supervisor]
        self._leave_cores(supervisor)
        await supervisor.stop()
        if all(present.placement != supervisor.placement for present in self._supervisors):
            self._devices.release([supervisor.placement])

    def _share_cores(self, supervisor: Supervisor) -> None:
        """Lets an instance on the processor have as many threads as others that are busy leave it."""
        threads, start_share = self._services.threads, self._thread_share
        if threads is None or start_share is None or not self._is_on_cpu(supervisor.placement):
            return
        if all(device == CPU for device in supervisor.devices):
            threads.join(supervisor.instance, start_share, lambda: supervisor.pid)

    def _leave_cores(self, supervisor: Supervisor) -> None:
        if self._services.threads is not None:
            self._services.threads.leave(supervisor.instance)

    def _is_on_cpu(self, placement: Placement) -> bool:
        """Not so of one that chooses its devices itself, which nobody knows."""
        return placement.kind != "MODEL" and self._devices.variables(placement, {})[DEVICE_VARIABLE] == CPU

    def _check_files(self) -> None:
        """Also for the worker of a python-based backend, which reads the file that the configuration names."""
        config = self._source.config
        code = config.runtime if config.runtime.endswith(".py") else ""
        for what, name in (("default_model_filename", config.default_model_filename), ("runtime", code)):
            if name:
                self._checked(what, name, self._source.version_dir)
        if self._runtime_file is not None:
            _check_code(self._runtime_file)
            return
        name = model_file_name(self._source)
        if not name.endswith(".py"):
            raise InvalidArgumentError(f"Model name must end with '.py'. Model name is \"{name}\".")
        _check_code(Path(os.path.normpath(self._source.version_dir / name)))

    def _checked(self, what: str, text: str, base: Path) -> Path:
        return checked_path(what, text, base, self._source.model_dir, self._services.trusted_paths)

    def _environment_path(self) -> Path | None:
        """Where the parameter EXECUTION_ENV_PATH leads; None where there is none."""
        text = self._parameters.execution_env_path
        if not text:
            return None
        base = Path.cwd()
        if text.startswith(environment.MODEL_DIRECTORY):
            base, text = self._source.model_dir, "." + text.removeprefix(environment.MODEL_DIRECTORY)
        return self._checked("EXECUTION_ENV_PATH", text, base)

    async def _prepare_launch(self) -> Launch:
        source = self._source
        interpreter = await environment.prepare(self._environment_path(), source.model_dir, source.name)
        count = len(self._wanted(self._expected_config()))
        variables = {**worker_environment(os.environ, count, self._devices.compat), **interpreter.variables}
        self._thread_share = thread_share({**os.environ, **interpreter.variables}, count)
        if self._runtime_file is not None:
            given = self._services.backend_config
            merged = {**given.get("", {}), **given.get(source.config.backend, {})}
            variables[SETTINGS_VARIABLE] = json.dumps(merged)
        variables |= confined_variables(self._services.worker_limits, variables)
        return Launch(
            source.name,
            interpreter.python,
            variables,
            inherits_terminal=self._is_debug,
            fork_server=self._services.fork_server,
        )

    def _expected_config(self) -> ModelConfig:
        """With the instances that there will be, where the configuration does not say."""
        config = copy_of(self._source.config)
        normalise_instance_groups(config, self._devices.gpu_count)
        return ModelConfig.from_message(config)

    def _wanted(self, config: ModelConfig) -> list[Placement]:
        placements = placements_of(config)
        if self._is_debug and len(placements) > 1:
            log.warning("model '%s' is being debugged and gets one instance", config.name)
            return placements[:1]
        return placements

    def _supervise(self, placement: Placement, config: ModelConfig) -> Supervisor:
        assert self._runner is not None
        return Supervisor(self._recipe(placement, config), self._runner, self._quarantine, self._on_change)

    def _recipe(self, placement: Placement, config: ModelConfig) -> WorkerRecipe:
        """For an instance that has its device."""
        assert self._launch is not None
        environment = self._launch.environment
        variables = {**environment, **self._devices.variables(placement, environment)}
        return WorkerRecipe(
            self._source,
            config,
            placement,
            replace(self._launch, environment=variables),
            self._services,
            self._options,
            self._parameters,
            self._runtime_file,
        )

    async def _start_all(self, supervisors: list[Supervisor], first: WorkerSession | None) -> None:
        """Starts as many at a time as there are cores; where one fails, ends all and raises its error."""
        limit = asyncio.Semaphore(core_count())

        async def start(supervisor: Supervisor, session: WorkerSession | None) -> None:
            async with limit:
                await supervisor.start(session)

        tasks = [
            asyncio.ensure_future(start(supervisor, first if index == 0 else None))
            for index, supervisor in enumerate(supervisors)
        ]
        try:
            await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await _end_all(supervisors, Supervisor.stop)
            if first is not None:
                await first.discard()
            raise

    def _on_change(self) -> None:
        """A worker came or could not come: refuse requests while none can be served, instead of letting them wait."""
        if self._refusal is None:
            return
        down = [supervisor for supervisor in self._supervisors if not supervisor.is_alive]
        if len(down) == len(self._supervisors) and all(supervisor.is_failing for supervisor in down):
            self._refusal.begin(down[0].failure or "")
        else:
            self._refusal.end()


async def _end_all(supervisors: Iterable[Supervisor], end: EndInstance) -> None:
    await asyncio.gather(*(end(supervisor) for supervisor in supervisors), return_exceptions=True)


def _check_code(path: Path) -> None:
    try:
        check_regular(path)
    except (FileNotFoundError, NotADirectoryError):
        raise InternalError(f"Python model file not found in '{path}'") from None
    except OSError as error:
        raise InternalError(f"Python model file '{path}' cannot be read: {error.strerror}") from None
