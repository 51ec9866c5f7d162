"""Import gradio in half its time. The only place where the studio changes how gradio works.

As it is imported, gradio parses the source of every component and writes a stub for editors beside
it (``gradio.component_meta.create_or_modify_pyi``): 2.3 of 5.1 CPU seconds, for files that nothing
reads at run time. Here no stubs are made; a gradio without that function is imported as it is.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MODULE, STUBS = "gradio.component_meta", "create_or_modify_pyi"


class _WithoutStubs(MetaPathFinder):
    """Finds that one module as usual, and replaces the function once the module has run."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            run = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                if hasattr(module, STUBS):
                    setattr(module, STUBS, lambda *_: None)

            loader.exec_module = exec_module
        return spec


def without_stubs() -> None:
    """From here on; nothing happens when gradio is imported already."""
    if MODULE not in sys.modules:
        sys.meta_path.insert(0, _WithoutStubs())
