"""The documentation against the code: generated pages, links, paths, commands and examples."""

from __future__ import annotations

import importlib
import importlib.util
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from trireme.cli import main as trireme_command
from trireme.cli.client import infer, models
from trireme.cli.curl.lines import curl_lines
from trireme.cli.recording import record, replay
from trireme.cli.serve import greeting_lines
from trireme.config.model_config import ModelConfig
from trireme.config.options.deprecated import DEPRECATED_OPTIONS
from trireme.config.options.option import OptionError
from trireme.config.options.parser import parse_options
from trireme.config.options.server import ServerOptions, server_options
from trireme.proto import model_config_pb2
from trireme.tools.analyze.command import make_parser as make_analyze_parser
from trireme.tools.build.arguments import make_parser as make_build_parser
from trireme.tools.perf.command_line.reading import make_parser
from trireme.tools.perf.llm.flags import make_parser as make_llm_parser

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
EXAMPLES = sorted(ROOT.glob("examples/**/*.md"))


def generator(name: str = "generate") -> Any:
    spec = importlib.util.spec_from_file_location(f"docs_{name}", ROOT / f"docs/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shell_lines(page: Path) -> list[str]:
    """The commands of a page's `sh` blocks, without what is fed to them and without comments."""
    lines = []
    for block in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        without_input = re.sub(r"<<'END'\n.*?\nEND", "", block, flags=re.DOTALL)
        lines += [line for line in without_input.splitlines() if line.strip()]
    return lines


@pytest.mark.parametrize("name", ["reference/flags.md", "reference/config-fields.md"])
def test_reference_is_what_the_code_says(name: str) -> None:
    written = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert written == generator().PAGES[name](), "run: make reference"


def test_types_of_the_configuration_are_those_of_its_messages() -> None:
    module = generator("generate_stubs")
    assert module.STUB.read_text(encoding="utf-8") == module.stub(), "run: make reference"


def test_every_part_of_the_configuration_has_a_sentence() -> None:
    module = generator()
    sentences = {path for table in module.config_sentences().values() for path in table}
    paths = list(module.config_paths())
    assert sentences <= set(paths), "these fields do not exist"
    for path in paths:
        ancestors = [path.rsplit(".", cut)[0] for cut in range(path.count(".") + 1)]
        parts = [other for other in paths if other.startswith(path + ".")]
        assert sentences.intersection(ancestors) or sentences.intersection(parts), path


def test_every_family_of_metrics_of_our_own_is_on_a_page() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "src/trireme").rglob("*.py")]
    families = {name for text in sources if ".family(" in text for name in re.findall(r'"(trireme_[a-z_]+)"', text)}
    assert len(families) > 20
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert sorted(name for name in families if f"`{name}`" not in text) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_of_the_repository_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"\b((?:examples|docs|tests|benchmarks)/[\w./-]*\w)", text)
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_files_of_the_recipes_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").replace("NAME", "openvino")
    named = re.findall(r"`([a-z_]+/[\w/*.-]*)`", text)
    assert len(named) > 20
    assert [path for path in named if not [*ROOT.glob(path), *(ROOT / "src/trireme").glob(path)]] == []


@pytest.mark.parametrize("page", [*PAGES, *EXAMPLES], ids=lambda page: str(page.relative_to(ROOT)))
def test_install_commands_need_no_published_package(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"pip install[^\n`]*trireme.*", text) == []
    assert re.findall(r"pip install\s+[\"']?trireme.*", text) == [], "in a sentence that goes on in the next line"


@pytest.mark.parametrize("page", [*PAGES, *EXAMPLES], ids=lambda page: str(page.relative_to(ROOT)))
def test_extras_are_installed_in_the_versions_that_are_tested(page: Path) -> None:
    if page.parent.name in ("gaudi", "inferentia"):
        pytest.skip("the device's own PyTorch is there, and must stay")
    installs = [line for line in shell_lines(page) if line.startswith("pip install") and ".[" in line]
    assert [line for line in installs if "-c constraints.txt " not in line] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = [line.split()[1] for line in shell_lines(page) if line.startswith("make ")]
    assert [name for name in named if not name.startswith(".venv/") and name not in targets] == []


def test_programs_that_measure_know_the_flags_that_the_pages_give_them() -> None:
    found = [line for page in PAGES for line in shell_lines(page)]
    for page in PAGES:
        sentences = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        found += re.findall(r"`([^`]+)`", sentences)
    found = [line for line in found if re.match(r"(?:\.venv/bin/)?python3?\s(?:benchmarks|tests/scripts)/", line)]
    assert len(found) > 10
    for line in found:
        _, program, *words = shlex.split(line)
        known = set(re.findall(r"add_argument\(\s*\"(--[\w-]+)", (ROOT / program).read_text(encoding="utf-8")))
        assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known, line


ANALYZE_NAMES = ("profile", "analyze", "report")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_server_commands_parse(page: Path) -> None:
    for line in shell_lines(page):
        words = shlex.split(line, comments=True)
        try:
            if words[:1] == ["tritonserver"]:
                parse_options(words[1:], {})
            elif words[:2] == ["trireme", "serve"]:
                parse_options(words[2:], {}, takes_repositories=True)
        except OptionError as error:  # a certificate of the reader's
            if "there is no file" not in str(error):
                raise
        if words[:3] == ["trireme", "perf", "llm"]:
            make_llm_parser("perf").parse_args(words[3:])
        elif words[:2] == ["trireme", "perf"]:
            make_parser("perf").parse_args(words[2:])
        elif words[:2] == ["trireme", "analyze"]:
            name = words[2] if words[2] in ANALYZE_NAMES else ""
            make_analyze_parser("analyze", name).parse_intermixed_args(words[3:] if name else words[2:])
        elif words[:2] in (["trireme", "infer"], ["trireme", "models"]):
            (infer if words[1] == "infer" else models).make_parser().parse_intermixed_args(words[2:])
        if words[:1] == ["trireme"]:
            assert words[1] in trireme_command.COMMANDS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_flags_that_are_named_exist(page: Path) -> None:
    known = {name for entry in server_options() for name in (entry.flag, *entry.aliases)}
    known |= {old.flag for old in DEPRECATED_OPTIONS} | {"name"}
    clients = [infer.make_parser(), models.make_parser(), record.make_parser(), replay.make_parser()]
    clients += [make_analyze_parser("analyze", name) for name in ANALYZE_NAMES]
    for parser in (make_parser("perf"), make_llm_parser("perf"), make_build_parser(), *clients):
        known |= {flag.removeprefix("--") for flag in parser._option_string_actions}
    named = set(re.findall(r"`--([a-z-]+)(?:=[^`]*)?`", page.read_text(encoding="utf-8")))
    assert named - known == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_imported_from_trireme_exist(page: Path) -> None:
    imports = re.findall(r"^from (trireme[\w.]*) import (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    for module, names in imports:
        for name in names.split(","):
            assert hasattr(importlib.import_module(module), name.strip())


def test_readme_shows_what_serve_prints() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    models = [example(name) for name in ("adder", "scribe", "shout", "storyteller")]
    for line in greeting_lines(ServerOptions(), models):
        assert line in readme
    assert len(readme.splitlines()) < 150


def example(name: str) -> ModelConfig:
    """An example's configuration, read with protobuf's own parser."""
    from google.protobuf import text_format

    text = (ROOT / "examples/model_repository" / name / "config.pbtxt").read_text(encoding="utf-8")
    return ModelConfig.from_message(text_format.Parse(text, model_config_pb2.ModelConfig(name=name)))


def test_every_example_has_a_line_to_paste() -> None:
    names = sorted(path.name for path in (ROOT / "examples/model_repository").iterdir())
    for name in names:
        assert any(f"/v2/models/{name}/" in line for line in curl_lines("localhost:8000", [example(name)]))


def test_changelog_has_the_present_version() -> None:
    from trireme import __version__

    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
