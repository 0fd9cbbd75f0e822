"""The five designs under their own names: each class is a thin form of something that `kaname` has anyway.

`from kaname.designs import AgentRuntime`; `docs/designs` has a page for each design. Public names are in `__init__.pyi`, and
imported when first used. Names that a design shares with kaname itself, such as `Guardrails`, are found here as well.
"""

from ..lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__, also="kaname")
