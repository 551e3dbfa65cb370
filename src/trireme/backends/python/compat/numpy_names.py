"""Names that numpy had before release 2, for model files that use them: brought back on request, and where they are
missing, the error says how."""

from __future__ import annotations

import sys
from typing import Any

from trireme.backends.python.compat import switches
from trireme.backends.python.compat.report import add_note, tell_change

WORD = "numpy1"

_SAME_AS = {
    "NAN": "nan",
    "NaN": "nan",
    "Inf": "inf",
    "Infinity": "inf",
    "PINF": "inf",
    "infty": "inf",
    "alltrue": "all",
    "bool8": "bool_",
    "bytes0": "bytes_",
    "cfloat": "complex128",
    "clongfloat": "clongdouble",
    "complex_": "complex128",
    "cumproduct": "cumprod",
    "float_": "float64",
    "in1d": "isin",
    "int0": "intp",
    "longcomplex": "clongdouble",
    "longfloat": "longdouble",
    "mat": "asmatrix",
    "object0": "object_",
    "product": "prod",
    "round_": "round",
    "row_stack": "vstack",
    "singlecomplex": "complex64",
    "sometrue": "any",
    "str0": "str_",
    "string_": "bytes_",
    "trapz": "trapezoid",
    "uint0": "uintp",
    "unicode_": "str_",
    "void0": "void",
}
"""By the name that was: the name that is."""

_PYTHON_TYPES = {
    "bool": bool,
    "complex": complex,
    "float": float,
    "int": int,
    "object": object,
    "str": str,
    "unicode": str,
}
"""Python's own types, which numpy gave out under its own name until 1.24; release 2 gives `bool` another meaning."""


def restore_if_asked() -> None:
    """Gives numpy back what a model file written for release 1 looks for."""
    if not switches.is_asked_for(WORD):
        return
    import numpy

    missing = [name for name in (*_SAME_AS, *_PYTHON_TYPES, *_REMADE) if not hasattr(numpy, name)]
    for name in missing:
        setattr(numpy, name, _value(numpy, name))
    if missing:
        tell_change("numpy", f"numpy {numpy.__version__} was given back {len(missing)} names of release 1", WORD)


def advise(error: AttributeError) -> None:
    """Notes on an error about one of these names how to get it back."""
    numpy: Any = sys.modules.get("numpy")
    name = _name_in(str(error))
    if numpy is None or switches.is_asked_for(WORD):
        return
    if name in _SAME_AS or name in _PYTHON_TYPES or name in _REMADE:
        note = (
            f"numpy {numpy.__version__} has no np.{name} any more; the compatibility option '{WORD}' brings it back: "
            f'--compat={WORD}, or parameters {{ key: "compat" value: {{ string_value: "{WORD}" }} }} in config.pbtxt'
        )
        add_note(error, note)


def _name_in(text: str) -> str:
    """The name that an error is about, which numpy raises without its attributes; "" where it is about another one."""
    for before, after in (("`np.", "`"), ("module 'numpy' has no attribute '", "'")):
        _, found, rest = text.partition(before)
        if found:
            return rest.partition(after)[0]
    return ""


def _value(numpy: Any, name: str) -> Any:
    if name in _REMADE:
        return _REMADE[name]
    return getattr(numpy, _SAME_AS[name]) if name in _SAME_AS else _PYTHON_TYPES[name]


def _asfarray(a: Any, dtype: Any = float) -> Any:
    import numpy

    kind = numpy.dtype(dtype)
    return numpy.asarray(a, dtype=kind if numpy.issubdtype(kind, numpy.inexact) else float)


def _asscalar(a: Any) -> Any:
    return a.item()


def _find_common_type(array_types: Any, scalar_types: Any) -> Any:
    import numpy

    arrays = [numpy.dtype(kind) for kind in array_types]
    scalars = [numpy.dtype(kind) for kind in scalar_types]
    if not arrays or not scalars:
        return numpy.result_type(*arrays, *scalars) if arrays or scalars else None
    widest_array, widest_scalar = numpy.result_type(*arrays), numpy.result_type(*scalars)
    kinds = "biufc"  # a scalar counts only where it is of a later kind
    later = kinds.find(widest_scalar.kind) > kinds.find(widest_array.kind)
    return widest_scalar if later else widest_array


def _msort(a: Any) -> Any:
    import numpy

    return numpy.sort(a, axis=0)


_REMADE: dict[str, Any] = {
    "NINF": float("-inf"),
    "NZERO": -0.0,
    "PZERO": 0.0,
    "asfarray": _asfarray,
    "asscalar": _asscalar,
    "find_common_type": _find_common_type,
    "msort": _msort,
}
"""What has no other name today."""
