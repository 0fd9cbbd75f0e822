"""The rules and the measures of the house: see `scripts/house.py`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))  # the kaname of this checkout
