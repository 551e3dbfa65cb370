"""The flags of commands beside the server's: a wrong one is told with its neighbour, as of the server."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import NoReturn

from trireme.core.close_names import closest

_UNRECOGNIZED = "unrecognized arguments: "


def flag_suggestion(flag: str, known: Iterable[str]) -> str:
    """The end of a sentence about a flag that is not known; both are without their dashes. Empty: nothing is near."""
    nearest = closest(flag.replace("_", "-"), known)
    return f". Did you mean '--{nearest}'?" if nearest else ""


def positive(text: str) -> int:
    """The value of a flag that is a whole number of at least one."""
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, found '{text}'") from None
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, found {value}")
    return value


class FlagParser(argparse.ArgumentParser):
    """Argparse's, which knows flags by their neighbours too."""

    def error(self, message: str) -> NoReturn:
        super().error(self.explained(message))

    def explained(self, message: str) -> str:
        """The sentence with what was probably meant, where it is about a flag."""
        wrong = next((word for word in message.removeprefix(_UNRECOGNIZED).split() if word.startswith("--")), None)
        if not message.startswith(_UNRECOGNIZED) or wrong is None:
            return message
        known = [text[2:] for action in self._actions for text in action.option_strings if text.startswith("--")]
        return message + flag_suggestion(wrong.removeprefix("--").partition("=")[0], known)
