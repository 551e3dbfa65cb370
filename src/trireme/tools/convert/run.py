"""Runs `trireme convert`: the flags, the banner, one conversion, and what there is to say about it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from trireme.llm.models.checkpoint import CheckpointError
from trireme.llm.models.fields import UnsupportedModelError
from trireme.tools.convert import to_fastertransformer, to_huggingface
from trireme.tools.convert.arguments import PROGRAM, TO_FASTERTRANSFORMER, parse_arguments


def run(arguments: Sequence[str]) -> int:
    """Converts; the exit code of the process."""
    given = parse_arguments(arguments)
    print("\n=============== Argument ===============")
    for name, value in vars(given).items():
        if name != "direction":
            print(f"{name}: {value}")
    print("========================================")
    try:
        folder = _convert(given)
    except (CheckpointError, UnsupportedModelError) as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{PROGRAM}: {error.filename or given.saved_dir}: {error.strerror}", file=sys.stderr)
        return 1
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"Wrote {folder}: {len(list(folder.iterdir()))} files, {size / 2**20:.1f} MiB")
    return 0


def _convert(given: argparse.Namespace) -> Path:
    source, target = Path(given.in_file), Path(given.saved_dir)
    if given.direction != TO_FASTERTRANSFORMER:
        return to_huggingface.convert(source, target)
    return to_fastertransformer.convert(
        source,
        target,
        rank_count=given.infer_gpu_num,
        data_type=given.weight_data_type,
        model_name=given.model_name,
        thread_count=given.processes,
    )
