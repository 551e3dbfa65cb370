"""Tiny models with random weights for the tasks of images and videos, as folders that `from_pretrained` reads.

Made like those of `tiny_task_models`: `python tests/tiny_image_models.py images <folder>`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tiny_models
from tiny_task_models import BOTH_SIZES, LABELS, SIZES, save

_SIDE = 32
_STAGES = {
    "depths": [1, 1, 1, 1],
    "hidden_sizes": [8, 16, 24, 32],
    "num_attention_heads": [1, 2, 2, 4],
    "decoder_hidden_size": 16,
}
"""Of an encoder whose pictures become smaller from stage to stage."""


def image_model(kind: str) -> Path:
    """The one folder of this kind that all tests share; nobody changes it. The first to ask makes all kinds."""
    return tiny_models.built(__file__, "images") / kind


def build(kind: str, folder: Path) -> None:
    """Writes the files; imports torch and transformers."""
    import torch

    torch.manual_seed(0)
    folder.mkdir()
    BUILDERS[kind](folder)


def _write_processor(folder: Path, kind: str, **settings: Any) -> None:
    (folder / "preprocessor_config.json").write_text(json.dumps({"image_processor_type": kind, **settings}))


def _square(side: int = _SIDE) -> dict[str, int]:
    return {"height": side, "width": side}


def _segformer(folder: Path) -> None:
    import transformers

    save(
        transformers.SegformerForSemanticSegmentation(transformers.SegformerConfig(id2label=LABELS, **_STAGES)), folder
    )
    _write_processor(folder, "SegformerImageProcessor", size=_square(64))


def _glpn(folder: Path) -> None:
    import transformers

    save(transformers.GLPNForDepthEstimation(transformers.GLPNConfig(**_STAGES)), folder)
    _write_processor(folder, "GLPNImageProcessor", size_divisor=32)


def _dpt(folder: Path) -> None:
    import transformers

    config = transformers.DPTConfig(
        image_size=_SIDE,
        patch_size=8,
        backbone_out_indices=[0, 1, 2, 3],
        neck_hidden_sizes=[8, 8, 16, 16],
        fusion_hidden_size=16,
        **{**SIZES, "num_hidden_layers": 4},
    )
    save(transformers.DPTForDepthEstimation(config), folder)
    _write_processor(folder, "DPTImageProcessor", size=_square())


def _detr(folder: Path) -> None:
    """Segments that are things and segments that are stuff."""
    import transformers

    backbone = transformers.ResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 16, 16, 32],
        depths=[1, 1, 1, 1],
        layer_type="basic",
        out_features=["stage1", "stage2", "stage3", "stage4"],
    )
    config = transformers.DetrConfig(
        use_timm_backbone=False,
        backbone_config=backbone,
        num_queries=8,
        id2label=LABELS,
        **{**BOTH_SIZES, "encoder_attention_heads": 8, "decoder_attention_heads": 8},
    )
    model = transformers.DetrForSegmentation(config)
    _let_queries_differ(model)
    save(model, folder, 2)
    _write_processor(folder, "DetrImageProcessor", size={"shortest_edge": 64, "longest_edge": 128})


def _let_queries_differ(model: Any) -> None:
    """So that there is more than one segment: queries that look at other places, masks that follow where they look."""
    import torch

    attentions = [layer.encoder_attn for layer in model.detr.model.decoder.layers]
    with torch.no_grad():
        for attention in (*attentions, model.bbox_attention):
            attention.q_proj.weight.mul_(10)
            attention.k_proj.weight.mul_(10)
        model.detr.model.query_position_embeddings.weight.mul_(40)
        model.detr.class_labels_classifier.weight.mul_(3)
        model.detr.class_labels_classifier.bias[-1] = -5  # to be nothing
        model.mask_head.conv1.conv.weight[:, model.config.d_model :].mul_(50)
        for stage in model.mask_head.fpn_stages:
            stage.fpn_adapter.weight.mul_(0.02)


def _sam(folder: Path) -> None:
    import transformers

    side, hidden = 64, 16
    config = transformers.SamConfig(
        vision_config=transformers.SamVisionConfig(
            hidden_size=hidden,
            output_channels=hidden,
            num_hidden_layers=2,
            num_attention_heads=2,
            image_size=side,
            patch_size=8,
            window_size=4,
            global_attn_indexes=[1],
            num_pos_feats=hidden // 2,
            initializer_range=0.02,
            mlp_dim=32,
        ),
        prompt_encoder_config=transformers.SamPromptEncoderConfig(
            hidden_size=hidden, image_size=side, patch_size=8, mask_input_channels=4
        ),
        mask_decoder_config=transformers.SamMaskDecoderConfig(
            hidden_size=hidden, mlp_dim=32, num_attention_heads=2, iou_head_hidden_dim=hidden
        ),
    )
    model = transformers.SamModel(config)
    decoder = model.mask_decoder
    for head in (*decoder.output_hypernetworks_mlps, decoder.iou_prediction_head):
        head.proj_out.weight.data.mul_(50)  # masks and scores that differ from point to point
    save(model, folder)
    _write_processor(
        folder,
        "SamImageProcessor",
        size={"longest_edge": side},
        pad_size=_square(side),
        mask_size={"longest_edge": side // 4},
        mask_pad_size=_square(side // 4),
    )


def _vit(folder: Path) -> None:
    import transformers

    save(transformers.ViTModel(transformers.ViTConfig(image_size=_SIDE, patch_size=8, **SIZES)), folder)
    _write_processor(folder, "ViTImageProcessor", size=_square())


def _resnet(folder: Path) -> None:
    """A model whose features are maps."""
    import transformers

    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
    save(transformers.ResNetModel(config), folder)
    _write_processor(folder, "ConvNextImageProcessor", size={"shortest_edge": _SIDE}, crop_pct=1.0)


def _superglue(folder: Path) -> None:
    import transformers

    detector = transformers.SuperPointConfig(
        encoder_hidden_sizes=[8, 8, 16, 16],
        decoder_hidden_size=16,
        descriptor_decoder_dim=16,
        keypoint_threshold=0.0,
        max_keypoints=-1,
        nms_radius=2,
        border_removal_distance=2,
    )
    config = transformers.SuperGlueConfig(
        keypoint_detector_config=detector,
        hidden_size=16,
        keypoint_encoder_sizes=[8, 16],
        gnn_layers_types=["self", "cross"],
        num_attention_heads=2,
        sinkhorn_iterations=10,
    )
    save(transformers.SuperGlueForKeypointMatching(config), folder)
    _write_processor(folder, "SuperGlueImageProcessor", size=_square(64))


def _videomae(folder: Path) -> None:
    import transformers

    config = transformers.VideoMAEConfig(
        image_size=_SIDE, patch_size=8, num_frames=4, tubelet_size=2, id2label=LABELS, **SIZES
    )
    save(transformers.VideoMAEForVideoClassification(config), folder)
    _write_processor(folder, "VideoMAEImageProcessor", size={"shortest_edge": _SIDE}, crop_size=_square())


BUILDERS: dict[str, Callable[[Path], None]] = {
    "segformer": _segformer,
    "detr": _detr,
    "glpn": _glpn,
    "dpt": _dpt,
    "sam": _sam,
    "vit-features": _vit,
    "resnet-features": _resnet,
    "superglue": _superglue,
    "videomae": _videomae,
}

if __name__ == "__main__":
    for name in BUILDERS:
        build(name, Path(sys.argv[2]) / name)
