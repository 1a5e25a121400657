"""The counting agent with moods, for tests of what happens when a run goes wrong."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from counting_agent import CountingAgent

from ottrpo.persistence.snapshot import Snapshot


@dataclass(frozen=True)
class Nowhere:
    """A world without a state."""

    def why_not_exact(self):
        return None

    def capture(self, arrays):
        return None, None

    def restore(self, state, arrays):
        assert state is None

    def reseed(self, seed):
        return None


class MoodyAgent(CountingAgent, Snapshot):
    """Late in training it crashes, hangs or dies, as its mood is; once, if it can leave a mark.

    ``pause`` is how long an update takes, in seconds; ``marks`` where it leaves marks.
    """

    def __init__(self, env, *, mood="calm", pause=0.0, marks="", stride=7_000, seed=0):
        super().__init__(env, stride=stride, seed=seed)
        self.mood, self.pause, self.marks = mood, pause, marks

    def learn(self, total_timesteps):
        self._total_timesteps = self.num_timesteps + total_timesteps
        return super().learn(self._total_timesteps)

    def _after_update(self):
        time.sleep(self.pause)
        if self.num_timesteps > 0.8 * self._total_timesteps and self._has_its_moment():
            self._lose_it()
        return super()._after_update()

    def start_segment(self):
        raise AssertionError("an exact run has no segments")

    def _learnt(self):
        return {}, {"num_timesteps": self.num_timesteps}

    def _restore(self, arrays, data):
        self.num_timesteps = data["num_timesteps"]

    def _kept(self):
        return {"total": self._total_timesteps}

    def _go_on(self, kept, first):
        self._total_timesteps = kept["total"]

    def _world(self):
        return Nowhere()

    @classmethod
    def _made_again(cls, saved, env, settings):
        return cls(env, **settings)

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
