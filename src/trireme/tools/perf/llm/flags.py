"""The common flags of genai-perf."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from trireme import __version__
from trireme.config.options.flag_parser import FlagParser
from trireme.tools.perf.command_line import values
from trireme.tools.perf.errors import UsageError
from trireme.tools.perf.llm.options import (
    GOODPUT_METRICS,
    STREAMING,
    SYNTHETIC,
    USUAL_INPUT_TOKENS,
    WITHOUT_TOKENS,
    LlmOptions,
    PromptOptions,
)

_OPENAI_TYPES = ("chat", "completions", *WITHOUT_TOKENS)
_ENDPOINT_TYPES = (*_OPENAI_TYPES, "generate", "kserve")
_DEFAULT_URLS = {"kserve": "localhost:8001"}
_WITHOUT_EFFECT: dict[str, tuple[tuple[str, ...], str]] = {
    "--measurement-interval": (
        ("-p",),
        "as many requests are measured as --request-count says, however long that takes",
    ),
    "--stability-percentage": (("-s",), "as many requests are measured as --request-count says"),
    "--tokenizer-revision": ((), "the newest in the cache is taken"),
    "--tokenizer-trust-remote-code": ((), "no code of a model is run"),
    "--verbose": (("-v",), "the files have every request"),
}
"""Flags of the original that scripts give: their short forms, and what happens in place of what they ask for."""


class _Parser(FlagParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(self.explained(message))


def make_parser(program: str) -> argparse.ArgumentParser:
    """The parser, with the usage text."""
    parser = _Parser(prog=program, description="Loads a language model and measures its tokens.")
    parser.add_argument("--version", action="version", version=f"genai-perf {__version__} (Trireme)")
    add = parser.add_argument_group("model and server").add_argument
    add("-m", "--model", action="append", required=True, metavar="NAME", help="the model; required")
    add("--service-kind", default=None, metavar="KIND", help="triton (default) or openai")
    add("--endpoint-type", default=None, metavar="TYPE", help=", ".join(_ENDPOINT_TYPES))
    add("--backend", default="", metavar="NAME", help="accepted: a model gets the tensors that it has")
    add("--endpoint", default=None, metavar="PATH", help="another path than the endpoint type's")
    add("-u", "--url", default=None, metavar="HOST:PORT", help="the server; https:// or grpcs:// in front is TLS")
    add("--ca", default=None, metavar="FILE", help="certificates that the server's may be signed with")
    add("--streaming", action="store_true", help="answers piece by piece")
    add("-H", "--header", dest="headers", action="append", default=[], metavar="NAME:VALUE", help="a header")
    add("--extra-inputs", action="append", default=[], metavar="NAME:VALUE", help="a field of every request, or JSON")
    add("--tokenizer", default=None, metavar="FOLDER", help="with tokenizer.json, or a name in the hub's cache: counts")
    add = parser.add_argument_group("load").add_argument
    add("--concurrency", default=None, metavar="N", help="requests under way (default: 1)")
    add("--request-rate", default=None, metavar="R", help="requests per second")
    add("--request-count", "--num-requests", default=None, metavar="N", help="requests to measure (default: 10)")
    add("--warmup-request-count", "--num-warmup-requests", default="0", metavar="N", help="requests before that")
    add("--goodput", "-g", nargs="+", default=[], metavar="METRIC:MS", help="limits that a good request keeps")
    add = parser.add_argument_group("prompts").add_argument
    add(
        "--input-file",
        default=None,
        metavar="FILE",
        help='lines with a prompt each, or with {"text": ...}; for rankings a folder',
    )
    add("--synthetic-input-tokens-mean", "--isl", metavar="N", help="tokens of a prompt (default: 550, or what fits)")
    add("--synthetic-input-tokens-stddev", default="0", metavar="N", help="(default: 0)")
    add("--output-tokens-mean", "--osl", default="-1", metavar="N", help="tokens of an answer (default: the model's)")
    add("--output-tokens-stddev", default="0", metavar="N", help="(default: 0)")
    add("--output-tokens-mean-deterministic", action="store_true", help="no answer is shorter, either (min_tokens)")
    add("--num-dataset-entries", "--num-prompts", default="100", metavar="N", help="different prompts (default: 100)")
    add(
        "--batch-size-text",
        "--batch-size",
        "-b",
        default=None,
        metavar="N",
        help="texts of an embeddings request, or passages of a rankings request (default: 1)",
    )
    add("--system-prompt", default=None, metavar="TEXT", help="in front of every chat")
    add("--random-seed", default="0", metavar="N", help="(default: 0)")
    add = parser.add_argument_group("results").add_argument
    add("--artifact-dir", default="artifacts", metavar="FOLDER", help="for the files (default: artifacts)")
    add("--profile-export-file", default="profile_export.json", metavar="NAME", help="beginning of their names")
    add("--generate-plots", action="store_true", help="pages with plots, below the folder")
    add("--progress", action=argparse.BooleanOptionalAction, help="whether to show how the run stands, on stderr")
    add = parser.add_argument_group("of the original, without effect").add_argument
    for flag, (names, _) in _WITHOUT_EFFECT.items():
        add(*names, flag, nargs="?", const="", default=None, help=argparse.SUPPRESS)
    add("--fixed-schedule", action="store_true", help=argparse.SUPPRESS)
    return parser


def read_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> LlmOptions:
    """The options of a command line; raises UsageError."""
    given = parser.parse_args(list(words))
    endpoint_type = _endpoint_type(given)
    if given.fixed_schedule:
        raise UsageError(
            "--fixed-schedule is not supported here: 'trireme perf --service-kind openai --fixed-schedule --input-data "
            "FILE' sends bodies of yours at their times."
        )
    notes = [
        f"{flag} has no effect: {reason}"
        for flag, (_, reason) in _WITHOUT_EFFECT.items()
        if getattr(given, flag.removeprefix("--").replace("-", "_")) is not None
    ]
    if endpoint_type in WITHOUT_TOKENS:
        notes += _whole_notes(given)
    elif given.batch_size_text is not None:
        raise UsageError(f"--batch-size-text is of --endpoint-type {' and '.join(WITHOUT_TOKENS)}.")
    if len(given.model) > 1:
        raise UsageError(f"-m: one model is measured at a time, not {', '.join(given.model)}.")
    if given.concurrency is not None and given.request_rate is not None:
        raise UsageError("--concurrency and --request-rate exclude each other.")
    concurrency = values.whole_number("--concurrency", given.concurrency or "1", 1)
    count = None if given.request_count is None else values.whole_number("--request-count", given.request_count, 1)
    return LlmOptions(
        model=given.model[0],
        endpoint_type=endpoint_type,
        url=given.url or _DEFAULT_URLS.get(endpoint_type, "localhost:8000"),
        endpoint=given.endpoint,
        is_streaming=given.streaming,
        concurrency=None if given.request_rate is not None else concurrency,
        request_rate=None if given.request_rate is None else values.number("--request-rate", given.request_rate, 1e-6),
        request_count=count or max(10, 2 * concurrency),
        warmup_request_count=values.whole_number("--warmup-request-count", given.warmup_request_count),
        tokenizer=given.tokenizer,
        headers=tuple(map(values.header, given.headers)),
        ca_file=None if given.ca is None else values.existing_file("--ca", given.ca),
        extra_inputs=_extra_inputs(given.extra_inputs),
        goodput=_goodput(given.goodput, given.streaming),
        artifact_folder=given.artifact_dir,
        makes_plots=given.generate_plots,
        export_name=Path(given.profile_export_file).name,
        prompts=_prompts(given, endpoint_type),
        shows_progress=given.progress,
        notes=tuple(notes),
    )


def _endpoint_type(given: argparse.Namespace) -> str:
    if "dynamic_grpc" in (given.service_kind, given.endpoint_type):
        raise UsageError(
            "dynamic_grpc is not supported here: 'trireme perf --service-kind dynamic_grpc --grpc-method METHOD "
            "--input-data FILE' sends messages of yours."
        )
    kind = given.service_kind or ("openai" if given.endpoint_type in _OPENAI_TYPES else "triton")
    values.one_of("--service-kind", kind, ("triton", "openai"))
    found = given.endpoint_type or ("chat" if kind == "openai" else "kserve")
    if found not in _ENDPOINT_TYPES:
        raise UsageError(f"--endpoint-type {found} is not supported: {', '.join(_ENDPOINT_TYPES)} are.")
    if (kind == "openai") != (found in _OPENAI_TYPES):
        raise UsageError(f"--endpoint-type {found} does not belong to --service-kind {kind}.")
    return str(found)


def _whole_notes(given: argparse.Namespace) -> list[str]:
    """What has no effect on answers that are numbers; raises UsageError for what they cannot do."""
    if given.streaming:
        raise UsageError(f"--streaming is not for --endpoint-type {given.endpoint_type}, whose answers come whole.")
    flags = {
        "--output-tokens-mean": given.output_tokens_mean != "-1",
        "--output-tokens-mean-deterministic": given.output_tokens_mean_deterministic,
        "--system-prompt": given.system_prompt is not None,
    }
    reason = f"answers of {given.endpoint_type} are numbers, and no tokens"
    return [f"{flag} has no effect: {reason}" for flag, is_given in flags.items() if is_given]


def _prompts(given: argparse.Namespace, endpoint_type: str) -> PromptOptions:
    is_made_up = endpoint_type in WITHOUT_TOKENS and (given.input_file or "").startswith(SYNTHETIC)
    if given.input_file is not None and endpoint_type != "rankings" and not is_made_up:
        values.existing_file("--input-file", given.input_file)
    answer = values.whole_number("--output-tokens-mean", given.output_tokens_mean, -1)
    if given.output_tokens_mean_deterministic and answer == -1:
        raise UsageError("--output-tokens-mean-deterministic wants a number of tokens: --output-tokens-mean N.")
    length = given.synthetic_input_tokens_mean
    if length is not None:
        length = values.whole_number("--synthetic-input-tokens-mean", length, 1)
    return PromptOptions(
        input_file=given.input_file,
        input_tokens_mean=USUAL_INPUT_TOKENS if length is None else length,
        is_length_given=length is not None,
        input_tokens_deviation=values.whole_number(
            "--synthetic-input-tokens-stddev", given.synthetic_input_tokens_stddev
        ),
        output_tokens_mean=None if answer == -1 else answer,
        output_tokens_deviation=values.whole_number("--output-tokens-stddev", given.output_tokens_stddev),
        is_output_exact=given.output_tokens_mean_deterministic,
        batch_size=values.whole_number("--batch-size-text", given.batch_size_text or "1", 1),
        count=values.whole_number("--num-dataset-entries", given.num_dataset_entries, 1),
        system_prompt=given.system_prompt,
        seed=values.whole_number("--random-seed", given.random_seed),
    )


def _extra_inputs(texts: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in texts:
        if text.startswith("{"):
            try:
                found.update(json.loads(text))
            except (ValueError, RecursionError):
                raise UsageError(f"--extra-inputs is no JSON: {text}") from None
            continue
        name, colon, value = text.partition(":")
        if not colon:
            raise UsageError(f"--extra-inputs is a name, a colon and a value, not '{text}'")
        try:
            found[name] = json.loads(value)
        except (ValueError, RecursionError):
            found[name] = value
    return found


def _goodput(texts: Sequence[str], is_streaming: bool) -> dict[str, float]:
    """Limits of what is not measured would be kept by everything."""
    limits = {}
    for text in texts:
        name, colon, value = text.rpartition(":")
        if not colon:
            raise UsageError(f"--goodput is a metric, a colon and its limit, not '{text}'")
        if name not in GOODPUT_METRICS:
            raise UsageError(f"--goodput knows {', '.join(GOODPUT_METRICS)}, not '{name}'")
        if name in STREAMING and not is_streaming:
            raise UsageError(f"--goodput {name} is of answers that come piece by piece: --streaming is missing.")
        limits[name] = values.number("--goodput", value)
    return limits
