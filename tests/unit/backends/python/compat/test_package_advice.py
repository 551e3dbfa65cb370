"""How a package with another name than its import is installed."""

from __future__ import annotations

import pytest

from trireme.backends.python.compat.second_try import with_second_try
from trireme.backends.python.pb_utils.errors import exception_text


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("sklearn", "\npip install scikit-learn, or name scikit-learn in the model's requirements.txt"),
        ("sklearn.no_such_part", ""),
        ("yaml", "\npip install pyyaml, or name pyyaml in the model's requirements.txt"),
        ("my_parts", ""),
        ("torch", ""),
    ],
)
def test_a_missing_module_is_told_with_the_package_that_has_it(name: str, advice: str) -> None:
    def load() -> None:
        raise ModuleNotFoundError(f"No module named '{name}'", name=name)

    with pytest.raises(ModuleNotFoundError) as raised:
        with_second_try(load)
    first = exception_text(raised.value).partition("\n\nAt:")[0]
    assert first == f"ModuleNotFoundError: No module named '{name}'{advice}"
