"""Models: adapters to providers, and models for tests. Public names are in `__init__.pyi`."""

from ..lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__)
