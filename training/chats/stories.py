"""Little stories and verses that answer "tell me a story" and "write a poem"."""

from __future__ import annotations

import random

from training.chats.facts import NAMES

_HEROES = "fox|old sailor|young girl|mouse|shepherd|little owl|boy|king|baker|hare|bear|farmer|princess|cat|crow|miller".split(
    "|"
)
_TRAITS = "clever|lonely|brave|lazy|curious|kind|proud|poor|quiet|hungry|cheerful|patient".split("|")
_PLACES = (
    "by the sea|in a deep forest|in a small village|on a high hill|beside a river|in an old castle|on an island".split(
        "|"
    )
)
_FINDS = "a golden key|a broken boat|a lantern|a letter|a lost lamb|an old map|a strange stone|a small box|a silver ring".split(
    "|"
)
_OTHERS = (
    "a wise old woman|a traveller|a wolf|an old friend|a soldier|a bird with a broken wing|a merchant|a child".split(
        "|"
    )
)
_WISHES = (
    "was looking for it|had lost it long ago|needed it to get home|asked for help|wanted to buy it|began to weep".split(
        "|"
    )
)
_DEEDS = "gave it away without a word|asked for nothing in return|shared a loaf of bread|carried it all the way home|promised to keep it safe|helped until the sun went down".split(
    "|"
)
_ENDS = (
    "From that day on the two were friends.|And so everyone slept well that night.|"
    "A year later the kindness came back a hundred times.|It was a small thing, but nobody ever forgot it.|"
    "He who gives gladly is never poor.|And that is how the village got its name."
).split("|")
_WEATHER = "One morning|One cold evening|On a windy day|One night, when the moon was full,|In the middle of winter|One day in spring".split(
    "|"
)

_SUBJECTS = (
    "the sea|the moon|a winter night|the morning|an old tree|the rain|a candle|the wind|a river|the stars".split("|")
)
_COUPLETS = (
    "The light is low, the day is done,|And gone to rest the weary sun.#"
    "The wind goes walking through the trees|And sings its song to all the bees.#"
    "O gentle night, so deep and still,|The stars are shining on the hill.#"
    "The waves come in, the waves go out,|And gulls are wheeling all about.#"
    "I lit a lamp, I closed the door,|And heard the sea upon the shore.#"
    "The river runs, it does not wait,|It passes by the garden gate.#"
    "Sleep now, my heart, the hour is late,|The moon is leaning on the gate.#"
    "The snow lies white on field and lane,|And spring will come to us again.#"
    "The rain is tapping on the stone,|And no one walks the road alone.#"
    "The morning wakes, the birds begin,|So open wide and let them in."
).split("#")


def story(chance: random.Random) -> str:
    """A story of a few sentences."""
    hero, name = chance.choice(_HEROES), chance.choice(NAMES)
    trait, other, find = chance.choice(_TRAITS), chance.choice(_OTHERS), chance.choice(_FINDS)
    article = "an" if trait[0] in "aeiou" else "a"
    who = f"the {hero}"
    return " ".join(
        [
            f"Once upon a time there was {article} {trait} {hero} named {name}, who lived {chance.choice(_PLACES)}.",
            f"{chance.choice(_WEATHER)} {name} found {find}.".replace(",.", "."),
            f"Soon {other} came along and {chance.choice(_WISHES)}.",
            f"So {who} {chance.choice(_DEEDS)}.",
            chance.choice(_ENDS),
        ]
    )


def poem(chance: random.Random) -> tuple[str, str]:
    """(what it is about, four lines)."""
    first, second = chance.sample(_COUPLETS, 2)
    return chance.choice(_SUBJECTS), "\n".join([*first.split("|"), *second.split("|")])
