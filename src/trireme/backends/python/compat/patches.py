"""The list of all patches: to which module of a library each belongs, and whether it rescues or has to be asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

from trireme.backends.python.compat import switches, tensorflow_contrib
from trireme.backends.python.compat.huggingface import (
    access_token,
    arguments,
    cache_folder,
    device_map,
    float16,
    hub_requests,
    lengths,
    tokenizer_methods,
    usual_cache,
)
from trireme.backends.python.compat.report import tell_offer

_PATCHED = "__trireme_patches__"


@dataclass(frozen=True, slots=True)
class Patch:
    """One function that changes a module right after it was executed."""

    module: str
    apply: Callable[[ModuleType], None]
    words: tuple[str, ...] = ()
    """What asks for it; none for one that only rescues."""
    rescues: bool = True
    """Whether it has something to do without being asked: a rescue, or the line that offers what it could do."""

    @property
    def is_wanted(self) -> bool:
        return (self.rescues and switches.may_rescue()) or switches.is_asked_for(*self.words)


_AUTO = "transformers.models.auto"
PATCHES = (
    Patch("huggingface_hub.utils._http", hub_requests.look_before_asking),
    Patch("huggingface_hub.utils._headers", access_token.take_empty_as_none),
    Patch("huggingface_hub.file_download", usual_cache.look_there_too, ("cache",), rescues=False),
    Patch("huggingface_hub._snapshot_download", usual_cache.look_there_too, ("cache",), rescues=False),
    Patch("tensorflow", tensorflow_contrib.restore),
    Patch("transformers.generation.utils", lengths.continue_full_prompts),
    Patch("transformers.pipelines.text_generation", lengths.keep_refused_prompts),
    Patch("transformers.pipelines.text_generation", lengths.respect_max_length, ("lengths",)),
    Patch("transformers.tokenization_utils_base", tokenizer_methods.restore),
    Patch("transformers.modeling_utils", arguments.accept_old_token("PreTrainedModel")),
    Patch("transformers.modeling_utils", device_map.accept_without_accelerate("PreTrainedModel"), ("device_map",)),
    Patch("transformers.modeling_utils", float16.compute_in_faster_type, float16.WORDS),
    Patch(f"{_AUTO}.auto_factory", arguments.accept_old_token("_BaseAutoModelClass")),
    Patch(f"{_AUTO}.auto_factory", device_map.accept_without_accelerate("_BaseAutoModelClass"), ("device_map",)),
    Patch(f"{_AUTO}.configuration_auto", arguments.accept_old_token("AutoConfig")),
    Patch(f"{_AUTO}.tokenization_auto", arguments.accept_old_token("AutoTokenizer")),
    Patch(f"{_AUTO}.processing_auto", arguments.accept_old_token("AutoProcessor")),
    Patch(f"{_AUTO}.image_processing_auto", arguments.accept_old_token("AutoImageProcessor")),
    Patch(f"{_AUTO}.feature_extraction_auto", arguments.accept_old_token("AutoFeatureExtractor")),
    Patch("transformers.pipelines", arguments.accept_old_token_in_pipeline),
    Patch("transformers.pipelines", device_map.place_pipeline, ("device_map",), rescues=False),
)


def prepare_environment() -> None:
    """Puts the variables in order that the Hugging Face libraries read while they are imported."""
    if switches.is_asked_for("cache"):
        cache_folder.point_to_usable_folder()
    elif switches.may_rescue():
        cache_folder.leave_unusable_folder()


def wanted_for(module_name: str) -> list[Patch]:
    """The patches of a module that hold for this process."""
    return [patch for patch in PATCHES if patch.module == module_name and patch.is_wanted]


def apply(module: ModuleType, patches: list[Patch]) -> None:
    """Changes the module, with each patch once; where its insides are other than expected, it stays as it is and its
    import succeeds."""
    done: set[Callable[[ModuleType], None]] = module.__dict__.setdefault(_PATCHED, set())
    for patch in patches:
        if patch.apply in done:
            continue
        done.add(patch.apply)
        try:
            patch.apply(module)
        except (AttributeError, KeyError) as error:
            tell_offer(
                module.__name__,
                f"{module.__name__} is of a release that is not known here and stays as it is: {error!r}",
            )
