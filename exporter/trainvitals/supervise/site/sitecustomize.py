"""Loaded by each Python of a command that ``trainvitals run`` started.

It gives way to the ``sitecustomize`` that would have been loaded without it, then watches the frameworks that the
program imports.  Whatever goes wrong here stays here: the program starts as it would have started.
"""

import os
import sys


def _give_way(here: str) -> None:
    """Load the next ``sitecustomize`` of the path under its name; its errors are its own."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != here]
    sys.path_importer_cache.pop(here, None)
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def _attach() -> None:
    """Watch the frameworks; nothing of this process is recorded before it trains."""
    if os.environ.get("TRAINVITALS_DISABLE", "") not in ("", "0"):
        return
    try:
        import trainvitals
    except ImportError:
        from importlib.util import module_from_spec, spec_from_file_location

        folder = os.environ["TRAINVITALS_PACKAGE"]
        path = os.path.join(folder, "__init__.py")
        spec = spec_from_file_location("trainvitals", path, submodule_search_locations=[folder])
        trainvitals = module_from_spec(spec)
        sys.modules["trainvitals"] = trainvitals
        spec.loader.exec_module(trainvitals)
    trainvitals.auto()
    if os.environ.get("TRAINVITALS_STACKS"):
        from trainvitals.probe import stacks

        stacks.register(os.environ)


try:
    _attach()
except Exception as error:
    print(f"trainvitals: this process is not watched: {error!r}", file=sys.stderr)
_give_way(os.path.dirname(os.path.abspath(__file__)))
