"""The runner's view of an agent that speaks Stable-Baselines3."""

from collections.abc import Callable
from typing import Any

from stable_baselines3.common.callbacks import BaseCallback


class AfterUpdate(BaseCallback):
    """Calls a function with the agent after every update.

    SB3 has no such event of its own: the next rollout's start, or the end of training, is when an
    update has been finished.
    """

    def __init__(self, function: Callable[[Any], bool]) -> None:
        super().__init__()
        self._function = function
        self._rollouts = 0

    def _on_rollout_start(self) -> None:
        if self._rollouts:
            self._function(self.model)
        self._rollouts += 1

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        self._function(self.model)
