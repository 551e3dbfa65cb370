"""Every page of the documentation, followed word by word: commands, snippets, outputs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from forked_commands import fresh_interpreters
from page_blocks import blocks_of
from page_run import ROOT, PageRun, command_of, same_numbers, soon_steady
from page_setups import SETUPS, Setup

PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("examples/*/README.md"))]
BLOCKS = {str(page.relative_to(ROOT)): blocks_of(page, ROOT) for page in PAGES}
MOST_LEFT_OUT = 4
"""A page that needs what no test has may say so; the sum of them is watched."""
RUNNABLE = ("sh", "python", "text", "pbtxt", "toml", "json")


@pytest.fixture(scope="module")
def example_ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    """One server with the example models, for the pages that ask it and start none themselves."""
    run = PageRun(tmp_path_factory.mktemp("examples"), {})
    run.start_server("trireme serve examples/model_repository --allow-client-shm=true")
    yield run.ports
    run.stop()


@pytest.mark.timeout(600)  # a page may start several servers, and some of them import a framework
@pytest.mark.parametrize("page", [name for name, blocks in BLOCKS.items() if blocks])
def test_page_does_what_it_says(page: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    setup = SETUPS.get(page, Setup())
    ports = request.getfixturevalue("example_ports") if setup.asks_examples else None
    start = fresh_interpreters() if page == "README.md" else nullcontext()  # what everybody types first, from scratch
    with start, setup.surroundings(tmp_path) as variables:
        run = PageRun(tmp_path, variables, ports)
        try:
            setup.prepare(run)
            blocks = BLOCKS[page]
            for block, below in zip(blocks, [*blocks[1:], None], strict=True):
                run.follow(block, below)
        finally:
            run.end()


def test_blocks_that_are_not_run_say_why(capsys: pytest.CaptureFixture[str]) -> None:
    every = [block for blocks in BLOCKS.values() for block in blocks]
    left_out = [block for block in every if block.reason is not None]
    with capsys.disabled():
        print(f"\n{len(every) - len(left_out)} blocks of {len(every)} are run or compared; not run:")
        for block in left_out:
            print(f"  {block.where}: {block.reason}")
        for block in every:
            if block.missing:
                print(f"  {block.where}: not on this machine: {', '.join(block.missing)}")
    assert all(block.reason for block in left_out)
    assert len(left_out) <= MOST_LEFT_OUT


def test_every_block_has_a_language() -> None:
    unknown = [block.where for blocks in BLOCKS.values() for block in blocks if block.language not in RUNNABLE]
    assert unknown == []


def test_only_what_needs_no_shell_runs_without_one() -> None:
    program = Path(sys.executable).with_name("trireme")
    found = command_of("A=1 HF_HOME=/a/b trireme serve 'my models' \\\n  --http-port=1")
    assert found == ([str(program), "serve", "my models", "--http-port=1"], {"A": "1", "HF_HOME": "/a/b"})
    assert command_of('trireme infer a --slo "p99<500ms" --load \'*\'  # of "b" & $c') == (
        [str(program), "infer", "a", "--slo", "p99<500ms", "--load", "*"],
        {},
    )
    assert command_of("trireme infer a#b '# c'") is None
    assert command_of("trireme infer '# c'") == ([str(program), "infer", "# c"], {})
    python = Path(sys.executable).with_name("python3")
    assert command_of("python3 a/b.py") == ([str(python), "a/b.py"], {})
    for line in (
        "python -m pytest",
        "python3 - <<END",
        "trireme serve $PWD",
        "trireme infer a < b",
        'trireme infer "$a"',
        'trireme infer "a" > "b"',
        "trireme version && ls",
        "trireme run *.py",
        "ls trireme",
    ):
        assert command_of(line) is None


def test_comments_above_a_block_say_what_it_needs_and_how_it_is_compared(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(
        "<!-- needs: redis-serf, sys, sh -->\n```sh\ntalk\n```\n\n"
        "<!-- numbers differ -->\n```text\n> Hi\nHello  12.5\n```\n"
    )
    command, conversation = blocks_of(tmp_path / "page.md", tmp_path)
    assert command.missing == ["redis-serf"]
    assert conversation.typed == "Hi\n"
    assert (conversation.follows, conversation.has_other_numbers, command.has_other_numbers) == (True, True, False)
    assert same_numbers("Hello  12.5 ━━━") == same_numbers("Hello     7 ━━━━━")
    assert same_numbers("Hello 12.5") != same_numbers("Hallo 12.5")


def test_load_tests_of_pages_do_not_wait_for_a_quiet_machine() -> None:
    steady, soon = ["-s", "9999"], ["-p", "200"]
    for is_printed_below in (True, False):
        without = soon_steady(["bin/perf_analyzer", "-m", "a"], is_printed_below=is_printed_below)
        assert without[3:] == [*steady, *soon]
    with_window = ["bin/trireme", "perf", "-m", "a", "-p", "9"]
    assert soon_steady(with_window, is_printed_below=True) == [*with_window, *steady]
    assert soon_steady(with_window) == [*with_window, *steady, *soon]
    short = ["--measurement-interval", "200", "--duration-seconds", "0.1"]
    assert soon_steady(["bin/trireme", "analyze", "a"])[3:] == short
    assert soon_steady(["bin/trireme", "analyze", "profile", "-f", "a"])[5:] == short
    for words in ("trireme analyze analyze a", "trireme analyze report a"):
        assert soon_steady(words.split()) == words.split()
    assert soon_steady(["python3", "triton-http-client.py", "--benchmark", "--limit", "5"])[5:] == ["--limit", "1"]
    for words in ("trireme perf llm -m a", "trireme perf --request-count 9", "trireme models index", "bash -c perf"):
        assert soon_steady(words.split()) == words.split()
