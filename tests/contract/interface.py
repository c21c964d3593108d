"""The public interface as text: names, signatures, defaults, attributes, and classes of errors.

`python -m tests.contract.interface` writes `interface.json`; `git diff` then shows what changed for
users, which belongs into the changelog.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
from pathlib import Path
from types import WrapperDescriptorType
from typing import Any

FILE = Path(__file__).parent / "interface.json"

MODULES = (
    "sgmcmc",
    "sgmcmc.dynamics",
    "sgmcmc.estimators",
    "sgmcmc.gradients",
    "sgmcmc.keras",
    "sgmcmc.manifolds",
    "sgmcmc.minibatches",
    "sgmcmc.models",
)
"""Modules whose public names are the interface."""


def interface() -> dict[str, Any]:
    """Return the description of every public name, by module."""
    return {name: _of_module(importlib.import_module(name)) for name in MODULES}


def _of_module(module: Any) -> dict[str, Any]:
    return {name: described(getattr(module, name)) for name in sorted(module.__all__)}


def described(value: Any) -> Any:
    """Return the signature of a function; of a class its bases, signature and public members."""
    if inspect.isclass(value):
        found: dict[str, Any] = {}
        if issubclass(value, BaseException):
            found["bases"] = [base.__name__ for base in value.__mro__[1:-1]]
        found["call"] = signature(value)
        found["members"] = {
            name: _member(value, name)
            for name in sorted(dir(value))
            if _is_own(value, name)
        }
        return found
    if callable(value):
        return signature(value)
    return "module" if inspect.ismodule(value) else f"a {type(value).__name__}"


def _is_own(owner: type, name: str) -> bool:
    """Return whether a public member comes from the package, not from a library's base class."""
    if name.startswith("_"):
        return False
    where = next(base for base in owner.__mro__ if name in vars(base))
    return where.__module__.startswith("sgmcmc")


def _member(owner: type, name: str) -> str:
    value = inspect.getattr_static(owner, name)
    if isinstance(value, staticmethod | classmethod) or inspect.isfunction(value):
        return signature(getattr(owner, name))
    return "attribute"


def signature(value: Any) -> str:
    """Return parameters and defaults, without annotations."""
    if inspect.isclass(value) and isinstance(value.__init__, WrapperDescriptorType):
        return "(...)"  # of an error: that of Python's own class
    parameters = inspect.signature(value).parameters.values()
    plain = [each.replace(annotation=inspect.Parameter.empty) for each in parameters]
    text = str(inspect.Signature(plain))
    return re.sub(r" at 0x[0-9a-f]+", "", text)


if __name__ == "__main__":
    FILE.write_text(json.dumps(interface(), indent=1) + "\n")
