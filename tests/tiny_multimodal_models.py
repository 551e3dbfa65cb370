"""Tiny models with random weights that take inputs of several kinds, and those that answer questions about tables.

As with `tiny_task_models`, all are made once per version of this file by a process of its own:
`python tests/tiny_multimodal_models.py multimodal <folder>`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tiny_models
import tiny_task_models

KINDS = (
    "clip",
    "siglip",
    "owlvit",
    "grounding",
    "clap",
    "clap-fused",
    "layoutlm",
    "layoutlmv3",
    "donut",
    "tapas",
    "tapas-selecting",
)
AGGREGATIONS = {0: "NONE", 1: "SUM", 2: "AVERAGE", 3: "COUNT"}
_END, _PADDING = 3, 0  # of the tokenizer over words
_TEXT = {**tiny_task_models.SIZES, "pad_token_id": _PADDING}
_DOCUMENT_WORDS = ("<s_docvqa>", "<s_question>", "</s_question>", "<s_answer>", "</s_answer>")


def multimodal_model(kind: str) -> Path:
    """The one folder of this kind that all tests share; nobody changes it. The first to ask makes all kinds."""
    return tiny_models.built(__file__, "multimodal") / kind


def build(kind: str, folder: Path) -> None:
    """Writes the files; imports torch and transformers."""
    import torch

    torch.manual_seed(0)
    folder.mkdir()
    _BUILDERS[kind.partition("-")[0]](kind, folder)


def _write_processor(folder: Path, name: str, **settings: Any) -> None:
    (folder / "preprocessor_config.json").write_text(json.dumps({"image_processor_type": name, **settings}))


def _square(side: int) -> dict[str, int]:
    return {"height": side, "width": side}


def _clip(_kind: str, folder: Path) -> None:
    import transformers

    words = len(tiny_task_models.word_tokenizer(folder))
    text = {**_TEXT, "vocab_size": words, "max_position_embeddings": 24, "eos_token_id": _END, "bos_token_id": 2}
    config = transformers.CLIPConfig(
        text_config=text, vision_config={**tiny_task_models.SIZES, "image_size": 32, "patch_size": 8}, projection_dim=16
    )
    tiny_task_models.save(transformers.CLIPModel(config), folder)
    _write_processor(folder, "CLIPImageProcessor", size={"shortest_edge": 32}, crop_size=_square(32))


def _siglip(_kind: str, folder: Path) -> None:
    import transformers

    words = len(tiny_task_models.word_tokenizer(folder))
    ends = {"eos_token_id": _END, "bos_token_id": 2}
    text = {**_TEXT, **ends, "vocab_size": words, "max_position_embeddings": 64, "projection_size": 32}
    config = transformers.SiglipConfig(
        text_config=text, vision_config={**tiny_task_models.SIZES, "image_size": 32, "patch_size": 8}
    )
    tiny_task_models.save(transformers.SiglipModel(config), folder)
    _write_processor(folder, "SiglipImageProcessor", size=_square(32))


def _owlvit(_kind: str, folder: Path) -> None:
    import torch
    import transformers

    words = len(tiny_task_models.word_tokenizer(folder))
    text = {**_TEXT, "vocab_size": words, "max_position_embeddings": 16, "eos_token_id": _END, "bos_token_id": 2}
    config = transformers.OwlViTConfig(
        text_config=text, vision_config={**tiny_task_models.SIZES, "image_size": 32, "patch_size": 8}, projection_dim=32
    )
    model = transformers.OwlViTForObjectDetection(config).eval()
    with torch.no_grad():
        for head in (model.box_head, model.class_head):
            for parameter in head.parameters():
                parameter.mul_(0.2)  # or every box would be at the rim of its image
    model.save_pretrained(folder)
    _write_processor(folder, "OwlViTImageProcessor", size=_square(32), crop_size=_square(32))


def _grounding(_kind: str, folder: Path) -> None:
    import transformers

    words = len(tiny_task_models.word_tokenizer(folder))
    sight = {"image_size": 64, "embed_dim": 16, "depths": [1, 1, 1], "num_heads": [2, 2, 2], "window_size": 4}
    config = transformers.GroundingDinoConfig(
        backbone_config={"model_type": "swin", **sight, "out_features": ["stage2", "stage3"]},
        text_config={"model_type": "bert", **_TEXT, "vocab_size": words, "max_position_embeddings": 64},
        num_queries=12,
        d_model=32,
        encoder_layers=1,
        decoder_layers=2,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        num_feature_levels=2,
        max_text_len=32,
        disable_custom_kernels=True,
    )
    transformers.GroundingDinoForObjectDetection(config).eval().save_pretrained(folder)
    _write_processor(folder, "GroundingDinoImageProcessor", size={"shortest_edge": 64, "longest_edge": 96})


def _clap(kind: str, folder: Path) -> None:
    import transformers

    tokenizer = tiny_task_models.word_tokenizer(folder)
    file = folder / "tokenizer_config.json"
    names = ["input_ids", "attention_mask"]  # what the tokenizer gives that these models come with
    file.write_text(json.dumps({**json.loads(file.read_text()), "model_input_names": names}))
    is_fused = kind.endswith("fused")
    fusion = {"enable_fusion": True, "fusion_type": "aff_2d", "aff_block_r": 1} if is_fused else {}
    config = transformers.ClapConfig(
        text_config={**_TEXT, "vocab_size": len(tokenizer), "max_position_embeddings": 66},
        audio_config={
            "spec_size": 128,
            "num_mel_bins": 64,
            "window_size": 4,
            "patch_embeds_hidden_size": 16,
            "hidden_size": 32,
            "depths": [1, 1],
            "num_attention_heads": [2, 2],
            "num_hidden_layers": 2,
            **fusion,
        },
        projection_dim=16,
    )
    tiny_task_models.save(transformers.ClapModel(config), folder)
    extractor = transformers.ClapFeatureExtractor(
        feature_size=64,
        sampling_rate=16000,
        hop_length=160,
        max_length_s=2,
        fft_window_size=512,
        frequency_max=8000,
        truncation="fusion" if is_fused else "rand_trunc",
    )
    extractor.save_pretrained(folder)


def _layoutlm(_kind: str, folder: Path) -> None:
    import transformers

    words = len(tiny_task_models.word_tokenizer(folder))
    config = transformers.LayoutLMConfig(vocab_size=words, max_position_embeddings=64, **_TEXT)
    tiny_task_models.save(transformers.LayoutLMForQuestionAnswering(config), folder)


def _layoutlmv3(_kind: str, folder: Path) -> None:
    import transformers
    from tokenizers.pre_tokenizers import ByteLevel

    special = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
    vocabulary = {token: index for index, token in enumerate([*special, *sorted(ByteLevel.alphabet())])}
    tokenizer = transformers.LayoutLMv3TokenizerFast(vocab=vocabulary, merges=[], model_max_length=60)
    tokenizer.save_pretrained(folder)
    config = transformers.LayoutLMv3Config(
        vocab_size=len(tokenizer),
        max_position_embeddings=66,
        coordinate_size=4,
        shape_size=8,
        input_size=32,
        patch_size=8,
        **{**_TEXT, "pad_token_id": 1},
    )
    tiny_task_models.save(transformers.LayoutLMv3ForQuestionAnswering(config), folder)
    _write_processor(folder, "LayoutLMv3ImageProcessor", size=_square(32), apply_ocr=True)


def _donut(_kind: str, folder: Path) -> None:
    import transformers

    tokenizer = tiny_task_models.word_tokenizer(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": list(_DOCUMENT_WORDS), "eos_token": "[SEP]"})
    tokenizer.save_pretrained(folder)
    sight = transformers.DonutSwinConfig(
        image_size=[32, 32], patch_size=4, embed_dim=16, depths=[1, 1], num_heads=[2, 2], window_size=4
    )
    writing = transformers.MBartConfig(
        vocab_size=len(tokenizer),
        d_model=32,
        decoder_layers=2,
        decoder_attention_heads=4,
        decoder_ffn_dim=64,
        max_position_embeddings=48,
        is_decoder=True,
        add_cross_attention=True,
        pad_token_id=_PADDING,
        eos_token_id=_END,
        bos_token_id=2,
        forced_eos_token_id=None,
    )
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(sight, writing)
    config.decoder_start_token_id, config.pad_token_id, config.eos_token_id = 2, _PADDING, _END
    model = transformers.VisionEncoderDecoderModel(config=config)
    model.generation_config.max_length = 40
    model.generation_config.pad_token_id = _PADDING
    model.generation_config.eos_token_id = _END
    model.generation_config.decoder_start_token_id = 2
    # Random weights hardly ever end an answer.
    model.generation_config.forced_eos_token_id = tokenizer.convert_tokens_to_ids("</s_answer>")
    tiny_task_models.save(model, folder)
    _write_processor(folder, "DonutImageProcessor", size=_square(32), do_align_long_axis=False)


def _tapas(kind: str, folder: Path) -> None:
    import transformers

    tiny_task_models.word_tokenizer(folder)
    vocabulary = [
        *(folder / "vocab.txt").read_text().splitlines(),
        *"0123456789",
        *(f"##{digit}" for digit in range(10)),
    ]
    vocabulary.append("[EMPTY]")
    for file in folder.iterdir():
        file.unlink()
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    settings = {
        "tokenizer_class": "TapasTokenizer",
        "model_max_length": 64,
    }  # made by hand: it could not without pandas
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    is_selecting = kind.endswith("selecting")  # of cells alone, without doing sums with them
    aggregation = {} if is_selecting else {"num_aggregation_labels": 4, "aggregation_labels": AGGREGATIONS}
    config = transformers.TapasConfig(
        vocab_size=len(vocabulary),
        max_position_embeddings=64,
        no_aggregation_label_index=None if is_selecting else 0,
        **aggregation,
        **_TEXT,
    )
    model = transformers.TapasForQuestionAnswering(config)
    _let_questions_choose(model)
    tiny_task_models.save(model, folder)


def _let_questions_choose(model: Any) -> None:
    """So that cells are chosen, and other ones for other questions: tokens look at few others, and words and what the
    question before has chosen weigh more than the places of a table."""
    import torch

    embeddings = model.tapas.embeddings
    kinds = [getattr(embeddings, f"token_type_embeddings_{index}") for index in range(7)]
    with torch.no_grad():
        for table in (*kinds, embeddings.position_embeddings):
            table.weight.mul_(0.3)
        kinds[3].weight.mul_(20)  # of what was chosen before
        embeddings.word_embeddings.weight.mul_(3)
        for layer in model.tapas.encoder.layer:
            layer.attention.self.query.weight.mul_(6)
            layer.attention.self.key.weight.mul_(6)
            layer.attention.self.value.weight.mul_(2)
            layer.attention.output.dense.weight.mul_(2)
        model.output_bias.add_(0.15)


_BUILDERS: dict[str, Callable[[str, Path], None]] = {
    "clip": _clip,
    "siglip": _siglip,
    "owlvit": _owlvit,
    "grounding": _grounding,
    "clap": _clap,
    "layoutlm": _layoutlm,
    "layoutlmv3": _layoutlmv3,
    "donut": _donut,
    "tapas": _tapas,
}

if __name__ == "__main__":
    for name in KINDS:
        build(name, Path(sys.argv[2]) / name)
