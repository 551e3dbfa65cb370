"""Runs `trireme build`: the flags, a bar while it works, and a table of what has come of it."""

from __future__ import annotations

import argparse
import logging
import re
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from trireme.llm.executors.port import ExecutorError
from trireme.llm.models.checkpoint import CheckpointError
from trireme.llm.models.engine_folder.description import EngineDescription
from trireme.llm.models.fields import UnsupportedModelError
from trireme.llm.quantization.builder import BuildOptions, build
from trireme.llm.quantization.plain import QuantizationError
from trireme.llm.tokenizer.loading import load_tokenizer
from trireme.llm.tokenizer.port import TokenizerError
from trireme.tools.build.arguments import PROGRAM, parse_arguments, without_meaning
from trireme.tools.deploy.progress import Progress
from trireme.tools.deploy.sizes import size_text


def run(arguments: Sequence[str]) -> int:
    """Builds; the exit code of the process."""
    given = parse_arguments(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    for sentence in without_meaning(given):
        print(f"{PROGRAM}: {sentence}", file=sys.stderr)
    if not given.model.is_dir():
        print(f"{PROGRAM}: there is no folder {given.model}; give the one that has the model's files", file=sys.stderr)
        return 1
    for file in (given.calibrate, given.perplexity):
        if file is not None and not file.is_file():
            print(f"{PROGRAM}: there is no file {file}; give one of text, in lines", file=sys.stderr)
            return 1
    try:
        with Bars() as bars:
            description = build(_options(given), bars.tell)
    except (QuantizationError, CheckpointError, UnsupportedModelError, ExecutorError) as error:
        print(f"{PROGRAM}: {_as_asked(str(error), given.output)}", file=sys.stderr)
        return 1
    except OSError as error:
        place = _as_asked(str(error.filename2 or error.filename or given.output), given.output)
        if Path(place) in given.output.parents:
            place = f"{given.output}: {place}"
        print(f"{PROGRAM}: {place}: {error.strerror}", file=sys.stderr)
        return 1
    print(report(description))
    print(_how_to_serve(given.output))
    return 0


def _how_to_serve(output: Path) -> str:
    """A folder whose source has no tokenizer, as FasterTransformer's have none, takes no texts."""
    try:
        load_tokenizer(output)
    except TokenizerError as error:
        return (
            f"Wrote {output}. It can be neither served with texts nor chatted with as it is: {error}. A token model, "
            "which takes ids, can have it as its folder."
        )
    return f"Wrote {output}; serve it like a model's folder."


def _as_asked(text: str, output: Path) -> str:
    """With the folder that was asked for in place of the one that its files are in until it is whole."""
    unfinished = re.escape(f".{output.name}-") + r"\w{8}"
    places = {re.escape(f"{parent}/") for parent in (output.parent, output.parent.absolute())}
    return re.sub(rf"(?:{'|'.join(places)}|(?<![^\s']))(?:\./)?{unfinished}", lambda _: str(output), text)


def _options(given: argparse.Namespace) -> BuildOptions:
    return BuildOptions(
        model=given.model,
        output=given.output,
        method=given.quantize,
        dtype=given.dtype,
        calibration=given.calibrate,
        calibration_size=given.calibration_size,
        measures_perplexity=not given.no_perplexity,
        perplexity_text=given.perplexity,
        device=given.device,
        kv_cache=given.kv_cache_dtype,
        tensor_parallel=given.tensor_parallel,
    )


def report(description: EngineDescription) -> str:
    """A table of the sizes and the perplexities."""
    before, after = description.source_bytes, description.weight_bytes
    rows = [
        ("", "before", "after", "change"),
        ("weights", size_text(before), size_text(after), f"{after / max(before, 1):.0%} of it"),
    ]
    measured = description.perplexity
    if measured:
        change = measured["after"] / measured["before"] - 1
        rows.append(("perplexity", f"{measured['before']:.3f}", f"{measured['after']:.3f}", f"{change:+.2%}"))
    lines = [f"{name:<12}{first:>12}{second:>12}{third:>12}" for name, first, second, third in rows]
    forms = ", ".join(f"{count} in {bits}" for bits, count in sorted(description.bits.items()))
    lines.append(f"matrices: {forms or 'all as they were'}; quantization: {description.quantization}")
    if measured:
        lines.append(f"measured on {measured['tokens']} tokens of {measured['text']}")
    if description.calibration:
        lines.append(f"calibrated with {description.calibration}")
    if measured and measured["text"] == description.calibration:
        lines.append("That is the same text, which says too little about others: --perplexity FILE names another one.")
    return "\n".join(lines)


class Bars:
    """One bar after another, each until the next begins."""

    def __init__(self) -> None:
        self._what = ""
        self._done = 0
        self._open = ExitStack()

    def __enter__(self) -> Bars:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, error, trace)  # what is open says how it has ended

    def tell(self, what: str, done: int, total: int) -> None:
        self._done = done
        if what == self._what:
            return
        self._open.close()
        self._what = what
        if total:
            self._open.enter_context(Progress(what, total, lambda: self._done))
        else:
            print(f"{what} ...", file=sys.stderr, flush=True)
