"""What a parser of the command line has, which argparse does not show."""

import argparse
from collections.abc import Mapping, Sequence


def actions(parser: argparse.ArgumentParser) -> Sequence[argparse.Action]:
    """Return the options and words of a command."""
    return parser._actions


def subcommands(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    """Return the commands below a command by name."""
    return next((one.choices for one in actions(parser) if isinstance(one.choices, dict)), {})
