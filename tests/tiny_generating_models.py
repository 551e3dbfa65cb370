"""Tiny models with random weights that write about images and sounds: folders that `from_pretrained` reads.

They build on `tiny_models` and `tiny_task_models`, and are made like those, once per version of this file:
`python tests/tiny_generating_models.py generating <folder>`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tiny_models
from tiny_task_models import SIZES, let_sounds_differ, save, word_tokenizer

KINDS = (
    "llava",
    "idefics3",
    "blip",
    "blip2",
    "git",
    "captioner",
    "qwen2audio",
)
IMAGE_SIZE = 28
_TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {% for part in message.content %}"
    "{% if part.type == 'image' %}<image>{% elif part.type == 'audio' %}<|AUDIO|>{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
)


def generating_model(kind: str) -> Path:
    """The one folder of this kind that all tests share; nobody changes it. The first to ask makes all kinds."""
    return tiny_models.built(__file__, "generating") / kind


def build(kind: str, folder: Path) -> None:
    """Writes the files; imports torch and transformers."""
    import torch

    torch.manual_seed(0)
    folder.mkdir()
    _BUILDERS[kind.partition("-")[0]](kind, folder)


def padding_tokenizer(folder: Path, *special: str) -> Any:
    """The causal models' tokenizer, with tokens that stand for what is no text."""
    import transformers

    tiny_models.tiny_tokenizer(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<pad>", *special], "pad_token": "<pad>"})
    return tokenizer


def _write_words_by_the_text(language_model: Any, head: Any) -> None:
    """So that no two texts become one: the words of a prompt weigh as much as all that is heard beside them, and single
    bytes, which are one sign of replacement whatever they are, are never the likeliest."""
    import torch

    with torch.no_grad():
        language_model.embed_tokens.weight.mul_(8)
        head.weight[: 1 + 256] = 0  # the end and the bytes, the first ids of the tokenizer


def _text_sizes(tokenizer: Any) -> dict[str, Any]:
    ids = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": tokenizer.pad_token_id}
    return {**SIZES, **ids, "vocab_size": len(tokenizer), "max_position_embeddings": 256}


def _square(size: int = IMAGE_SIZE) -> dict[str, int]:
    return {"height": size, "width": size}


def _llava(_kind: str, folder: Path) -> None:
    import transformers as t

    tokenizer = padding_tokenizer(folder, "<image>")
    images = t.CLIPImageProcessor(size={"shortest_edge": IMAGE_SIZE}, crop_size=_square())
    t.LlavaProcessor(
        images,
        tokenizer,
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=_TEMPLATE,
    ).save_pretrained(folder)
    vision = t.CLIPVisionConfig(image_size=IMAGE_SIZE, patch_size=14, projection_dim=32, **SIZES)
    config = t.LlavaConfig(
        vision_config=vision,
        text_config=t.LlamaConfig(**_text_sizes(tokenizer)),
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
    )
    save(t.LlavaForConditionalGeneration(config), folder)


def _idefics3(_kind: str, folder: Path) -> None:
    import transformers as t

    tokenizer = padding_tokenizer(folder)
    edge = {"longest_edge": IMAGE_SIZE}
    images = t.Idefics3ImageProcessor(size=edge, max_image_size=edge, do_image_splitting=False)
    processor = t.Idefics3Processor(images, tokenizer, image_seq_len=4, chat_template=_TEMPLATE)
    processor.save_pretrained(folder)
    config = t.Idefics3Config(
        vision_config=dict(image_size=IMAGE_SIZE, patch_size=7, **SIZES),
        text_config=t.LlamaConfig(**_text_sizes(tokenizer)),
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        pad_token_id=tokenizer.pad_token_id,
        scale_factor=2,
    )
    save(t.Idefics3ForConditionalGeneration(config), folder)


def _blip(_kind: str, folder: Path) -> None:
    import transformers as t

    tokenizer = word_tokenizer(folder)
    t.BlipProcessor(t.BlipImageProcessor(size=_square()), tokenizer).save_pretrained(folder)
    ids = {"bos_token_id": 2, "sep_token_id": 3, "eos_token_id": 3, "pad_token_id": 0}
    text = {**SIZES, **ids, "vocab_size": len(tokenizer), "max_position_embeddings": 64, "encoder_hidden_size": 32}
    vision = {**SIZES, "image_size": IMAGE_SIZE, "patch_size": 14}
    save(t.BlipForConditionalGeneration(t.BlipConfig(text_config=text, vision_config=vision)), folder)


def _blip2(_kind: str, folder: Path) -> None:
    import transformers as t

    tokenizer = padding_tokenizer(folder, "<image>")
    tokenizer.image_token = None
    images = t.BlipImageProcessor(size=_square())
    t.Blip2Processor(images, tokenizer, num_query_tokens=4).save_pretrained(folder)
    sizes = {name: size for name, size in _text_sizes(tokenizer).items() if name != "intermediate_size"}
    config = t.Blip2Config(
        vision_config=dict(image_size=IMAGE_SIZE, patch_size=14, **SIZES),
        qformer_config=dict(encoder_hidden_size=32, vocab_size=8, cross_attention_frequency=1, **SIZES),
        text_config=t.OPTConfig(ffn_dim=64, word_embed_proj_dim=32, **sizes).to_dict(),
        num_query_tokens=4,
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
    )
    save(t.Blip2ForConditionalGeneration(config), folder)


def _git(_kind: str, folder: Path) -> None:
    import transformers as t

    tokenizer = word_tokenizer(folder)
    images = t.CLIPImageProcessor(size={"shortest_edge": IMAGE_SIZE}, crop_size=_square())
    t.GitProcessor(images, tokenizer).save_pretrained(folder)
    config = t.GitConfig(
        vision_config=dict(image_size=IMAGE_SIZE, patch_size=14, **SIZES),
        vocab_size=len(tokenizer),
        max_position_embeddings=64,
        bos_token_id=2,
        eos_token_id=3,
        **SIZES,
    )
    save(t.GitForCausalLM(config), folder)


def _captioner(_kind: str, folder: Path) -> None:
    """A ViT with a GPT-2, and no processor that would join what prepares images and texts."""
    import transformers as t

    tiny_models.tiny_tokenizer(folder)
    vision = t.ViTConfig(image_size=IMAGE_SIZE, patch_size=14, **SIZES)
    text = t.GPT2Config(vocab_size=tiny_models.VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=64)
    config = t.VisionEncoderDecoderConfig.from_encoder_decoder_configs(vision, text)
    config.decoder_start_token_id = config.eos_token_id = config.pad_token_id = 0
    save(t.VisionEncoderDecoderModel(config=config), folder)
    processor = {"image_processor_type": "ViTImageProcessor", "size": _square()}
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))


def _qwen2audio(_kind: str, folder: Path) -> None:
    import transformers as t

    tokenizer = padding_tokenizer(folder, "<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>")
    extractor = t.WhisperFeatureExtractor(feature_size=8, chunk_length=2)
    t.Qwen2AudioProcessor(extractor, tokenizer, chat_template=_TEMPLATE).save_pretrained(folder)
    audio = {"num_mel_bins": 8, "d_model": 32, "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 64}
    config = t.Qwen2AudioConfig(
        audio_config=dict(max_source_positions=100, **audio),
        text_config=dict(model_type="qwen2", num_key_value_heads=4, **_text_sizes(tokenizer)),
        audio_token_index=tokenizer.convert_tokens_to_ids("<|AUDIO|>"),
        pad_token_id=tokenizer.pad_token_id,
    )
    model = t.Qwen2AudioForConditionalGeneration(config)
    let_sounds_differ(model.model.audio_tower)
    _write_words_by_the_text(model.model.language_model, model.lm_head)
    save(model, folder)


_BUILDERS: dict[str, Callable[[str, Path], None]] = {
    "llava": _llava,
    "idefics3": _idefics3,
    "blip": _blip,
    "blip2": _blip2,
    "git": _git,
    "captioner": _captioner,
    "qwen2audio": _qwen2audio,
}

if __name__ == "__main__":
    for name in KINDS:
        build(name, Path(sys.argv[2]) / name)
