"""Tiny models with random weights that make sound of texts, as folders that `from_pretrained` reads.

They build on `tiny_generating_models`, and are made like those, once per version of this file:
`python tests/tiny_speaking_models.py speaking <folder>`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tiny_models
from tiny_generating_models import padding_tokenizer
from tiny_task_models import save, word_tokenizer

KINDS = ("vits", "bark", "speecht5", "musicgen", "musicgen-stereo")
SPEAKER_SIZE = 8
RATE = 16000
_CODES = 16


def speaking_model(kind: str) -> Path:
    """The one folder of this kind that all tests share; nobody changes it. The first to ask makes all kinds."""
    return tiny_models.built(__file__, "speaking") / kind


def build(kind: str, folder: Path) -> None:
    """Writes the files; imports torch and transformers."""
    import torch

    torch.manual_seed(0)
    folder.mkdir()
    _BUILDERS[kind.partition("-")[0]](kind, folder)


def _vits(_kind: str, folder: Path) -> None:
    import transformers as t

    letters = ["<pad>", "<unk>", " ", *(chr(code) for code in range(ord("a"), ord("z") + 1))]
    file = folder / "vocab.json"
    file.write_text(json.dumps({letter: index for index, letter in enumerate(letters)}))
    t.VitsTokenizer(str(file), phonemize=False).save_pretrained(folder)
    config = t.VitsConfig(
        vocab_size=len(letters),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        ffn_dim=16,
        flow_size=16,
        spectrogram_bins=9,
        upsample_initial_channel=16,
        upsample_rates=[4, 4],
        upsample_kernel_sizes=[8, 8],
        resblock_kernel_sizes=[3],
        resblock_dilation_sizes=[[1]],
        prior_encoder_num_flows=2,
        prior_encoder_num_wavenet_layers=1,
        duration_predictor_num_flows=2,
        wavenet_dilation_rate=1,
        depth_separable_num_layers=1,
        num_speakers=3,
        speaker_embedding_size=4,
        sampling_rate=RATE,
    )
    t.VitsModel(config).eval().save_pretrained(folder)


def _sound_codec(bandwidth: float) -> dict[str, Any]:
    """An EnCodec of 16 samples for each code, with a codebook for each 4 of its bandwidth."""
    return {
        "model_type": "encodec",
        "sampling_rate": RATE,
        "hidden_size": 16,
        "num_filters": 4,
        "upsampling_ratios": [4, 4],
        "num_lstm_layers": 1,
        "codebook_size": _CODES,
        "target_bandwidths": [bandwidth],
        "norm_type": "weight_norm",
    }


def _bark(_kind: str, folder: Path) -> None:
    import transformers as t
    from transformers.models.bark.generation_configuration_bark import (
        BarkCoarseGenerationConfig,
        BarkFineGenerationConfig,
        BarkGenerationConfig,
        BarkSemanticGenerationConfig,
    )

    tokenizer = word_tokenizer(folder)
    t.BarkProcessor(tokenizer).save_pretrained(folder)
    sizes = {"block_size": 128, "num_layers": 1, "num_heads": 2, "hidden_size": 16}
    semantic_count = 30
    config = t.BarkConfig(
        semantic_config=dict(input_vocab_size=300, output_vocab_size=300, **sizes),
        coarse_acoustics_config=dict(input_vocab_size=80, output_vocab_size=80, **sizes),
        fine_acoustics_config=dict(
            input_vocab_size=17, output_vocab_size=17, n_codes_total=8, n_codes_given=1, **sizes
        ),
        codec_config=_sound_codec(32.0),
    )
    model = t.BarkModel(config)
    semantic = BarkSemanticGenerationConfig(
        eos_token_id=semantic_count,
        text_encoding_offset=40,
        text_pad_token=40,
        semantic_infer_token=39,
        semantic_vocab_size=semantic_count,
        max_input_semantic_length=16,
        max_new_tokens=12,
        semantic_pad_token=semantic_count,
        do_sample=False,
    )
    coarse = BarkCoarseGenerationConfig(
        semantic_vocab_size=semantic_count,
        coarse_semantic_pad_token=78,
        coarse_infer_token=79,
        max_coarse_input_length=16,
        max_coarse_history=20,
        sliding_window_len=10,
        do_sample=False,
    )
    fine = BarkFineGenerationConfig(max_fine_history_length=16, max_fine_input_length=32, temperature=1.0)
    model.eval().save_pretrained(folder)
    generation = BarkGenerationConfig.from_sub_model_configs(semantic, coarse, fine).to_dict()
    generation |= {"codebook_size": _CODES, "sample_rate": RATE}
    (folder / "generation_config.json").write_text(json.dumps(generation))  # the library cannot save it


def _speecht5(_kind: str, folder: Path) -> None:
    """With its vocoder in a folder of its own beside the weights."""
    import sentencepiece
    import torch
    import transformers as t

    text = folder / "text.txt"
    text.write_text("\n".join(["hello there", "the sea is calm", "a captain sails a ship"] * 20))
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(folder / "spm_char"), vocab_size=24, model_type="char", minloglevel=2
    )
    text.unlink()
    tokenizer = t.SpeechT5Tokenizer(str(folder / "spm_char.model"))
    tokenizer.save_pretrained(folder)
    config = t.SpeechT5Config(
        vocab_size=len(tokenizer),
        hidden_size=16,
        encoder_layers=1,
        encoder_attention_heads=2,
        encoder_ffn_dim=16,
        decoder_layers=1,
        decoder_attention_heads=2,
        decoder_ffn_dim=16,
        num_mel_bins=8,
        speech_decoder_prenet_units=16,
        speech_decoder_prenet_dropout=0.0,
        speech_decoder_postnet_units=16,
        speech_decoder_postnet_layers=2,
        speaker_embedding_dim=SPEAKER_SIZE,
        reduction_factor=5,
        max_speech_positions=600,
        max_text_positions=64,
    )
    model = t.SpeechT5ForTextToSpeech(config)
    torch.nn.init.constant_(model.speech_decoder_postnet.prob_out.bias, -6.0)  # so that it does not stop at once
    save(model, folder)
    vocoder = t.SpeechT5HifiGanConfig(
        model_in_dim=8,
        sampling_rate=RATE,
        upsample_initial_channel=16,
        upsample_rates=[4, 4],
        upsample_kernel_sizes=[8, 8],
        resblock_kernel_sizes=[3],
        resblock_dilation_sizes=[[1]],
    )
    save(t.SpeechT5HifiGan(vocoder), folder / "vocoder")


def _musicgen(kind: str, folder: Path) -> None:
    import transformers as t

    channels = 2 if kind.endswith("stereo") else 1
    tokenizer = padding_tokenizer(folder)
    tokenizer.save_pretrained(folder)
    text = {
        "model_type": "t5",
        "vocab_size": len(tokenizer),
        "d_model": 16,
        "d_kv": 8,
        "d_ff": 16,
        "num_layers": 1,
        "num_heads": 2,
    }
    decoder = {
        "vocab_size": 16,
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "ffn_dim": 16,
        "num_codebooks": 2 * channels,
        "audio_channels": channels,
        "pad_token_id": 16,
        "bos_token_id": 16,
    }
    config = t.MusicgenConfig(text_encoder=text, audio_encoder=_sound_codec(8.0), decoder=decoder)
    model = t.MusicgenForConditionalGeneration(config)
    model.generation_config.decoder_start_token_id = model.generation_config.pad_token_id = 16
    model.generation_config.max_length = 20
    model.eval().save_pretrained(folder)


_BUILDERS: dict[str, Callable[[str, Path], None]] = {
    "vits": _vits,
    "bark": _bark,
    "speecht5": _speecht5,
    "musicgen": _musicgen,
}

if __name__ == "__main__":
    for name in KINDS:
        build(name, Path(sys.argv[2]) / name)
