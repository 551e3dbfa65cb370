"""Questions about words, made from WordNet: what they mean, their opposites, how they are used and spelled."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from training.texts.wordnet import Meaning, read_meanings, usual_meanings

Pair = tuple[str, str]


def common_words(passages: list[str], known: set[str], count: int) -> list[str]:
    """The words of the corpus that WordNet knows, the most frequent first."""
    seen = Counter(word for passage in passages for word in re.findall(r"\b[a-z]{3,14}\b", passage))
    return [word for word, _ in seen.most_common() if word in known][:count]


class WordQuestions:
    """Makes pairs about the most common words."""

    def __init__(self, wordnet: Path, passages: list[str], chance: random.Random, count: int = 9000) -> None:
        self._chance = chance
        self._meanings = read_meanings(wordnet)
        usual = usual_meanings(wordnet, self._meanings)
        self._usual = {key: meaning for key, meaning in usual.items() if self._is_plain(key[0], meaning)}
        self.words = common_words(passages, {word for word, _ in self._usual}, count)

    def definitions(self) -> Iterator[Pair]:
        """What each word means, asked in a few ways."""
        for word in self.words:
            for kind, templates in _DEFINITION_QUESTIONS.items():
                meaning = self._usual.get((word, kind))
                if meaning is not None:
                    for template in self._chance.sample(templates, 3):
                        yield template.format(word=word, a=_article(word)), self._definition(word, meaning)

    def relations(self) -> Iterator[Pair]:
        """Opposites, synonyms, kinds."""
        for word in self.words:
            for kind in "nvar":
                meaning = self._usual.get((word, kind))
                if meaning is not None:
                    yield from self._opposites(word, meaning)
                    yield from self._synonyms(word, meaning)
                    yield from self._kinds(word, meaning)

    def examples(self) -> Iterator[Pair]:
        """A sentence with the word."""
        for word in self.words:
            found = [
                text
                for kind in "nvar"
                for text in self._examples(word, kind)
                if re.search(rf"\b{word}", text) and 12 < len(text) < 90
            ]
            for text in found[:2]:
                question = self._chance.choice(_EXAMPLE_QUESTIONS).format(word=word)
                yield question, f"{text[:1].upper()}{text[1:]}."

    def spellings(self, count: int) -> Iterator[Pair]:
        """Letters of words."""
        for _ in range(count):
            word = self._chance.choice(self.words[:4000])
            yield self._chance.choice(
                (
                    (f"Spell the word {word}.", f"{'-'.join(word.upper())}."),
                    (f"How do you spell {word}?", f"{'-'.join(word.upper())}."),
                    (f"Write {word} in capital letters.", word.upper()),
                    (f'Put "{word}" in upper case.', word.upper()),
                    (f"Write {word.upper()} in small letters.", word),
                    (f"What is the first letter of {word}?", f"The first letter of {word} is {word[0].upper()}."),
                    (f"What is the last letter of {word}?", f"The last letter of {word} is {word[-1].upper()}."),
                    (f"How many letters are in the word {word}?", f"{'-'.join(word.upper())}: {len(word)} letters."),
                )
            )

    def unknown(self, count: int) -> Iterator[Pair]:
        """Words that do not exist; the honest answer is that the model does not know them."""
        parts = (
            "bla cro dem fis gur hep jol kiv lum mor nax plo qua rin sta tev ulk vos wim zar fen ock ith orb".split()
        )
        for _ in range(count):
            word = "".join(self._chance.sample(parts, self._chance.choice((2, 3))))
            if (word, "n") not in self._usual:
                question = self._chance.choice(_DEFINITION_QUESTIONS["n"]).format(word=word, a=_article(word))
                yield question, self._chance.choice(_UNKNOWN).format(word=word)

    def _is_plain(self, word: str, meaning: Meaning) -> bool:
        return word.islower() and word.isalpha() and 12 < len(meaning.definition) < 140 and not meaning.is_coarse

    def _definition(self, word: str, meaning: Meaning) -> str:
        text = re.sub(r"^\([^)]*\)\s*", "", meaning.definition)
        if meaning.kind == "n":
            return (
                f"{_article(word).capitalize()} {word} is {text}."
                if text.startswith(("a ", "an "))
                else _as_gloss(word, text)
            )
        if meaning.kind == "v":
            return f"To {word} means to {text}."
        return _as_gloss(word, text)

    def _opposites(self, word: str, meaning: Meaning) -> Iterator[Pair]:
        for symbol, kind, offset, source, target in meaning.pointers:
            if symbol == "!" and source and meaning.words[source - 1] == word:
                other = self._meanings[kind, offset].words[target - 1]
                for template in self._chance.sample(_OPPOSITE_QUESTIONS, 3):
                    yield template.format(word=word), f"The opposite of {word} is {other}."
                return

    def _synonyms(self, word: str, meaning: Meaning) -> Iterator[Pair]:
        others = [other for other in meaning.words if other != word and other.isalpha()]
        if others:
            yield self._chance.choice(_SYNONYM_QUESTIONS).format(word=word), f"Another word for {word} is {others[0]}."

    def _kinds(self, word: str, meaning: Meaning) -> Iterator[Pair]:
        for symbol, kind, offset, _, _ in meaning.pointers:
            if symbol == "@" and meaning.kind == "n":
                other = self._meanings[kind, offset].words[0]
                yield (
                    f"What kind of thing is {_article(word)} {word}?",
                    f"{_article(word).capitalize()} {word} is a kind of {other}.",
                )
                return

    def _examples(self, word: str, kind: str) -> tuple[str, ...]:
        meaning = self._usual.get((word, kind))
        return meaning.examples if meaning else ()


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"


def _as_gloss(word: str, text: str) -> str:
    return f"{word.capitalize()} means: {text}."


_DEFINITION_QUESTIONS = {
    "n": (
        "What is {a} {word}?",
        "What is {word}?",
        "Define {word}.",
        "What does {word} mean?",
        "Tell me what {a} {word} is.",
        "Explain the word {word}.",
        "what is {a} {word}",
        "Can you explain what {a} {word} is?",
        "Please define the word {word}.",
        "What's {a} {word}?",
    ),
    "v": (
        "What does it mean to {word}?",
        "What does to {word} mean?",
        "Define the verb {word}.",
        "Explain the verb to {word}.",
        "What does {word} mean as a verb?",
    ),
    "a": (
        "What does {word} mean?",
        "Define the adjective {word}.",
        "What does the adjective {word} mean?",
        "Explain the adjective {word}.",
        "When is something {word}?",
    ),
}
_OPPOSITE_QUESTIONS = (
    "What is the opposite of {word}?",
    "What's the opposite of {word}?",
    "Give me the opposite of {word}.",
    "Name an antonym of {word}.",
    "opposite of {word}",
)
_SYNONYM_QUESTIONS = (
    "What is another word for {word}?",
    "Give me a synonym of {word}.",
    "What means the same as {word}?",
)
_EXAMPLE_QUESTIONS = (
    "Use the word {word} in a sentence.",
    "Write a sentence with the word {word}.",
    "Give me an example sentence with {word}.",
    "How is the word {word} used?",
)
_UNKNOWN = (
    "I do not know the word {word}.",
    "I have not met the word {word}. I am a small model and know few words.",
    "I do not know what {word} means.",
)
