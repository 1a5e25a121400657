"""The state of environments as arrays and JSON, so that training can go on where it stopped.

What is captured is exact: the environment goes on bit for bit. Where that can't be done the caller
is told why, and seeds the environment anew instead.
"""

from .capturable import Capturable, capture_layers, restore_layers
from .layers import NotCaptured

__all__ = ["Capturable", "NotCaptured", "capture_layers", "restore_layers"]
