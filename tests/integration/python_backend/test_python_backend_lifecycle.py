"""Loading, failing to load, auto-complete, environments, output and unloading, with real workers."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trireme.config.model_config import ModelConfig
from trireme.core.errors import ServingError

ONE = np.zeros(1, np.float32)


def has_process(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_initialize_is_told_everything_as_text(repository: Any, tell: Any) -> None:
    async def main() -> None:
        async with repository.serve(tell.code, tell.config) as model:
            facts = await tell.facts_of(model)
            args = facts["args"]
            config = json.loads(args.pop("model_config"))
            assert args == {
                "model_instance_kind": "CPU",
                "model_instance_device_id": "0",
                "model_instance_name": "m_0",
                "model_repository": str(repository.root / "m"),
                "model_version": "1",
                "model_name": "m",
            }
            assert config["input"][0]["name"] == "IN"
            assert config["max_batch_size"] == 0
            assert facts["cwd"] == os.getcwd()
            assert not any(path.endswith("backends/python") for path in facts["path"])

    repository.run(main())


def test_instances_are_processes_of_their_own_with_a_share_of_the_cores(repository: Any, tell: Any) -> None:
    config = tell.config + 'instance_group [{ name: "g" count: 3 kind: KIND_CPU }]'

    async def main() -> None:
        async with repository.serve(tell.code, config) as model:
            assert sorted(model.runner.history) == ["attach g_0", "attach g_1", "attach g_2"]
            seen = {}
            instances = list(model.runner.instances)
            for instance in instances:
                model.runner.instances[:] = [instance]
                facts = await tell.facts_of(model)
                seen[facts["args"]["model_instance_name"]] = facts["pid"]
                assert int(facts["threads"]) >= 1
            model.runner.instances[:] = instances
            assert set(seen) == {"g_0", "g_1", "g_2"}
            assert len(set(seen.values())) == 3
        assert not any(has_process(pid) for pid in seen.values())

    repository.run(main())


def test_resize_adds_and_removes_instances_while_others_serve(repository: Any, tell: Any) -> None:
    config = tell.config + 'instance_group [{ name: "g" count: 2 kind: KIND_CPU }]'

    async def main() -> None:
        async with repository.serve(tell.code, config) as model:
            pid = (await tell.facts_of(model))["pid"]

            def with_count(count: int) -> ModelConfig:
                message = type(model.config.message)()
                message.CopyFrom(model.config.message)
                message.instance_group[0].count = count
                return ModelConfig.from_message(message)

            await model.backend.resize(with_count(3))
            assert [instance.name for instance in model.runner.instances] == ["g_0", "g_1", "g_2"]
            await model.backend.resize(with_count(1))
            assert [instance.name for instance in model.runner.instances] == ["g_0"]
            assert (await tell.facts_of(model))["pid"] == pid

    repository.run(main())


def test_instances_that_stay_under_another_group_are_not_started_again(repository: Any, tell: Any) -> None:
    """As Triton, which keeps their names too; by a limit of its own an instance is known by its name."""
    config = tell.config + 'instance_group [{ name: "g" count: 3 kind: KIND_CPU }]'

    async def main() -> None:
        async with repository.serve(tell.code, config) as model:

            async def resize(*groups: tuple[str, int], priority: int = 0) -> list[str]:
                message = type(model.config.message)()
                message.CopyFrom(model.config.message)
                del message.instance_group[:]
                for name, count in groups:
                    group = message.instance_group.add(name=name, count=count, kind=2)
                    if priority:
                        group.rate_limiter.priority = priority
                before = set(model.backend.worker_pids)
                await model.backend.resize(ModelConfig.from_message(message))
                fresh = len(set(model.backend.worker_pids) - before)
                return [str(fresh), *sorted(instance.name for instance in model.runner.instances)]

            assert await resize(("g", 1), ("h", 2)) == ["0", "g_0", "g_1", "g_2"]
            assert await resize(("i", 2)) == ["0", "g_0", "g_1"]
            assert await resize(("i", 3)) == ["1", "g_0", "g_1", "i_2"]
            assert await resize(("g", 2), ("k", 1)) == ["0", "g_0", "g_1", "i_2"]
            assert await resize(("k", 2), priority=2) == ["2", "k_0", "k_1"]

    repository.run(main())


@pytest.mark.parametrize(
    ("code", "texts"),
    [
        (
            "class TritonPythonModel:\n    def initialize(self, args):\n        raise KeyError('TOKEN')\n",
            ["KeyError: 'TOKEN'", "At:", "/m/1/model.py(3): initialize"],
        ),
        ("import nothing_of_that_name\n", ["ModuleNotFoundError: No module named 'nothing_of_that_name'"]),
        ("def broken(:\n", ["SyntaxError"]),
        (
            "import os\nprint('about to leave')\nos._exit(7)\n",
            ["exited with code 7", "about to leave"],
        ),
    ],
    ids=["exception", "import", "syntax", "exit"],
)
def test_a_model_that_cannot_start_says_why_and_leaves_no_process(repository: Any, code: str, texts: list[str]) -> None:
    async def main() -> None:
        with pytest.raises(ServingError) as caught:
            async with repository.serve(code):
                pass
        for text in texts:
            assert text in caught.value.message
        assert children() == before

    before = children()
    repository.run(main())


def children() -> set[str]:
    """The worker processes of this one that are not yet reaped."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
            command = (stat.parent / "cmdline").read_text()
        except OSError:
            continue
        if int(fields[1]) == os.getpid() and (fields[0] == "Z" or "worker_main" in command):
            found.add(stat.parent.name)
    return found


def test_a_load_that_is_given_up_leaves_no_process(repository: Any) -> None:
    code = """
    import time

    class TritonPythonModel:
        def initialize(self, args):
            time.sleep(60)
    """

    async def main() -> None:
        repository.write(code)
        backend, _ = repository.backend()
        message = await backend.complete_config()
        loading = asyncio.ensure_future(backend.start(ModelConfig.from_message(message), object()))
        await asyncio.sleep(0.5)
        assert len(children()) == 1
        loading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await loading
        assert children() == set()

    repository.run(main())


def test_a_missing_or_misnamed_file_is_named(repository: Any) -> None:
    async def main() -> None:
        folder = repository.write("")
        (folder / "1" / "model.py").unlink()
        with pytest.raises(ServingError) as caught:
            await repository.backend()[0].complete_config()
        assert caught.value.message == f"Python model file not found in '{folder / '1' / 'model.py'}'"
        os.mkfifo(folder / "1" / "model.py")
        with pytest.raises(ServingError) as caught:
            await repository.backend()[0].complete_config()
        told = f"Python model file '{folder / '1' / 'model.py'}' cannot be read: it is not a regular file"
        assert caught.value.message == told
        (folder / "config.pbtxt").write_text('backend: "python" default_model_filename: "model.txt"')
        with pytest.raises(ServingError) as caught:
            await repository.backend()[0].complete_config()
        assert caught.value.message == "Model name must end with '.py'. Model name is \"model.txt\"."
        (folder.parent / "other.py").write_text("")
        for outside in ("../../other.py", str(folder.parent / "other.py")):
            (folder / "config.pbtxt").write_text(f'backend: "python" default_model_filename: "{outside}"')
            with pytest.raises(ServingError, match="must stay within the model's folder; with --trusted-model-path"):
                await repository.backend()[0].complete_config()

    repository.run(main())


def test_a_wrong_parameter_is_refused(repository: Any) -> None:
    repository.write(
        "", 'backend: "python" parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value: { string_value: "x" } }'
    )
    with pytest.raises(ServingError, match="Incorrect value for FORCE_CPU_ONLY_INPUT_TENSORS: x'"):
        repository.backend()


AUTO = """
import os
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "IN", "data_type": "TYPE_FP32", "dims": [1]})
        config.add_output({"name": "OUT", "data_type": "TYPE_INT64", "dims": [1]})
        config.set_max_batch_size(0)
        TritonPythonModel.pid = os.getpid()
        return config

    def execute(self, requests):
        out = pb_utils.Tensor("OUT", np.array([os.getpid() == self.pid], np.int64))
        return [pb_utils.InferenceResponse([out]) for r in requests]
"""


def test_auto_complete_fills_the_configuration_in_the_process_that_then_serves(repository: Any) -> None:
    async def main() -> None:
        async with repository.serve(AUTO, 'backend: "python"', is_auto_complete_enabled=True) as model:
            assert list(model.config.inputs) == ["IN"]
            assert model.config.outputs["OUT"].datatype == "INT64"
            assert (await model.infer(ONE))[0] == 1

    repository.run(main())


def test_auto_complete_may_not_change_what_is_the_servers(repository: Any, caplog: pytest.LogCaptureFixture) -> None:
    own = """        config.as_dict().update(name="other", instance_group=[{"count": 3, "kind": "KIND_CPU"}])
        return config"""
    code = AUTO.replace("        return config", own)

    async def main() -> None:
        async with repository.serve(code, 'backend: "python"', is_auto_complete_enabled=True) as model:
            assert model.config.name == "m"
            assert [group.count for group in model.config.message.instance_group] == [1]
            assert list(model.config.inputs) == ["IN"]

    repository.run(main())
    assert [line for line in caplog.messages if "'instance_group', which only its configuration can" in line]


def test_a_failing_auto_complete_fails_the_load(repository: Any) -> None:
    code = """
    class TritonPythonModel:
        @staticmethod
        def auto_complete_config(config):
            raise ValueError("nothing to complete")
    """

    async def main() -> None:
        with pytest.raises(ServingError, match="ValueError: nothing to complete"):
            async with repository.serve(code, is_auto_complete_enabled=True):
                pass
        assert children() == set()

    repository.run(main())


def test_prints_and_logger_lines_appear_in_the_log_at_once(repository: Any, caplog: pytest.LogCaptureFixture) -> None:
    code = """
    import sys
    import numpy as np
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        def initialize(self, args):
            print("hello from", args["model_instance_name"])

        def execute(self, requests):
            print("working", file=sys.stderr)
            pb_utils.Logger.log_warn("careful")
            out = pb_utils.Tensor("OUT", np.zeros((1, 1), np.float32))
            return [pb_utils.InferenceResponse([out]) for r in requests]

        def finalize(self):
            print("goodbye")
    """
    caplog.set_level(logging.INFO, logger="trireme")

    async def main() -> None:
        async with repository.serve(code) as model:
            async with asyncio.timeout(5):
                while "[m_0] hello from m_0" not in caplog.text:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await model.infer(np.zeros((1, 1), np.float32))
            async with asyncio.timeout(5):
                while "[m_0] working" not in caplog.text:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        assert "[m_0] goodbye" in caplog.text
        (warning,) = [record for record in caplog.records if record.getMessage() == "careful"]
        assert (warning.levelno, warning.filename, warning.name) == (logging.WARNING, "model.py", "trireme.model.m")

    repository.run(main())


def test_a_model_that_does_not_finalize_is_ended_by_force(repository: Any) -> None:
    code = """
    import os, signal, time

    class TritonPythonModel:
        def execute(self, requests):
            pass

        def finalize(self):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(60)
    """

    async def main() -> None:
        async with repository.serve(code, backend_config={"python": {"stub-timeout-seconds": "1"}}):
            assert len(children()) == 1
            began = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - began < 8
        assert children() == set()

    repository.run(main())


def test_is_ready_of_the_model_is_asked(repository: Any, tmp_path: Path) -> None:
    code = f"""
    import os

    class TritonPythonModel:
        def execute(self, requests):
            pass

        def is_ready(self):
            return os.path.exists({str(tmp_path / "ready")!r})
    """

    async def main() -> None:
        async with repository.serve(code) as model:
            assert not await model.backend.is_ready()
            (tmp_path / "ready").touch()
            assert all(await asyncio.gather(*(model.backend.is_ready() for _ in range(5))))

    repository.run(main())


def test_a_model_under_debug_keeps_the_terminal(repository: Any, capfd: pytest.CaptureFixture[str]) -> None:
    code = """
    import numpy as np
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        def execute(self, requests):
            print("on the terminal", flush=True)
            out = pb_utils.Tensor("OUT", np.zeros((1, 1), np.float32))
            return [pb_utils.InferenceResponse([out]) for r in requests]
    """

    async def main() -> None:
        async with repository.serve(code, debug_model="m") as model:
            await model.infer(np.zeros((1, 1), np.float32))

    repository.run(main())
    assert "on the terminal" in capfd.readouterr().out
