"""The model's inputs out of a prompt with images and sounds, as the model's own processor makes them."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

from trireme.backends.compiled.batching import RequestError
from trireme.backends.compiled.model_load import ModelLoadError, require
from trireme.backends.transformers.loading import Loaded
from trireme.backends.transformers.multimodal.image_text_material import Material

_BLANK_SIDE = 64
_SURPLUS = ("token_type_ids", "labels", "num_audio_tokens")
"""What some processors give although their models do not take it."""


class PromptProcessor:
    """Calls the processor for one prompt at a time."""

    def __init__(self, loaded: Loaded) -> None:
        require("PIL", "transformers")
        self._settings = loaded.settings
        self._source = loaded.source
        self._tokenizer = loaded.tokenizer or loaded.processor
        self._is_image_to_decoder = loaded.model.config.model_type == "vision-encoder-decoder"
        self._processor = loaded.processor
        self._images: Any = getattr(loaded.processor, "image_processor", None)
        if self._images is None and self._is_image_to_decoder:  # its files have both, and nothing that joins them
            self._images = loaded.beside("AutoImageProcessor")
        self._placeholders = {kind: self._placeholder(kind) for kind in ("image", "audio")}
        accepted = {**inspect.signature(loaded.model.forward).parameters}
        generating = inspect.signature(loaded.model.generate).parameters
        accepted |= generating
        pixels = generating.get("pixel_values")
        self._needs_image = pixels is not None and pixels.default is pixels.empty
        self._dropped = [name for name in _SURPLUS if name not in accepted]
        if loaded.settings.is_chat and not getattr(loaded.processor, "chat_template", None):
            raise ModelLoadError(
                f"the processor of model '{loaded.settings.name}' ('{loaded.source}') has no chat template, which the "
                "parameter 'chat' needs; use a model that was made for conversations, or leave 'chat' out"
            )

    @property
    def sound_rate(self) -> int | None:
        """Samples per second of the sounds that it takes; None where it takes none."""
        extractor = getattr(self._processor, "feature_extractor", None)
        return None if extractor is None else int(extractor.sampling_rate)

    def inputs(self, material: Material) -> dict[str, Any]:
        """Tensors by the names of the model's arguments, with one row of ids; raises RequestError."""
        if material.images and self._images is None:
            raise RequestError("the model does not take images")
        if self._needs_image and not material.images:
            raise RequestError("input 'image' is missing: this model writes about an image alone")
        text, options = material.text, {}
        if material.messages:
            text = self._conversation(material)
            bos = getattr(self._tokenizer, "bos_token", None)
            if bos and text.startswith(bos):
                options["add_special_tokens"] = False
        try:
            found = self._called(text, material, options)
        except RequestError:
            raise
        except Exception as error:  # processors raise all kinds for what does not fit together
            text = str(error).strip() or type(error).__name__
            raise RequestError(f"the model's processor does not take this: {text}") from error
        return {name: value for name, value in found.items() if name not in self._dropped}

    def _called(self, text: str | None, material: Material, options: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._is_image_to_decoder:
            return self._image_and_start(text, material)
        given: dict[str, Any] = {"return_tensors": "pt", **options}
        if material.images:
            given["images"] = list(material.images)
        if material.sounds:
            given["audio"] = list(material.sounds)
        if text is None:
            if material.sounds or self._placeholders["image"] is not None:
                raise RequestError("input 'text_input' is missing: this model takes a prompt beside the image")
            return dict(self._processor(**given))
        for kind, things in (("image", material.images), ("audio", material.sounds)):
            text = self._with_placeholders(text, kind, len(things), bool(material.messages))
        return dict(self._processor(text=text, **given))

    def _image_and_start(self, text: str | None, material: Material) -> Mapping[str, Any]:
        """A decoder that starts from the text, if there is one, and looks at one image."""
        if len(material.images) != 1:
            raise RequestError(f"the model takes one image, and the request has {len(material.images)}")
        found = {"pixel_values": self._images(list(material.images), return_tensors="pt")["pixel_values"]}
        if text:
            encoded = self._tokenizer(text, add_special_tokens=False, return_tensors="pt")
            found["decoder_input_ids"] = encoded["input_ids"]
        return found

    def _conversation(self, material: Material) -> str:
        # A conversation that ends in the assistant's words is one to go on with them.
        is_begun = material.messages[-1].get("role") == "assistant"
        try:
            return str(
                self._processor.apply_chat_template(
                    list(material.messages),
                    tokenize=False,
                    add_generation_prompt=not is_begun,
                    continue_final_message=is_begun,
                )
            )
        except Exception as error:  # templates raise for orders of roles that they do not know
            raise RequestError(f"the model's chat template does not take these messages: {error}") from error

    def _with_placeholders(self, text: str, kind: str, count: int, is_templated: bool) -> str:
        """The prompt with as many placeholders as there are things; without any, they are put in front, unless it is
        the work of a template, which knows better."""
        placeholder = self._placeholders[kind]
        if placeholder is None:
            return text
        found = text.count(placeholder)
        if found == 0:
            return text if is_templated else placeholder * count + text
        if found != count:
            raise RequestError(
                f"the prompt has {found} times the {kind} placeholder '{placeholder}', and the request has {count} of "
                f"input '{kind}'; make them equal, or leave the placeholders out to have them put in front"
            )
        return text

    def _placeholder(self, kind: str) -> str | None:
        """The text that stands for a thing in a prompt; None where the processor places it by itself."""
        token = getattr(self._processor, f"{kind}_token", None)
        if token is None or (kind == "image" and self._places_images(str(token))):
            return None
        return str(token)

    def _places_images(self, token: str) -> bool:
        """Found out with a blank image: processors do not say."""
        blank = importlib.import_module("PIL.Image").new("RGB", (_BLANK_SIDE, _BLANK_SIDE))
        try:
            found = self._processor(text="a", images=[blank], return_tensors="pt")
        except Exception:  # which they raise in many ways for want of a placeholder
            return False
        return bool((found["input_ids"] == self._tokenizer.convert_tokens_to_ids(token)).any())
