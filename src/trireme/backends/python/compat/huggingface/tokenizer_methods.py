"""Methods that tokenizers had before transformers 5, written with those they have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from trireme.backends.python.compat.report import tell_rescue


def restore(module: ModuleType) -> None:
    """Adds to every tokenizer what this release does not have."""
    tokenizer = module.PreTrainedTokenizerBase
    for method in (encode_plus, batch_encode_plus, as_target_tokenizer):
        if not hasattr(tokenizer, method.__name__):
            setattr(tokenizer, method.__name__, method)


def encode_plus(self: Any, text: Any, text_pair: Any = None, *args: Any, **kwargs: Any) -> Any:
    """One text, or a pair of texts, as ids and masks."""
    _tell("encode_plus")
    return self(text, text_pair, **_named(args, kwargs))


def batch_encode_plus(self: Any, batch_text_or_text_pairs: Any, *args: Any, **kwargs: Any) -> Any:
    """Several texts, or pairs of texts, as ids and masks."""
    _tell("batch_encode_plus")
    options = _named(args, kwargs)
    rows = list(batch_text_or_text_pairs)
    if rows and not options.get("is_split_into_words") and all(_is_pair(row) for row in rows):
        return self([row[0] for row in rows], [row[1] for row in rows], **options)
    return self(rows, **options)


@contextmanager
def as_target_tokenizer(self: Any) -> Iterator[None]:
    """Texts inside the `with` are encoded as targets."""
    _tell("as_target_tokenizer", "the tokenizer was put into its target mode")
    if hasattr(self, "_switch_to_target_mode"):
        self._switch_to_target_mode()
    self._in_target_context_manager = True
    try:
        yield
    finally:
        self._in_target_context_manager = False
        if hasattr(self, "_switch_to_input_mode"):
            self._switch_to_input_mode()


_ORDER = ("add_special_tokens", "padding", "truncation", "max_length", "stride", "is_split_into_words")


def _named(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments after the texts by their names: calling a tokenizer has two more in between."""
    return {**dict(zip(_ORDER, args, strict=False)), **kwargs}


def _is_pair(row: Any) -> bool:
    return isinstance(row, list | tuple) and len(row) == 2 and all(isinstance(text, str) for text in row)


def _tell(name: str, instead: str = "the call was made as tokenizer(...)") -> None:
    tell_rescue(name, f"this release of transformers has no tokenizer.{name}(): {instead} instead")
