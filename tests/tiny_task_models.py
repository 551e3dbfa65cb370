"""Tiny models with random weights, one for each task, as folders that `from_pretrained` reads.

They build on `tiny_models`, which has the tokenizer and the causal language models. All are made once per version of
this file by a process of its own, so that a test run need not import torch:
`python tests/tiny_task_models.py tasks <folder>`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tiny_models

LABELS = {0: "negative", 1: "neutral", 2: "positive"}
KINDS = (
    "bert-classifier",
    "bert-entities",
    "bert-answers",
    "bert-mask",
    "bert-features",
    "bert-sentences",
    "bert-entailment",
    "bart",
    "t5",
    "vit",
    "yolos",
    "whisper",
    "wav2vec2",
    "wav2vec2-masked",
    "wav2vec2-classifier",
    "wav2vec2bert",
    "gpt2-classifier",
    "fnet-classifier",
)
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
BOTH_SIZES = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
}
"""Of an encoder with a decoder."""
_LETTERS = ("<pad>", "<s>", "</s>", "<unk>", "|", *(chr(code) for code in range(ord("A"), ord("Z") + 1)))
_WORDS = (
    "the a an is was are not and or to of in on at it this that what where who when how ship sea harbour captain sail "
    "wind storm good bad fast slow big small red blue athens rome paris london anna otto lives works builds likes "
    "hates server model answer question example about positive negative travel cooking ##s ##ed ##ing ##er . , ? !"
)


def task_model(kind: str) -> Path:
    """The one folder of this kind that all tests share; nobody changes it. The first to ask makes all kinds."""
    return tiny_models.built(__file__, "tasks") / kind


def build(kind: str, folder: Path) -> None:
    """Writes the files; imports torch and transformers."""
    import torch

    torch.manual_seed(0)
    folder.mkdir()
    _BUILDERS[kind.partition("-")[0]](kind, folder)


def save(model: Any, folder: Path, factor: float = 6) -> None:
    """With weights large enough that different inputs give different answers."""
    import torch

    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(factor)
    model.eval().save_pretrained(folder)


def let_sounds_differ(encoder: Any) -> None:
    """So that features tell what is heard more than when: else the sines of the positions drown it."""
    import torch

    with torch.no_grad():
        encoder.embed_positions.weight.mul_(1 / 60)
        for convolution in (encoder.conv1, encoder.conv2):
            convolution.weight.mul_(3)


def _let_words_follow_what_is_heard(decoder: Any) -> None:
    """And their place in the text: else each word is the one before it once more, whose embedding the head shares."""
    import torch

    with torch.no_grad():
        for layer in decoder.layers:
            layer.encoder_attn.out_proj.weight.mul_(3)
        decoder.embed_positions.weight.mul_(4)


def word_tokenizer(folder: Path) -> Any:
    """WordPiece over a few words, with BERT's special tokens."""
    from transformers import BertTokenizerFast

    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = list(dict.fromkeys([*special, *_WORDS.split(), *letters, *(f"##{letter}" for letter in letters)]))
    file = folder / "vocab.txt"
    file.write_text("\n".join(vocabulary))
    from tokenizers import BertWordPieceTokenizer

    backend = BertWordPieceTokenizer({word: index for index, word in enumerate(vocabulary)}, lowercase=True)
    tokenizer = BertTokenizerFast(tokenizer_object=backend._tokenizer, model_max_length=64)
    tokenizer.save_pretrained(folder)
    return tokenizer


def _bert(kind: str, folder: Path) -> None:
    import transformers

    tokenizer = word_tokenizer(folder)
    head = {
        "classifier": "SequenceClassification",
        "entailment": "SequenceClassification",
        "entities": "TokenClassification",
        "answers": "QuestionAnswering",
        "mask": "MaskedLM",
    }.get(kind.partition("-")[2])
    labels = {
        "bert-entailment": {0: "contradiction", 1: "neutral", 2: "entailment"},
        "bert-answers": {0: "start", 1: "end"},
        "bert-entities": {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC"},
    }.get(kind, LABELS)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=64,
        id2label=labels,
        label2id={label: index for index, label in labels.items()},
        **SIZES,
    )
    save(getattr(transformers, f"BertFor{head}" if head else "BertModel")(config), folder)
    if kind == "bert-sentences":
        _write_sentence_modules(folder)


def _fnet(_kind: str, folder: Path) -> None:
    """A model that takes no mask."""
    import transformers

    tokenizer = word_tokenizer(folder)
    sizes = {name: size for name, size in SIZES.items() if name != "num_attention_heads"}
    config = transformers.FNetConfig(
        vocab_size=len(tokenizer), max_position_embeddings=64, type_vocab_size=2, id2label=LABELS, **sizes
    )
    save(transformers.FNetForSequenceClassification(config), folder)


def _write_sentence_modules(folder: Path) -> None:
    """The files that the sentence-transformers library adds."""
    names = ("Transformer", "Pooling", "Normalize")
    paths = ("", "1_Pooling", "2_Normalize")
    modules = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{name}"}
        for index, (name, path) in enumerate(zip(names, paths, strict=True))
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 16, "do_lower_case": False}))


def _bart(_kind: str, folder: Path) -> None:
    import transformers

    tiny_models.tiny_tokenizer(folder)
    config = transformers.BartConfig(
        vocab_size=tiny_models.VOCABULARY,
        **BOTH_SIZES,
        max_position_embeddings=128,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=0,
        decoder_start_token_id=2,
        forced_eos_token_id=None,
    )
    save(transformers.BartForConditionalGeneration(config), folder)


def _t5(_kind: str, folder: Path) -> None:
    import transformers

    tiny_models.tiny_tokenizer(folder)
    config = transformers.T5Config(
        vocab_size=tiny_models.VOCABULARY,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        pad_token_id=1,
        eos_token_id=0,
        decoder_start_token_id=1,
    )
    save(transformers.T5ForConditionalGeneration(config), folder)
    file = folder / "config.json"
    settings = json.loads(file.read_text())
    prefix = {"prefix": "translate English to German: ", "max_length": 24}
    settings["task_specific_params"] = {"translation_en_to_de": prefix}
    file.write_text(json.dumps(settings))


def _gpt2(_kind: str, folder: Path) -> None:
    import transformers

    tiny_models.tiny_tokenizer(folder)
    config = transformers.GPT2Config(
        vocab_size=tiny_models.VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=128, id2label=LABELS
    )
    save(transformers.GPT2ForSequenceClassification(config), folder)


def _vit(_kind: str, folder: Path) -> None:
    import transformers

    config = transformers.ViTConfig(image_size=32, patch_size=8, id2label=LABELS, **SIZES)
    save(transformers.ViTForImageClassification(config), folder)
    processor = {"image_processor_type": "ViTImageProcessor", "size": {"height": 32, "width": 32}}
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))


def _yolos(_kind: str, folder: Path) -> None:
    import transformers

    config = transformers.YolosConfig(
        image_size=[64, 64], patch_size=16, num_detection_tokens=10, id2label=LABELS, **SIZES
    )
    save(transformers.YolosForObjectDetection(config), folder)
    processor = {
        "image_processor_type": "YolosImageProcessor",
        "size": {"shortest_edge": 64, "longest_edge": 128},
        "do_pad": False,
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))


def _whisper(_kind: str, folder: Path) -> None:
    import transformers

    tiny_models.tiny_tokenizer(folder)
    config = transformers.WhisperConfig(
        vocab_size=tiny_models.VOCABULARY,
        num_mel_bins=8,
        **BOTH_SIZES,
        max_source_positions=100,
        max_target_positions=40,
        pad_token_id=0,
        bos_token_id=0,
        eos_token_id=0,
        decoder_start_token_id=2,
        begin_suppress_tokens=None,
        suppress_tokens=None,
    )
    model = transformers.WhisperForConditionalGeneration(config)
    model.generation_config.max_length = 20
    let_sounds_differ(model.model.encoder)
    _let_words_follow_what_is_heard(model.model.decoder)
    save(model, folder)
    extractor = transformers.WhisperFeatureExtractor(feature_size=8, chunk_length=2)
    extractor.save_pretrained(folder)


def _wav2vec2(kind: str, folder: Path) -> None:
    import transformers

    is_classifier = kind.endswith("classifier")
    is_masked = kind.endswith("masked")
    config = transformers.Wav2Vec2Config(
        vocab_size=len(_LETTERS),
        conv_dim=(32, 32, 32),
        conv_stride=(5, 4, 4),
        conv_kernel=(10, 8, 4),
        num_feat_extract_layers=3,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=2,
        feat_extract_norm="layer" if is_masked else "group",
        classifier_proj_size=32,
        id2label=LABELS,
        **SIZES,
    )
    head = transformers.Wav2Vec2ForSequenceClassification if is_classifier else transformers.Wav2Vec2ForCTC
    save(head(config), folder)
    extractor = transformers.Wav2Vec2FeatureExtractor(sampling_rate=16000, return_attention_mask=is_masked)
    extractor.save_pretrained(folder)
    if not is_classifier:
        _letter_tokenizer(folder)


def _wav2vec2bert(_kind: str, folder: Path) -> None:
    import transformers

    config = transformers.Wav2Vec2BertConfig(
        vocab_size=len(_LETTERS), feature_projection_input_dim=160, conv_depthwise_kernel_size=7, **SIZES
    )
    save(transformers.Wav2Vec2BertForCTC(config), folder)
    transformers.SeamlessM4TFeatureExtractor().save_pretrained(folder)
    _letter_tokenizer(folder)


def _letter_tokenizer(folder: Path) -> None:
    import transformers

    vocabulary = folder / "vocab.json"
    vocabulary.write_text(json.dumps({letter: index for index, letter in enumerate(_LETTERS)}))
    transformers.Wav2Vec2CTCTokenizer(str(vocabulary)).save_pretrained(folder)


_BUILDERS: dict[str, Callable[[str, Path], None]] = {
    "bert": _bert,
    "bart": _bart,
    "t5": _t5,
    "gpt2": _gpt2,
    "vit": _vit,
    "yolos": _yolos,
    "whisper": _whisper,
    "wav2vec2": _wav2vec2,
    "wav2vec2bert": _wav2vec2bert,
    "fnet": _fnet,
}

if __name__ == "__main__":
    for name in KINDS:
        build(name, Path(sys.argv[2]) / name)
