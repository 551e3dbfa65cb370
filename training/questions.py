"""Makes conversations in the model's chat format: simple questions, asked in many ways, with honest answers.

python3 -m training.questions --data training/data
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

from training.chat_format import Turn
from training.chats.facts import ANSWERS, AUTHORS, CAPITALS, DAYS, MONTHS, NAMES
from training.chats.small_talk import SMALL_TALK
from training.chats.stories import poem, story
from training.chats.word_questions import Pair, WordQuestions
from training.corpus import read_corpus

SYSTEM_PROMPTS = (
    "You are a helpful assistant.",
    "You are scribe, a small language model that ships with Trireme.",
    "Answer briefly.",
    "You are a friendly assistant. Answer in one sentence.",
    "Be concise and polite.",
    "You are a helpful, honest assistant.",
)


def write_conversations(data: Path, seed: int = 1) -> dict[str, int]:
    """Writes `chats.jsonl.gz`, a list of [role, content] a line; returns how many pairs of each kind went in."""
    chance = random.Random(seed)
    kinds = {name: list(pairs) for name, pairs in _kinds(data, chance).items()}
    pairs = [pair for found in kinds.values() for pair in found]
    chance.shuffle(pairs)
    with gzip.open(data / "chats.jsonl.gz", "wt", encoding="utf-8") as out:
        for turns in conversations(pairs, chance):
            out.write(json.dumps([[turn.role, turn.content] for turn in turns]) + "\n")
    return {name: len(found) for name, found in kinds.items()}


def read_conversations(data: Path) -> list[list[Turn]]:
    with gzip.open(data / "chats.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [[Turn(role, content) for role, content in json.loads(line)] for line in lines]


def conversations(pairs: list[Pair], chance: random.Random) -> Iterator[list[Turn]]:
    """Puts one to four pairs behind each other, some after a system prompt, some with a name to be remembered."""
    position = 0
    while position < len(pairs):
        count = chance.choices((1, 2, 3, 4), (6, 3, 2, 1))[0]
        chosen = pairs[position : position + count]
        position += count
        if chance.random() < 0.04:
            chosen = _with_name(chosen, chance)
        turns = [Turn("system", chance.choice(SYSTEM_PROMPTS))] if chance.random() < 0.2 else []
        for question, answer in chosen:
            turns += [Turn("user", _vary(question, chance)), Turn("assistant", answer)]
        yield turns


def _with_name(pairs: list[Pair], chance: random.Random) -> list[Pair]:
    name = chance.choice(NAMES)
    told = chance.choice((f"My name is {name}.", f"I am {name}.", f"Hello, I'm {name}.", f"Call me {name}."))
    asked = chance.choice(("What is my name?", "Do you remember my name?", "Who am I?", "what's my name"))
    return [(told, f"Nice to meet you, {name}!"), *pairs[:2], (asked, f"Your name is {name}.")]


def _vary(question: str, chance: random.Random) -> str:
    """As people type: without capitals or marks, with a greeting or a please."""
    draw = chance.random()
    if ":" in question or '"' in question or draw > 0.3:
        return question
    if draw < 0.08:
        return question[:1].lower() + question[1:]
    if draw < 0.14:
        return question.rstrip("?.!")
    if draw < 0.19:
        return question[:1].lower() + question[1:].rstrip("?.!")
    if draw < 0.24:
        return f"{chance.choice(('Hi!', 'Hello.', 'Hey,', 'Please tell me:', 'A question:'))} {question}"
    return f"{question} {chance.choice(('Please.', 'Thanks.', 'Answer briefly.', 'Thank you!'))}"


def _kinds(data: Path, chance: random.Random) -> dict[str, Iterator[Pair]]:
    corpus = read_corpus(data)
    prose = [text for source, text in corpus if not source.startswith("WordNet")]
    wordnet = next((data / "downloads").glob("debian-wordnet-base/usr/share/wordnet"))
    words = WordQuestions(wordnet, prose, chance)
    return {
        "definitions": words.definitions(),
        "word relations": words.relations(),
        "example sentences": words.examples(),
        "spelling": words.spellings(8000),
        "unknown words": words.unknown(1500),
        "arithmetic": _arithmetic(chance, 16_000),
        "facts": _facts(chance, 24),
        "presidents": _presidents(corpus, chance),
        "continuations": _continuations(prose, chance, 10_000),
        "repetitions": _repetitions(prose, chance, 4000),
        "stories": _stories(chance, 2500),
        "small talk": _small_talk(chance, 300),
    }


def _arithmetic(chance: random.Random, count: int) -> Iterator[Pair]:
    for _ in range(count):
        first, second = chance.randint(0, 99), chance.randint(0, 99)
        sign, word, result = chance.choice(
            (("+", "plus", first + second), ("-", "minus", first - second), ("*", "times", first * second))
        )
        if sign == "*":
            first, second = chance.randint(0, 12), chance.randint(0, 12)
            result = first * second
        elif sign == "-" and result < 0:
            first, second, result = second, first, -result
        elif chance.random() < 0.3:
            first, second = chance.randint(0, 10), chance.randint(0, 10)
            sign, word, result = "+", "plus", first + second
        yield chance.choice(
            (
                (f"What is {first} {word} {second}?", f"{first} {word} {second} is {result}."),
                (f"{first} {sign} {second} = ?", f"{first} {sign} {second} = {result}"),
                (f"What is {first} {sign} {second}?", f"{first} {sign} {second} = {result}"),
                (f"Calculate {first} {sign} {second}.", f"{first} {sign} {second} = {result}"),
                (f"How much is {first} {word} {second}?", f"{first} {word} {second} is {result}."),
                _larger(chance),
            )
        )


def _larger(chance: random.Random) -> Pair:
    first, second = chance.sample(range(100), 2)
    larger = chance.random() < 0.5
    answer = max(first, second) if larger else min(first, second)
    word = "larger" if larger else "smaller"
    return f"Which number is {word}, {first} or {second}?", f"{answer} is {word}."


def _facts(chance: random.Random, repeats: int) -> Iterator[Pair]:
    for _ in range(repeats):
        yield from ANSWERS.items()
        for country, city in CAPITALS.items():
            yield chance.choice(
                (
                    (f"What is the capital of {country}?", f"The capital of {country} is {city}."),
                    (f"Which city is the capital of {country}?", f"{city} is the capital of {country}."),
                    (f"{city} is the capital of which country?", f"{city} is the capital of {country}."),
                    (f"Name the capital of {country}.", f"The capital of {country} is {city}."),
                )
            )
        for book, author in AUTHORS.items():
            yield chance.choice(
                (
                    (f"Who wrote {book}?", f"{author} wrote {book}."),
                    (f"Who is the author of {book}?", f"{book} was written by {author}."),
                    (f"Name the author of {book}.", f"The author of {book} is {author}."),
                    (f"Name a book by {author}.", f"{author} wrote {book}."),
                )
            )
        yield from _calendar(chance)


def _calendar(chance: random.Random) -> Iterator[Pair]:
    for index, day in enumerate(DAYS):
        after, before = DAYS[(index + 1) % 7], DAYS[index - 1]
        yield (
            chance.choice((f"What day comes after {day}?", f"Which day follows {day}?")),
            f"{after} comes after {day}.",
        )
        yield f"What day comes before {day}?", f"{before} comes before {day}."
        yield f"If today is {day}, what day is tomorrow?", f"Tomorrow is {after}."
    names = list(MONTHS)
    for index, (month, days) in enumerate(MONTHS.items()):
        leap = ", and 29 in a leap year" if month == "February" else ""
        yield f"How many days are in {month}?", f"{month} has {days} days{leap}."
        yield f"What month comes after {month}?", f"{names[(index + 1) % 12]} comes after {month}."
        yield f"Which month is before {month}?", f"{names[index - 1]} comes before {month}."


def _presidents(corpus: list[tuple[str, str]], chance: random.Random) -> Iterator[Pair]:
    for _, text in corpus:
        found = re.match(r"State of the Union address of (\d{4}), ([A-Za-z ]+)\.\n", text)
        if found:
            year, name = found.groups()
            for _ in range(4):
                yield chance.choice(
                    (
                        (f"Who gave the State of the Union address in {year}?", f"{name} gave the address of {year}."),
                        (f"Who was president in {year}?", f"{name} gave the State of the Union address of {year}."),
                    )
                )


def _continuations(prose: list[str], chance: random.Random, count: int) -> Iterator[Pair]:
    for _ in range(count):
        sentences = re.findall(r"[A-Z][^.!?\n]{40,220}[.!?]", chance.choice(prose))
        if not sentences:
            continue
        words = chance.choice(sentences).split(" ")
        cut = chance.randint(4, max(5, len(words) // 2))
        begin, end = " ".join(words[:cut]), " ".join(words[cut:])
        if end:
            asked = chance.choice(
                ("Continue: {}", "Continue this sentence: {}", "Complete the sentence: {}", "Go on: {}")
            )
            yield asked.format(begin), end


def _repetitions(prose: list[str], chance: random.Random, count: int) -> Iterator[Pair]:
    for _ in range(count):
        words = [word for word in re.findall(r"[A-Za-z]+", chance.choice(prose)) if len(word) > 1]
        if len(words) < 12:
            continue
        start = chance.randrange(len(words) - 8)
        text = " ".join(words[start : start + chance.randint(1, 7)])
        asked = chance.choice(("Repeat after me: {}", "Say: {}", 'Repeat "{}"', "Say this again: {}", "Echo: {}"))
        yield asked.format(text), text


def _stories(chance: random.Random, count: int) -> Iterator[Pair]:
    for _ in range(count):
        asked = chance.choice(
            ("Tell me a story.", "Tell me a short story.", "Write a story.", "Can you tell me a story?")
        )
        yield asked, story(chance)
        if chance.random() < 0.3:
            subject, lines = poem(chance)
            asked = chance.choice(
                (f"Write a poem about {subject}.", "Write a poem.", f"Write a short poem about {subject}.")
            )
            yield asked, lines


def _small_talk(chance: random.Random, repeats: int) -> Iterator[Pair]:
    for questions, answers in SMALL_TALK:
        for question in questions:
            for _ in range(repeats // len(questions) + 3):
                yield question, chance.choice(answers)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("training/data"))
    written = write_conversations(parser.parse_args().data)
    for name, count in written.items():
        print(f"{count:7d} {name}")
    print(f"{sum(written.values()):7d} pairs in all")
