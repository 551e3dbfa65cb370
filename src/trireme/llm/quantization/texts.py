"""Texts for calibration and measurement, as sequences of tokens."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trireme.llm.quantization.plain import QuantizationError
from trireme.llm.tokenizer.port import Tokenizer

SAMPLE_NAME = "the built-in sample"
_SAMPLE = Path(__file__).with_name("sample_text.txt")
_FEWEST_TOKENS = 32


@dataclass(frozen=True, slots=True)
class TokenText:
    """A text in pieces that a model takes at once."""

    name: str
    sequences: tuple[tuple[int, ...], ...]

    @property
    def tokens(self) -> int:
        return sum(len(sequence) for sequence in self.sequences)


def read_text(file: Path | None, tokenizer: Tokenizer, longest: int, most: int | None = None) -> TokenText:
    """The tokens of a file's lines, or of the built-in sample, one after another, cut into pieces.

    `longest` bounds a piece, `most` their number. Raises QuantizationError where the file cannot be used.
    """
    name = SAMPLE_NAME if file is None else file.name
    try:
        lines = (_SAMPLE if file is None else file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise QuantizationError(f"{file} cannot be read as text: {error}") from None
    tokens: list[int] = []
    for line in lines:
        if line.strip():
            tokens += tokenizer.encode(line + "\n")
        if most is not None and len(tokens) >= most * longest:
            break
    if len(tokens) < _FEWEST_TOKENS:
        raise QuantizationError(
            f"{name} has {len(tokens)} tokens, too few to learn from or to measure with: give a longer text, of "
            f"{_FEWEST_TOKENS} at least"
        )
    pieces = [tuple(tokens[first : first + longest]) for first in range(0, len(tokens), longest)]
    if len(pieces) > 1 and len(pieces[-1]) < _FEWEST_TOKENS:
        pieces.pop()
    return TokenText(name, tuple(pieces[:most]))
