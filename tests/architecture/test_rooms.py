"""Who may import whom: downward only, third parties in their rooms, no cycles."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection, Mapping
from itertools import takewhile
from typing import Any

FOUNDATIONS = {"core", "proto"}
FACTS = {"machine", "huggingface"}
LOWER = FOUNDATIONS | FACTS | {"config", "protocol", "devices", "observe"}

MAY_IMPORT: dict[str, set[str]] = {
    "": set(),
    "core": set(),
    "proto": set(),
    "machine": set(),
    "huggingface": set(),
    "config": FOUNDATIONS | {"machine"},
    "protocol": FOUNDATIONS,
    "memory": {"core"},
    "devices": {"core"},
    "observe": FOUNDATIONS,
    "access": FOUNDATIONS | {"config", "observe"},
    "scheduling": FOUNDATIONS | {"machine", "config", "observe"},
    "llm": {"core", "machine", "huggingface"},
    "backends": LOWER | {"llm"},
    "plugins": {"core", "config", "backends"},
    "models": {"backends"},
    "registry": FOUNDATIONS | FACTS | {"config", "observe", "scheduling", "backends"},
    "server": FOUNDATIONS | FACTS | {"access", "config", "memory", "observe", "registry"},
    "console": {"core", "config", "observe", "registry", "server"},
    "frontends": FOUNDATIONS | {"machine", "access", "protocol", "server", "console"},
    "app": LOWER | {"access", "scheduling", "backends", "registry", "server", "console", "frontends"},
    "tools": FACTS | FOUNDATIONS | {"config", "protocol", "devices", "observe", "llm"},
    "testing": LOWER | {"backends", "registry", "server", "tools"},
    "cli": {"core", "machine", "access", "config", "devices", "observe", "app", "tools"},
    "__main__": {"cli"},
}
"""By room: the other rooms it may import. A room that is not here may not exist."""

THIRD_PARTY: dict[str, set[str]] = {
    "core": {"numpy"},
    "proto": {"google"},
    "config": {"google", "orjson"},
    "protocol": {"google", "hpack", "numpy", "orjson"},
    "observe": {"numpy", "opentelemetry", "orjson"},
    "devices": {"pynvml"},
    "llm": set(),
    "llm.adapters": {"numpy"},
    "llm.executors": {"numpy", "torch", "triton"},
    "llm.grammar": {"llguidance", "numpy"},
    "llm.kernels": {"torch", "triton"},
    "llm.models": {"numpy", "torch", "safetensors"},
    "llm.quantization": {"numpy", "torch"},
    "llm.sampling": {"numpy", "torch"},
    "llm.tokenizer": {"jinja2", "tokenizers", "transformers"},
    "backends": {"numpy"},
    "backends.python": {"numpy", "opentelemetry"},
    "testing": {"numpy"},
    "registry": {"numpy"},
    "scheduling.cache": {"redis"},
    "server": {"google", "numpy", "orjson"},
    "server.pictures": {"numpy", "PIL"},
    "console": {"google", "orjson"},
    "frontends": {"google", "orjson"},
    "frontends.http": {"google", "httptools", "orjson"},
    "app": {"uvloop"},
    "tools": {"numpy"},
    "tools.analyze": {"google", "numpy", "yaml"},
    "tools.client": {"google", "numpy"},
    "tools.deploy": {"huggingface_hub"},
    "tools.infer": {"PIL", "numpy"},
    "tools.perf": {"google", "hpack", "numpy", "orjson"},
}
"""By room, or by a part of a room: the packages from outside that it may import. Not named: none."""

NEVER_IN_THE_SERVER = {
    "torch",
    "transformers",
    "huggingface_hub",
    "pynvml",
    "grpc",
    "redis",
    "opentelemetry",
    "onnxruntime",
    "openvino",
    "tensorflow",
    "sklearn",
    "joblib",
    "xgboost",
    "lightgbm",
    "catboost",
    "treelite",
    "mlflow",
    "pandas",
    "PIL",
}
PYTHON = "trireme.backends.python"
WORKER = f"{PYTHON}.programs.worker_main"
WORKER_ROOMS = ("trireme.core", "trireme.machine", "trireme.huggingface", PYTHON)
WORKER_FOLDERS = ("channel", "pb_utils", "worker", "programs", "compat")
SERVER_FOLDERS = ("host", "process", "environment")


def test_every_room_is_in_the_table(modules: dict[str, Any]) -> None:
    assert {module.room for module in modules.values()} - MAY_IMPORT.keys() == set()


def test_rooms_import_downward_only(modules: dict[str, Any], internal_imports: dict[str, frozenset[str]]) -> None:
    assert crossings(modules, internal_imports) == []


def test_types_come_from_below_too(modules: dict[str, Any], type_imports: dict[str, frozenset[str]]) -> None:
    assert crossings(modules, type_imports) == []


def test_modules_that_strings_name_exist_and_come_from_below(modules: dict[str, Any]) -> None:
    named = {name: module.named_modules for name, module in modules.items()}
    assert sum(map(len, named.values())) > 5
    assert {name: sorted(texts - modules.keys()) for name, texts in named.items() if texts - modules.keys()} == {}
    assert crossings(modules, named) == []


def crossings(modules: dict[str, Any], imports: Mapping[str, Collection[str]]) -> list[str]:
    """What goes from one room to another without leave."""
    found = []
    for name, targets in imports.items():
        room = modules[name].room
        allowed = {"", room} | MAY_IMPORT[room]
        found += [f"{name} imports {target}" for target in sorted(targets) if modules[target].room not in allowed]
    return found


def test_table_itself_has_no_way_up() -> None:
    order = list(MAY_IMPORT)
    for room, targets in MAY_IMPORT.items():
        assert all(order.index(target) < order.index(room) for target in targets), room


def test_third_parties_keep_to_their_rooms(modules: dict[str, Any]) -> None:
    wrong = []
    for name, module in modules.items():
        part = ".".join(name.split(".")[1:3])
        allowed = THIRD_PARTY.get(part, THIRD_PARTY.get(module.room, set()))
        for entry in module.imports:
            package = entry.split(".")[0]
            if package not in sys.stdlib_module_names | {"trireme"} | allowed:
                wrong.append(f"{name} imports {entry}")
    assert wrong == []


def test_no_import_cycles(all_imports: dict[str, frozenset[str]]) -> None:
    assert circles(all_imports) == [], "these import each other, be it for types alone"


def test_no_circle_between_siblings(all_imports: dict[str, frozenset[str]]) -> None:
    """What lies side by side in a folder, files and folders alike, can be put in an order, at every level."""
    siblings: dict[str, set[str]] = {}
    for name, targets in all_imports.items():
        for target in targets:
            importer, imported = branches(name, target)
            siblings.setdefault(importer, set()).add(imported)
    assert circles(siblings) == []


def branches(name: str, target: str) -> tuple[str, str]:
    """The two siblings, at the level where the ways to the two modules part, that hold them."""
    ours, theirs = name.split("."), target.split(".")
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(ours, theirs, strict=False)))
    return ".".join(ours[: shared + 1]), ".".join(theirs[: shared + 1])


def circles(imports: Mapping[str, Collection[str]]) -> list[str]:
    """Those that are left when whatever imports nothing else, or is imported by nothing else, is taken away."""
    remaining = dict(imports)
    while True:
        imported = {target for targets in remaining.values() for target in targets}
        free = [name for name in remaining if name not in imported or not remaining.keys() & set(remaining[name])]
        if not free:
            return sorted(remaining)
        for name in free:
            del remaining[name]


def test_worker_folders_import_nothing_of_the_server_side(all_imports: dict[str, frozenset[str]]) -> None:
    """A worker runs in whatever interpreter its model brings, and starts once per instance."""
    inside = tuple(f"{PYTHON}.{folder}." for folder in WORKER_FOLDERS)
    outside = tuple(f"{PYTHON}.{folder}" for folder in SERVER_FOLDERS)
    wrong = [
        f"{name} imports {target}"
        for name, targets in all_imports.items()
        if name.startswith(inside)
        for target in sorted(targets)
        if target.startswith(outside)
    ]
    assert wrong == []


def test_worker_half_needs_the_foundations_and_its_own_files_only(
    modules: dict[str, Any], internal_imports: dict[str, frozenset[str]]
) -> None:
    reached, waiting = set(), [WORKER]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += internal_imports[name]
    for name in reached:
        assert name.startswith(WORKER_ROOMS) or name == "trireme", name
        outside = {entry.split(".")[0] for entry in modules[name].imports} - sys.stdlib_module_names
        assert outside <= {"trireme", "numpy", "opentelemetry", "triton_python_backend_utils"}, name


def test_server_process_loads_no_framework() -> None:
    program = f"import sys, trireme.app.application; print(*sorted(set(sys.modules) & {NEVER_IN_THE_SERVER!r}))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []


def test_command_line_is_answered_without_loading_the_server() -> None:
    program = (
        "import sys, trireme.cli.tritonserver as command; command.main(['--help']); "
        "print(*[name for name in ('trireme.app.application', 'uvloop', 'grpc', 'torch') if name in sys.modules])"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []
