"""Where a model's files are, and which task its configuration says that it is for."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from typing import Any

from trireme.backends.compiled.model_load import ModelLoadError, require
from trireme.backends.python.pb_utils import runtime as pb_runtime
from trireme.backends.transformers import hub_access
from trireme.backends.transformers.settings import Settings
from trireme.core.reading.json_levels import read_json
from trireme.huggingface.hub_cache import folder_name
from trireme.huggingface.saved_classes import telling_names

CONFIG_NAME = "config.json"
_HEADS = {
    "CLIPModel": "zero-shot-image-classification",
    "CLIPSegModel": "zero-shot-image-classification",
    "MetaClip2Model": "zero-shot-image-classification",
    "SiglipModel": "zero-shot-image-classification",
    "Siglip2Model": "zero-shot-image-classification",
    "AlignModel": "zero-shot-image-classification",
    "BlipModel": "zero-shot-image-classification",
    "Blip2ForImageTextRetrieval": "zero-shot-image-classification",
    "ClapModel": "zero-shot-audio-classification",
    "OwlViTForObjectDetection": "zero-shot-object-detection",
    "Owlv2ForObjectDetection": "zero-shot-object-detection",
    "GroundingDinoForObjectDetection": "zero-shot-object-detection",
    "TapasForQuestionAnswering": "table-question-answering",
    "LayoutLMForQuestionAnswering": "document-question-answering",
    "LayoutLMv2ForQuestionAnswering": "document-question-answering",
    "LayoutLMv3ForQuestionAnswering": "document-question-answering",
    "ForCausalLM": "text-generation",
    "LMHeadModel": "text-generation",
    "ForConditionalGeneration": "text2text-generation",
    "ForSeq2SeqLM": "text2text-generation",
    "MTModel": "translation",
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
    "ForMaskedLM": "fill-mask",
    "ForImageClassification": "image-classification",
    "ForObjectDetection": "object-detection",
    "ForVisionText2Text": "image-text-to-text",
    "VisionEncoderDecoderModel": "image-text-to-text",
    "ForTextToSpeech": "text-to-audio",
    "ForCTC": "automatic-speech-recognition",
    "ForSpeechSeq2Seq": "automatic-speech-recognition",
    "ForAudioClassification": "audio-classification",
    "ForDepthEstimation": "depth-estimation",
    "ForSemanticSegmentation": "image-segmentation",
    "ForInstanceSegmentation": "image-segmentation",
    "ForUniversalSegmentation": "image-segmentation",
    "ForImageSegmentation": "image-segmentation",
    "ForSegmentation": "image-segmentation",
    "ForMaskGeneration": "mask-generation",
    "ForKeypointMatching": "keypoint-matching",
    "ForVideoClassification": "video-classification",
    "ForDocumentQuestionAnswering": "document-question-answering",
    "Model": "feature-extraction",
}
"""The end of an architecture's name, or of the library's class for it, and the task; the first that fits counts."""
_SPEECH_TYPES = {"whisper", "speech_to_text", "speecht5", "speech-encoder-decoder", "moonshine"}
_SOUND_TYPES = {"wav2vec2", "wav2vec2-bert", "wav2vec2-conformer", "hubert", "wavlm", "unispeech", "unispeech-sat"}
_SOUND_TYPES |= {"sew", "sew-d", "data2vec-audio"}
_SPEAKING_TYPES = {"bark", "csm", "dia", "fastspeech2_conformer", "fastspeech2_conformer_with_hifigan", "vits"}
_SPEAKING_TYPES |= {"higgs_audio_v2", "musicgen", "musicgen_melody", "vibevoice"}
_SEEING_TYPES = {"chameleon", "emu3", "fuyu", "udop"}  # whose config.json has no `vision_config`
_MASK_TYPES = {"sam", "sam2", "sam2_video", "sam_hq", "sam3_tracker", "sam3_video", "edgetam", "edgetam_video"}
_HEADLESS = ("feature-extraction", "image-feature-extraction")


def locate(settings: Settings) -> str:
    """The folder or the hub id; raises ModelLoadError where there is neither."""
    version_dir = pb_runtime.current().model_dir
    named = settings.model
    if named is None:
        return _in_version_folder(settings.name, version_dir)
    if named.startswith("$$TRITON_MODEL_DIRECTORY"):
        named = named.replace("$$TRITON_MODEL_DIRECTORY", os.path.dirname(version_dir), 1)
    named = os.path.expanduser(named)
    tried = [named, os.path.join(version_dir, named), os.path.join(os.path.dirname(version_dir), named)]
    for folder in tried:
        if os.path.isdir(folder):
            if not os.path.isfile(os.path.join(folder, CONFIG_NAME)):
                raise ModelLoadError(f"the folder '{folder}' of model '{settings.name}' holds no {CONFIG_NAME}")
            return folder
    if named.startswith((".", os.sep)) or named.count("/") > 1:
        places = ", ".join(f"'{place}'" for place in dict.fromkeys(tried))
        raise ModelLoadError(f"there is no folder '{named}' for model '{settings.name}'; looked for {places}")
    hub_access.why_not_asked()
    return named


def read_model_config(settings: Settings, source: str) -> Mapping[str, Any]:
    """The config.json, out of the folder, the cache or the hub."""
    path = os.path.join(source, CONFIG_NAME)
    if not os.path.isdir(source):
        require("transformers", "transformers")
        hub = importlib.import_module("transformers.utils.hub")
        try:
            path = hub.cached_file(source, CONFIG_NAME, revision=settings.revision)
        except Exception as error:
            raise not_found(settings, source, error) from error
    try:
        with open(path, encoding="utf-8") as file:
            found = read_json(file.read())
    except (OSError, ValueError) as error:
        raise ModelLoadError(f"'{path}' of model '{settings.name}' cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise ModelLoadError(f"'{path}' of model '{settings.name}' is not a JSON object")
    return found


def side_file(settings: Settings, source: str, name: str) -> str | None:
    """The path of a file beside the config.json; None where the model has no such file."""
    if os.path.isdir(source):
        path = os.path.join(source, name)
        return path if os.path.isfile(path) else None
    hub = importlib.import_module("transformers.utils.hub")
    try:
        found: str | None = hub.cached_file(
            source, name, revision=settings.revision, _raise_exceptions_for_missing_entries=False
        )
    except OSError:  # neither in the cache nor, for want of a network, known to be absent
        return None
    return found


def task_of(settings: Settings, source: str, read: Callable[[], Mapping[str, Any]]) -> str:
    """The task that the configuration names, or else the one that the architecture in the config.json is made for."""
    if settings.task is not None:
        return settings.task
    model_config = read()
    if side_file(settings, source, "modules.json") is not None:  # what the sentence-transformers library writes
        return "sentence-embedding"
    tasks = [task for name in telling_names(model_config) if (task := _task_of_class(name, model_config)) is not None]
    if tasks:  # a model without a head is what remains where no name tells of one
        return next((task for task in tasks if task not in _HEADLESS), tasks[0])
    raise ModelLoadError(
        f"cannot tell what task model '{settings.name}' is for (architectures: "
        f"{model_config.get('architectures')}); name it with the parameter 'task', such as text-classification"
    )


def _task_of_class(name: str, model_config: Mapping[str, Any]) -> str | None:
    if model_config.get("model_type") in _SPEAKING_TYPES:
        return "text-to-audio"
    if name.endswith(("ForConditionalGeneration", "ForCausalLM", "ForQuestionAnswering")):
        task = _task_of_senses(name, model_config)
        if task is not None:
            return task
    if name.endswith("ForConditionalGeneration") and model_config.get("model_type") in _SPEECH_TYPES:
        return "automatic-speech-recognition"
    if name.endswith("ForSequenceClassification") and model_config.get("model_type") in _SOUND_TYPES:
        return "audio-classification"
    if name == "VisionEncoderDecoderModel" and (model_config.get("encoder") or {}).get("model_type") == "donut-swin":
        return "document-question-answering"
    task = next((task for ending, task in _HEADS.items() if name.endswith(ending)), None)
    if task == _HEADS["Model"]:
        if model_config.get("model_type") in _MASK_TYPES:
            return "mask-generation"
        if _is_of_images(model_config):
            return "image-feature-extraction"
    return task


def _is_of_images(model_config: Mapping[str, Any]) -> bool:
    """Whether it takes pictures and no text beside them; some that do not read have a vocabulary of pictures."""
    takes_text = "text_config" in model_config or {"vocab_size", "max_position_embeddings"} <= model_config.keys()
    takes_pictures = not model_config.keys().isdisjoint(("num_channels", "image_size"))
    return model_config.get("model_type") == "timm_wrapper" or (takes_pictures and not takes_text)


def _task_of_senses(name: str, model_config: Mapping[str, Any]) -> str | None:
    """Of a class for texts whose model takes more than texts."""
    if "thinker_config" in model_config or "audio_config" in model_config:
        return "any-to-any"
    if "vision_config" in model_config or model_config.get("model_type") in _SEEING_TYPES:
        is_asked = name.endswith("ForQuestionAnswering")
        return "visual-question-answering" if is_asked else "image-text-to-text"
    return None


def not_found(settings: Settings, source: str, error: BaseException) -> ModelLoadError:
    """The files of a hub id could not be had."""
    constants = hub_access.hub_constants()
    reason = hub_access.why_not_asked() or (str(error).strip() or type(error).__name__).splitlines()[0]
    revision = f" (revision '{settings.revision}')" if settings.revision else ""
    cached = os.path.join(constants.HF_HUB_CACHE, folder_name(source))
    return ModelLoadError(
        f"the files of '{source}'{revision} for model '{settings.name}' could not be had: {reason.rstrip('.')}. There "
        f"is no folder '{source}', and not all of them are in the cache (looked for '{cached}'). Check the name, give "
        "the path of a folder with the model in the parameter 'model', point HF_HOME at a cache that has it (on a "
        f"machine with a network 'trireme deploy {source} --no-serve' fills one), or set HF_TOKEN if it is private"
    )


def _in_version_folder(model: str, version_dir: str) -> str:
    if os.path.isfile(os.path.join(version_dir, CONFIG_NAME)):
        return version_dir
    entries = sorted(os.scandir(version_dir), key=lambda entry: entry.name) if os.path.isdir(version_dir) else []
    folders = [entry.path for entry in entries if os.path.isfile(os.path.join(entry.path, CONFIG_NAME))]
    if len(folders) == 1:
        return folders[0]
    model_dir = os.path.dirname(version_dir)
    if not folders and os.path.isfile(os.path.join(model_dir, CONFIG_NAME)):
        return model_dir
    many = f": several folders hold a {CONFIG_NAME} ({', '.join(folders)})" if folders else ""
    raise ModelLoadError(
        f"model '{model}' does not say what to serve{many}; name a hub id or a folder in the parameter 'model', or put "
        f"the files of one (with its {CONFIG_NAME}) into '{version_dir}'"
    )
