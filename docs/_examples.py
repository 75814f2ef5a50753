"""For the reference: a docstring's `Example:` is shown as code, which the parser only does for `Examples:`."""

import re
from typing import Any

import griffe


class Examples(griffe.Extension):
    """Rename the section before the docstring is parsed."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
