"""Reads WordNet's database files: words, their most usual meaning, and how meanings belong together."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

KINDS = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}


@dataclass(frozen=True, slots=True)
class Meaning:
    """One of WordNet's sets of synonyms."""

    kind: str
    words: tuple[str, ...]
    definition: str
    examples: tuple[str, ...]
    pointers: tuple[tuple[str, str, int, int, int], ...]
    """(symbol, kind, offset, the word it comes from, the word it goes to); words count from 1, 0 means all of them."""

    @property
    def is_coarse(self) -> bool:
        """Whether WordNet marks the words as insults or obscene."""
        return re.search(r"offensive|obscen|slur\b|disparag|vulgar|derogat|taboo", self.definition) is not None


def read_meanings(folder: Path) -> dict[tuple[str, int], Meaning]:
    """Every meaning by its kind and its place in the file."""
    found = {}
    for name, kind in KINDS.items():
        for line in (folder / f"data.{name}").read_text(encoding="latin-1").splitlines():
            if not line.startswith("  "):
                fields, _, gloss = line.partition("|")
                found[kind, int(line[:8])] = _meaning(kind, fields.split(), gloss)
    return found


def usual_meanings(folder: Path, meanings: dict[tuple[str, int], Meaning]) -> dict[tuple[str, str], Meaning]:
    """The first meaning of each (word, kind): WordNet lists the most usual one first."""
    found = {}
    for name, kind in KINDS.items():
        for line in (folder / f"index.{name}").read_text(encoding="latin-1").splitlines():
            if line.startswith("  "):
                continue
            fields = line.split()
            first_offset = fields[-int(fields[2])]
            found[fields[0].replace("_", " "), kind] = meanings[kind, int(first_offset)]
    return found


def gloss_paragraphs(folder: Path) -> list[str]:
    """WordNet as prose: the words of a meaning, what they mean, and the examples; names of people and species stay out."""
    found = []
    for meaning in read_meanings(folder).values():
        if meaning.is_coarse or not all(word.islower() for word in meaning.words):
            continue
        sentence = f"{', '.join(meaning.words)}: {meaning.definition}."
        found.append(" ".join([sentence, *(example[:1].upper() + example[1:] + "." for example in meaning.examples)]))
    return found


def _meaning(kind: str, fields: list[str], gloss: str) -> Meaning:
    count = int(fields[3], 16)
    words = tuple(re.sub(r"\((?:a|p|ip)\)$", "", word).replace("_", " ") for word in fields[4 : 4 + 2 * count : 2])
    at = 4 + 2 * count
    pointers = []
    for index in range(int(fields[at])):
        symbol, offset, target, words_hex = fields[at + 1 + 4 * index : at + 5 + 4 * index]
        pointers.append((symbol, target, int(offset), int(words_hex[:2], 16), int(words_hex[2:], 16)))
    examples = tuple(part.strip().rstrip(".") for part in re.findall(r'"([^"]+)"', gloss))
    definition = re.split(r'[;:]?\s*"', gloss, maxsplit=1)[0].strip().rstrip(";").strip()
    return Meaning(kind, words, definition, examples, tuple(pointers))
