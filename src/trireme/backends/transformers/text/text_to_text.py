"""Texts to other texts: summaries, translations, answers."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from trireme.backends.compiled.batching import RequestError
from trireme.backends.transformers.items import Item, Outputs, text_array
from trireme.backends.transformers.loading import Loaded
from trireme.backends.transformers.text.generation import Generator, Prompt
from trireme.backends.transformers.text.text_batch import TextBatches


class TextToText:
    """An encoder with a decoder."""

    def __init__(self, loaded: Loaded) -> None:
        self._tokenizer = loaded.tokenizer
        self._texts = TextBatches(loaded)
        settings = _task_settings(loaded)
        self._prefix = str(settings.pop("prefix", "") or "")
        config = loaded.model.generation_config
        for name, value in settings.items():
            if hasattr(config, name):
                setattr(config, name, value)
        self._generator = Generator(loaded, self._texts)
        self._room = _decoder_room(loaded.model.config)
        self._source_language = getattr(loaded.tokenizer, "src_lang", None)

    def prepare(self, item: Item) -> Prompt:
        """Takes `text_input`."""
        extra = self._languages(item.options)
        text = self._prefix + item.text("text_input")
        ids = self._texts.encode(text, truncation=item.options.get("truncation"))
        return self._generator.prompt(item, ids, self._room, extra)

    def key(self, prepared: Prompt) -> Hashable:
        """Texts with equal settings and languages."""
        return self._generator.key(prepared)

    def run(self, prepared: Sequence[Prompt]) -> list[Outputs]:
        """What the model writes for each text."""
        texts = self._generator.generate(prepared, self._texts.pad([prompt.ids for prompt in prepared]))
        return [{"text_output": text_array([text])} for text in texts]

    def _languages(self, options: Mapping[str, Any]) -> dict[str, Any]:
        source, target = options.get("src_lang", self._source_language), options.get("tgt_lang")
        if source is not None and hasattr(self._tokenizer, "src_lang"):
            try:
                self._tokenizer.src_lang = source
            except KeyError:
                raise _unknown_language(source, "src_lang") from None
            if "src_lang" in options:
                self._language_id(source, "src_lang")  # some tokenizers take any
        if target is None:
            return {}
        return {"forced_bos_token_id": self._language_id(target, "tgt_lang")}

    def _language_id(self, language: str, option: str) -> int:
        tokenizer = self._tokenizer
        try:
            if hasattr(tokenizer, "get_lang_id"):
                return int(tokenizer.get_lang_id(language))
        except KeyError:
            pass
        found = tokenizer.convert_tokens_to_ids(language)
        if found is None or found == tokenizer.unk_token_id:
            raise _unknown_language(language, option)
        return int(found)


def _unknown_language(language: str, option: str) -> RequestError:
    return RequestError(f"the model does not know the language '{language}' of '{option}'")


def _task_settings(loaded: Loaded) -> dict[str, Any]:
    """What the model's files say for this very task, such as the words to put before a text."""
    by_task = getattr(loaded.model.config, "task_specific_params", None) or {}
    return dict(by_task.get(loaded.task) or {})


def _decoder_room(config: Any) -> int | None:
    """Decoders with learned positions cannot write more than they have."""
    for name in ("max_target_positions", "max_decoder_position_embeddings", "max_position_embeddings", "n_positions"):
        value = getattr(config, name, None)
        if isinstance(value, int) and value > 1 and config.model_type not in ("t5", "mt5", "umt5", "longt5"):
            return value - 1
    return None
