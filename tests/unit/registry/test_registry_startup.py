"""What the start loads, what the report says, and that a broken model stays alone with it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from trireme.core.load_failure import LoadFailure


def test_mode_none_loads_every_model_and_reports_sorted_rows(world: Any) -> None:
    async def scenario() -> None:
        world.add("zebra")
        world.add("ant")
        registry = world.server().registry
        report = await registry.start()
        assert report.is_ok
        assert report.rows == (("ant", "1", "READY"), ("zebra", "1", "READY"))

    asyncio.run(scenario())


def test_empty_repository_is_fine(world: Any) -> None:
    report = asyncio.run(world.server().registry.start())
    assert report.is_ok
    assert report.rows == ()


def test_missing_repository_is_an_error(world: Any) -> None:
    server = world.server(repositories=(world.root / "nowhere",))
    error = asyncio.run(world.refused_later(server.registry.start()))
    assert error.message.startswith("repository path is not a valid directory")


def test_broken_model_does_not_take_others_down(world: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        world.add("good")
        world.add("bad", code="fail ValueError: boom")
        server = world.server()
        report = await server.registry.start()
        assert report.rows == (("bad", "1", "UNAVAILABLE: Internal: ValueError: boom"), ("good", "1", "READY"))
        assert report.failures == (LoadFailure("bad", world.repository / "bad", "Internal: ValueError: boom"),)
        assert not report.is_ok
        assert (await world.infer(server, "good")).error is None

    caplog.set_level(logging.INFO, "trireme")
    asyncio.run(scenario())
    assert "loading: good:1" in caplog.messages
    assert "successfully loaded 'good'" in caplog.messages
    assert "failed to load 'bad' version 1: Internal: ValueError: boom" in caplog.messages
    assert "failed to load 'bad'" in caplog.messages


def test_report_says_why_a_named_model_could_not_be_read(world: Any) -> None:
    async def scenario() -> None:
        world.add("bad", "this is no configuration")
        report = await world.server(control_mode="explicit", startup_models=("bad",)).registry.start()
        (failure,) = report.failures
        assert failure.name == "bad"
        assert "1:1: ModelConfig has no field named 'this'" in failure.text

    asyncio.run(scenario())


def test_cause_is_the_first_line_of_the_version_that_failed(world: Any) -> None:
    async def scenario() -> None:
        folder = world.add("two", versions=(1, 2))
        with (folder / "config.pbtxt").open("a") as file:
            file.write("version_policy { all {} }")
        (folder / "1" / "model.py").write_text("fail one reason")
        report = await world.server().registry.start()
        assert [(failure.name, failure.cause) for failure in report.failures] == [("two", "Internal: one reason")]

    asyncio.run(scenario())


def test_what_is_told_of_an_unreadable_config_is_no_longer_than_somebody_reads(world: Any) -> None:
    async def scenario() -> None:
        world.add("garbled", config=f"{'z' * 300_000}: 3")
        server = world.server()
        await server.registry.start()
        ((_, _, _, reason),) = world.states(server)
        assert "zzz" in reason
        assert len(reason) < 1100

    asyncio.run(scenario())


def test_unreadable_config_is_not_in_the_table_but_fails_the_start(
    world: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        world.add("good")
        folder = world.add("garbled", config="nonsense: 3")
        server = world.server()
        report = await server.registry.start()
        assert report.rows == (("good", "1", "READY"),)
        (failure,) = report.failures
        assert (failure.name, failure.folder) == ("garbled", folder)
        assert failure.text.startswith(f"failed to read text proto from {folder}")
        assert ("garbled", "", "", failure.text) in world.states(server)
        assert f"Poll failed for model directory 'garbled': failed to read text proto from {folder}" in caplog.text

    asyncio.run(scenario())


def test_model_without_versions_is_shown_as_not_loaded(world: Any) -> None:
    async def scenario() -> None:
        world.add("empty", versions=())
        report = await world.server().registry.start()
        assert report.rows == (("empty", "-", "Not loaded: No model version was found"),)
        text = "at least one version must be available under the version policy of model 'empty'"
        assert report.failures == (LoadFailure("empty", world.repository / "empty", text),)
        assert not report.is_ok

    asyncio.run(scenario())


def test_file_that_belongs_into_a_version_is_told_where(world: Any) -> None:
    folder = world.add("flat", versions=())
    (folder / "model.py").write_text("")
    report = asyncio.run(world.server().registry.start())
    (failure,) = report.failures
    assert failure.text == (
        "at least one version must be available under the version policy of model 'flat': 'model.py' belongs into a "
        f"folder named by the version: move it to '{folder / '1' / 'model.py'}'"
    )


def test_explicit_mode_loads_only_the_names_given(world: Any) -> None:
    async def scenario() -> None:
        world.add("one")
        world.add("two")
        server = world.server(control_mode="explicit", startup_models=("two",))
        report = await server.registry.start()
        assert report.is_ok
        assert world.states(server) == [("one", "", "", ""), ("two", "1", "READY", "")]

    asyncio.run(scenario())


def test_explicit_mode_without_names_loads_nothing(world: Any) -> None:
    async def scenario() -> None:
        world.add("one")
        server = world.server(control_mode="explicit")
        assert (await server.registry.start()).is_ok
        assert world.states(server) == [("one", "", "", "")]

    asyncio.run(scenario())


def test_explicit_mode_with_a_star_loads_everything(world: Any) -> None:
    async def scenario() -> None:
        world.add("one")
        world.add("two")
        server = world.server(control_mode="explicit", startup_models=("*",))
        report = await server.registry.start()
        assert [row[0] for row in report.rows] == ["one", "two"]

    asyncio.run(scenario())


def test_missing_startup_model_fails_the_start(world: Any, caplog: pytest.LogCaptureFixture) -> None:
    server = world.server(control_mode="explicit", startup_models=("nothere",))
    report = asyncio.run(server.registry.start())
    assert [(failure.name, failure.folder) for failure in report.failures] == [("nothere", None)]
    assert "failed to poll model 'nothere': model not found in any model repository." in caplog.messages


def test_no_more_versions_load_at_once_than_allowed(world: Any) -> None:
    async def scenario() -> None:
        for index in range(9):
            world.add(f"model{index}", code="wait")
        server = world.server(load_concurrency=3)
        start = asyncio.create_task(server.registry.start())
        await world.settle(lambda: world.backends.loading == 3)
        for _ in range(20):
            await asyncio.sleep(0)
        assert world.backends.loading == 3
        world.backends.gate.set()
        assert (await start).is_ok
        assert world.backends.most_loading == 3

    asyncio.run(scenario())


def test_a_failing_version_is_tried_again_as_often_as_asked(world: Any) -> None:
    async def scenario() -> None:
        world.add("bad", code="fail boom")
        await world.server(load_retry_count=2).registry.start()
        assert len(world.backends.made) == 3

    asyncio.run(scenario())


def test_same_name_in_two_repositories_is_not_loaded(world: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        other = world.root / "other"
        world.add("twice")
        world.add("twice", repository=other)
        world.add("once", repository=other)
        server = world.server(repositories=(world.repository, other))
        report = await server.registry.start()
        assert report.rows == (("once", "1", "READY"),)
        assert [failure.name for failure in report.failures] == ["twice"]
        reason = "model appears in two or more repositories"
        assert world.states(server) == [("once", "1", "READY", ""), ("twice", "", "UNAVAILABLE", reason)]
        assert [entry.name for entry in server.registry.index(True, server.registry.scan())] == ["once"]

    asyncio.run(scenario())
    assert "failed to poll model 'twice': not unique across all model repositories" in caplog.messages


def test_files_and_hidden_folders_in_the_repository_are_no_models(world: Any) -> None:
    (world.repository / ".git").mkdir()
    (world.repository / "README.txt").write_text("hello")
    report = asyncio.run(world.server().registry.start())
    assert report.is_ok
    assert report.rows == ()


def test_unreadable_model_folder_is_a_clear_failure(world: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        world.add("good")
        folder = world.add("locked")
        config = folder / "config.pbtxt"
        config.unlink()
        config.mkdir()  # a folder where a file belongs: reading it is an OSError for root, too
        report = await world.server().registry.start()
        assert "locked" in [failure.name for failure in report.failures]
        assert ("good", "1", "READY") in report.rows

    asyncio.run(scenario())
    assert "Poll failed for model directory 'locked'" in caplog.text


def test_start_up_model_that_is_not_there_is_told_with_what_was_meant(
    world: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        world.add("resnet")
        server = world.server(control_mode="explicit", startup_models=("resent", "zzz"))
        report = await server.registry.start()
        absent = "there is no folder of this name in the model repository"
        assert {failure.name: failure.text for failure in report.failures} == {
            "resent": f"{absent}, did you mean 'resnet'?",
            "zzz": absent,
        }

    asyncio.run(scenario())
    assert "failed to load 'resent': there is no folder of this name in the model repository" in caplog.text


def test_model_without_inputs_and_outputs_is_warned_of(world: Any, caplog: pytest.LogCaptureFixture) -> None:
    world.add("whole")
    folder = world.add("bare", config='backend: "python"')
    report = asyncio.run(world.server().registry.start())
    assert report.is_ok
    told = [message for message in caplog.messages if "neither inputs nor outputs" in message]
    assert told == [
        f"'bare' has neither inputs nor outputs: write them into {folder / 'config.pbtxt'}, or add them in "
        "auto_complete_config of its model.py"
    ]


def test_tensor_that_is_declared_twice_is_warned_of(world: Any, caplog: pytest.LogCaptureFixture) -> None:
    once = '{ name: "x" data_type: TYPE_FP32 dims: [ 4 ] }'
    world.add("once", config=f'backend: "python" input [ {once} ] output [ {once} ]')
    world.add("twice", config=f'backend: "python" input [ {once}, {once} ] output [ {once} ]')
    report = asyncio.run(world.server().registry.start())
    assert report.is_ok
    told = [message for message in caplog.messages if "more than once" in message]
    assert told == [
        "model input 'x' is declared more than once for twice: input[0] has that name too; rename or remove one of "
        "them, of which only the last counts; Triton answers no request to such a model"
    ]
