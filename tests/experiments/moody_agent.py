"""The counting agent with moods, for tests of what happens when a run goes wrong."""

import os
import signal
import time
from pathlib import Path

from counting_agent import CountingAgent


class MoodyAgent(CountingAgent):
    """Late in training it crashes, hangs or dies, as its mood is; once, if it can leave a mark.

    ``pause`` is how long an update takes, in seconds; ``marks`` where it leaves marks.
    """

    def __init__(self, env, *, mood="calm", pause=0.0, marks="", stride=7_000, seed=0):
        super().__init__(env, stride=stride, seed=seed)
        self.mood, self.pause, self.marks = mood, pause, marks

    def learn(self, total_timesteps, callback=None, progress_bar=False):
        end = self.num_timesteps + total_timesteps

        def moody(agent):
            time.sleep(self.pause)
            if agent.num_timesteps > 0.8 * end and self._has_its_moment():
                self._lose_it()
            return callback(agent)

        return super().learn(end, callback=moody)

    def why_not_exact(self):
        return None

    def start_segment(self):
        raise AssertionError("an exact run has no segments")

    def training_state(self):
        return {}, {"num_timesteps": self.num_timesteps}

    def resume_from(self, arrays, data):
        self.num_timesteps = data["num_timesteps"]

    def _has_its_moment(self):
        if self.mood == "calm":
            return False
        if not self.marks:
            return True
        mark = Path(self.marks) / f"{self.mood}-{self.seed}"
        if mark.exists():
            return False
        mark.touch()
        return True

    def _lose_it(self):
        if self.mood == "crash":
            raise RuntimeError("in a bad mood")
        if self.mood == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.mood == "hang":
            time.sleep(600)
