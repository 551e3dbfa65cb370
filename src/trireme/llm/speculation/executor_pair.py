"""Loads the executors of an engine: the model's, and that of the smaller model which drafts for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from trireme.llm.executor_choice import load_executor
from trireme.llm.executors.port import Executor, ExecutorError
from trireme.llm.options import EngineOptions, SpeculationMode
from trireme.llm.tokenizer.loading import load_tokenizer
from trireme.llm.tokenizer.port import Tokenizer, TokenizerError

_CACHE_BYTES = 1 << 30


def load_executors(
    folder: str | Path, options: EngineOptions, device: str = "auto", dtype: str = "auto"
) -> tuple[Executor, Executor | None]:
    """As `load_executor`; the second is None where no model drafts.

    The draft model comes first, because the model's cache takes what a GPU has left. Raises ExecutorError as well where
    the two have different tokens.
    """
    if options.speculation is not SpeculationMode.DRAFT or options.draft_model is None:
        return load_executor(folder, options, device, dtype), None
    have_same_tokens = _compare_tokenizers(Path(folder), options.draft_model)
    draft = load_executor(options.draft_model, _draft_options(options), device, dtype)
    try:
        executor = load_executor(folder, options, device, dtype)
        sizes = draft.spec.vocab_size, executor.spec.vocab_size
        if not have_same_tokens and sizes[0] != sizes[1]:
            raise ExecutorError(
                f"the draft model {options.draft_model} has {sizes[0]} tokens and the model {sizes[1]}: both need the "
                "same vocabulary"
            )
    except Exception:
        draft.close()
        raise
    return executor, draft


def _draft_options(options: EngineOptions) -> EngineOptions:
    size = options.draft_cache_bytes
    if size is None:
        size = _CACHE_BYTES if options.cache_bytes is None else options.cache_bytes // 4
    return replace(
        options,
        cache_bytes=size,
        has_prefix_cache=False,
        is_batch_invariant=False,
        ranks=1,
        speculation=SpeculationMode.OFF,
        draft_model=None,
        adapters=None,
    )


def _compare_tokenizers(folder: Path, draft_folder: Path) -> bool:
    """Whether both folders have the same; False where one has none. Raises ExecutorError where they differ."""
    if not draft_folder.is_dir():
        raise ExecutorError(f"there is no folder {draft_folder}; give the folder of the draft model's config.json")
    files = [one / "tokenizer.json" for one in (folder, draft_folder)]
    if all(file.is_file() for file in files) and files[0].read_bytes() == files[1].read_bytes():
        return True
    try:
        own, other = load_tokenizer(folder), load_tokenizer(draft_folder)
    except TokenizerError:
        return False
    difference = _first_difference(own, other)
    if difference is not None:
        raise ExecutorError(
            f"the draft model {draft_folder} has another vocabulary: token {difference} is "
            f"{other.piece_bytes(difference)!r} there and {own.piece_bytes(difference)!r} in the model; use one of the "
            "same family"
        )
    return True


def _first_difference(own: Tokenizer, other: Tokenizer) -> int | None:
    """The first token that is not the same text in both."""
    tokens = range(max(own.vocab_size, other.vocab_size))
    return next((token for token in tokens if own.piece_bytes(token) != other.piece_bytes(token)), None)
