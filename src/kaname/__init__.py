"""kaname: one durable, streaming, abortable agent loop. Public names are in `__init__.pyi`, and imported when first used."""

from . import moved as moved
from .lazy import lazy_names

__version__ = "0.1.0"
__getattr__, __dir__ = lazy_names(__name__)
