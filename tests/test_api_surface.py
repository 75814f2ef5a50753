"""The public names and their signatures are those of api_surface.json: a change of either is seen in review.

After a change that is meant: `python -m tests.test_api_surface`.
"""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

INVENTORY = Path(__file__).with_name("api_surface.json")


def surface(module: ModuleType, prefix: str = "") -> dict[str, Any]:
    """Every public name of a module and of its public submodules, with how it is called."""
    found: dict[str, Any] = {}
    for name in sorted(getattr(module, "__all__", ())):
        value = getattr(module, name)
        if isinstance(value, ModuleType):
            found |= surface(value, f"{prefix}{name}.")
        elif inspect.isclass(value):
            found[f"{prefix}{name}"] = {"": _call(value), **_methods(value, module)}
        else:
            found[f"{prefix}{name}"] = _call(value) if callable(value) else type(value).__name__
    return found


def _methods(cls: type, module: ModuleType) -> dict[str, str]:
    """The public methods and properties of the library's own, less those of a base that is listed itself."""
    listed = [getattr(module, name) for name in module.__all__]
    own = [base for base in reversed(cls.__mro__) if base.__module__.startswith("optima") and base not in listed]
    members = {name: value for base in (*own, cls) for name, value in vars(base).items() if not name.startswith("_")}
    return {name: _call(value) for name, value in sorted(members.items()) if callable(value) or _is_property(value)}


def _is_property(value: Any) -> bool:
    return isinstance(value, property | classmethod)


def _call(value: Any) -> str:
    if isinstance(value, property):
        return "property"
    return str(inspect.signature(value.__func__ if isinstance(value, classmethod) else value))


def test_the_public_names_and_signatures_are_those_of_the_inventory():
    # a process of its own: the suite's import hook wraps functions
    fresh = subprocess.run([sys.executable, "-m", __name__, "--print"], capture_output=True, text=True, check=True)
    assert json.loads(fresh.stdout) == json.loads(INVENTORY.read_text(encoding="utf-8"))


if __name__ == "__main__":
    import optima

    text = json.dumps(surface(optima), indent=1, ensure_ascii=False) + "\n"
    if "--print" in sys.argv:
        sys.stdout.write(text)
    else:
        INVENTORY.write_text(text, encoding="utf-8")
