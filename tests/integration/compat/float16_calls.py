"""What a model file does with models of float16, each as a call that is to work."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import transformers

HALF = {"torch_dtype": torch.float16}
IDS = torch.tensor([[5, 6, 7, 8]])
PIXELS = torch.linspace(-1, 1, 3 * 32 * 32).reshape(1, 3, 32, 32)
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


def make(attempt: Callable[[str, Callable[[], Any]], None], folder: str, scratch: str) -> None:
    """Makes all of them, with the model in the folder and with others that are written to the scratch folder."""
    texts = transformers.AutoModelForCausalLM
    model = texts.from_pretrained(folder, **HALF).eval()
    hidden = torch.zeros(1, 4, model.config.hidden_size, dtype=torch.float16)
    ones = torch.ones_like(IDS)
    rules = {"attention_mask": ones, "max_new_tokens": 4, "do_sample": False, "pad_token_id": 0}
    attempt("logits of float16", lambda: described(model(IDS).logits))
    attempt("values of float16", lambda: model(IDS).logits[0, -1, :8].tolist())
    attempt("text of float16", lambda: model.generate(IDS, **rules).tolist())
    attempt("fixed cache", lambda: model.generate(IDS, cache_implementation="static", **rules).tolist())
    attempt("float16 in", lambda: described(model(inputs_embeds=hidden, output_hidden_states=True).hidden_states[1]))
    attempt("no dictionary", lambda: described(model(IDS, return_dict=False)[0]))
    attempt("type", lambda: str(model.dtype))
    attempt("a layer of its type", lambda: described(behind(model)(model(IDS).logits)))
    attempt("forward by itself", lambda: described(model.forward(inputs_embeds=hidden).logits))
    attempt("a copy", lambda: described(copy.deepcopy(model)(IDS).logits))
    attempt("float16 from float32", lambda: described(texts.from_pretrained(folder).half()(IDS).logits))
    attempt("converted twice", lambda: described(model.half().to(torch.float16)(IDS).logits))
    attempt("back to float32", lambda: described(texts.from_pretrained(folder, **HALF).float()(IDS).logits))
    attempt("float32 of an owner", lambda: described(Owner(folder).float()(IDS)))
    attempt("float16 of an owner", lambda: described(Owner(folder).half()(IDS)))
    images = transformers.ViTForImageClassification(transformers.ViTConfig(image_size=32, patch_size=8, **SIZES))
    images.half().save_pretrained(f"{scratch}/images")
    of_images = transformers.AutoModelForImageClassification.from_pretrained
    saved = of_images(f"{scratch}/images", dtype="auto")
    attempt("float16 in the files", lambda: described(saved(PIXELS.half()).logits))
    both = transformers.CLIPConfig(
        text_config={"vocab_size": 100, "max_position_embeddings": 20, **SIZES},
        vision_config={"image_size": 32, "patch_size": 8, **SIZES},
        projection_dim=16,
    )
    transformers.CLIPModel(both).save_pretrained(f"{scratch}/both")
    pairs = transformers.CLIPModel.from_pretrained(f"{scratch}/both", **HALF).eval()
    attempt("images and texts", lambda: described(pairs(input_ids=IDS, pixel_values=PIXELS.half()).logits_per_image))
    attempt("features", lambda: described(pairs.get_image_features(pixel_values=PIXELS.half())))
    attempt("a part", lambda: list(pairs.vision_model(PIXELS.half()).last_hidden_state.shape))


class Owner(torch.nn.Module):
    """A model of the file's own, with one of the library in it."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.body = transformers.AutoModel.from_pretrained(folder, **HALF)
        self.head = torch.nn.Linear(self.body.config.hidden_size, 2)

    def forward(self, ids: Any) -> Any:
        return self.head(self.body(ids).last_hidden_state[:, 0])


def behind(model: Any) -> Any:
    """A layer of the file's own that is to take what the model gives."""
    return torch.nn.Linear(model.config.vocab_size, 2).to(model.dtype)


def described(value: Any) -> str:
    """The type of what a model returned, in numpy's words, as it would be sent."""
    tensor = value if isinstance(value, torch.Tensor) else value.pooler_output
    return str(tensor.detach().numpy().dtype)
