"""The list of all that is absorbed: before a Hugging Face library is imported, and after each of its modules was."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType

from trireme.backends.python.compat import tensorflow_contrib
from trireme.backends.python.compat.huggingface import (
    access_token,
    arguments,
    cache_folder,
    float16,
    hub_requests,
    lengths,
    tokenizer_methods,
    usual_cache,
)
from trireme.backends.python.compat.report import tell_once


def prepare_environment() -> None:
    """Puts the variables in order that the libraries read while they are imported."""
    cache_folder.point_to_usable_folder()
    access_token.define_private_token()


def apply(patch: Callable[[ModuleType], None], module: ModuleType) -> None:
    """Changes the module; one whose insides are other than expected stays as it is, and its import succeeds."""
    try:
        patch(module)
    except (AttributeError, KeyError) as error:
        tell_once(
            module.__name__, f"{module.__name__} is of a release that is not known here and stays as it is: {error!r}"
        )


def _one_by_one(*absorbs: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
    def patch(module: ModuleType) -> None:
        for each in absorbs:
            each(module)

    return patch


BY_MODULE: Mapping[str, Callable[[ModuleType], None]] = {
    "huggingface_hub.file_download": usual_cache.look_there_too,
    "huggingface_hub._snapshot_download": usual_cache.look_there_too,
    "huggingface_hub.utils._http": hub_requests.look_before_asking,
    "huggingface_hub.utils._headers": access_token.take_empty_as_none,
    "tensorflow": tensorflow_contrib.restore,
    "transformers.generation.utils": lengths.give_long_prompts_one_token,
    "transformers.pipelines.text_generation": lengths.respect_max_length,
    "transformers.tokenization_utils_base": tokenizer_methods.restore,
    "transformers.pipelines": arguments.absorb_in_pipeline,
    "transformers.modeling_utils": _one_by_one(
        arguments.absorb_in("PreTrainedModel", places_weights=True), float16.compute_in_faster_type
    ),
    "transformers.models.auto.auto_factory": arguments.absorb_in("_BaseAutoModelClass", places_weights=True),
    "transformers.models.auto.configuration_auto": arguments.absorb_in("AutoConfig"),
    "transformers.models.auto.tokenization_auto": arguments.absorb_in("AutoTokenizer"),
    "transformers.models.auto.processing_auto": arguments.absorb_in("AutoProcessor"),
    "transformers.models.auto.image_processing_auto": arguments.absorb_in("AutoImageProcessor"),
    "transformers.models.auto.feature_extraction_auto": arguments.absorb_in("AutoFeatureExtractor"),
}
"""What is done to a module right after it was executed."""
