"""The frequencies of rotary positions, as config.json asks for them."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from trireme.llm.models.fields import Config, UnsupportedModelError, field
from trireme.llm.models.spec import RopeSpec

_Frequencies = npt.NDArray[np.float64]
_KINDS = ("default", "linear", "dynamic", "llama3", "yarn", "longrope")


def read_rope(
    config: Config, head_size: int, *, theta: float = 10000.0, rotary_share: float = 1.0, kind_of_layer: str = ""
) -> RopeSpec:
    """The rotation of a model; `theta` and `rotary_share` are the family's defaults.

    Newer files hold everything in `rope_parameters`, where layers differ once for each kind of layer; older ones have
    `rope_theta`, `partial_rotary_factor` and `rope_scaling`.
    """
    settings = _settings(config, kind_of_layer)
    base = float(field(settings, "rope_theta", field(config, "rope_theta", theta)))
    share = field(settings, "partial_rotary_factor", field(config, "partial_rotary_factor", rotary_share))
    size = int(head_size * share)
    return scaled_rope(settings, config, base, size)


def scaled_rope(settings: Config, config: Config, theta: float, size: int) -> RopeSpec:
    """The rotation with the scaling that the settings name."""
    plain: _Frequencies = 1.0 / theta ** (np.arange(0, size, 2) / size)
    kind = settings.get("rope_type") or settings.get("type") or "default"
    if "long_factor" in settings:  # files from before the name was settled say "su" or "yarn"
        kind = "longrope"
    if kind in ("default", "dynamic"):  # dynamic scaling begins beyond the positions that the model takes
        return _spec(theta, size, plain)
    if kind == "linear":
        return _spec(theta, size, plain / settings["factor"])
    if kind == "llama3":
        return _spec(theta, size, _llama3(plain, settings))
    if kind == "yarn":
        return _yarn(plain, settings, config, theta, size)
    if kind == "longrope":
        return _longrope(plain, settings, config, theta, size)
    raise UnsupportedModelError(f"rotary positions of type '{kind}' are not known here; known are {', '.join(_KINDS)}")


def _settings(config: Config, kind_of_layer: str) -> Config:
    settings = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if kind_of_layer and isinstance(settings.get(kind_of_layer), dict):
        settings = settings[kind_of_layer]
    return dict(settings)


def _spec(theta: float, size: int, frequencies: _Frequencies, scale: float = 1.0) -> RopeSpec:
    return RopeSpec(theta, size, tuple(frequencies.tolist()), scale)


def _llama3(plain: _Frequencies, settings: Config) -> _Frequencies:
    factor, low, high = settings["factor"], settings["low_freq_factor"], settings["high_freq_factor"]
    turns = settings["original_max_position_embeddings"] * plain / (2 * math.pi)
    smooth = np.clip((turns - low) / (high - low), 0.0, 1.0)
    result: _Frequencies = (1 - smooth) * plain / factor + smooth * plain
    return result


def _yarn(plain: _Frequencies, settings: Config, config: Config, theta: float, size: int) -> RopeSpec:
    original = _original_positions(settings, config)
    factor = settings.get("factor") or config["max_position_embeddings"] / original

    def dimension(turns: float) -> float:
        """Which of the frequencies turns so often over the original length."""
        return size * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = dimension(settings.get("beta_fast") or 32), dimension(settings.get("beta_slow") or 1)
    if settings.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, size - 1)
    ramp = np.clip((np.arange(size // 2) - low) / (high - low or 0.001), 0.0, 1.0)
    return _spec(theta, size, plain / factor * ramp + plain * (1 - ramp), _yarn_scale(settings, factor))


def _yarn_scale(settings: Config, factor: float) -> float:
    def scale(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    if settings.get("attention_factor") is not None:
        return float(settings["attention_factor"])
    if settings.get("mscale") and settings.get("mscale_all_dim"):
        return scale(settings["mscale"]) / scale(settings["mscale_all_dim"])
    return scale(1.0)


def _longrope(plain: _Frequencies, settings: Config, config: Config, theta: float, size: int) -> RopeSpec:
    original = _original_positions(settings, config)
    factor = settings.get("factor") or config["max_position_embeddings"] / original
    scale = settings.get("attention_factor")
    if scale is None:
        scale = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    short, long = (plain / np.array(settings[name], np.float64) for name in ("short_factor", "long_factor"))
    return RopeSpec(
        theta,
        size,
        tuple(short.tolist()),
        float(scale),
        long_inverse_frequencies=tuple(long.tolist()),
        short_positions=original,
    )


def _original_positions(settings: Config, config: Config) -> int:
    own = config.get("original_max_position_embeddings")
    return int(own or settings.get("original_max_position_embeddings") or config["max_position_embeddings"])
