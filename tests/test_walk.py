"""How far one step of training walks through the package, from the environment to a checkpoint."""

import sys
from pathlib import Path

from stable_baselines3.common.callbacks import BaseCallback

import ottrpo
from ottrpo import OTTRPO, CheckpointEvery

PACKAGE = Path(ottrpo.__file__).parent
CONTRIBUTING = Path(__file__).parent.parent / "CONTRIBUTING.md"
MOST_FILES = 25


class Walk(BaseCallback):
    """Notes the files of the package that the second update passes through."""

    def __init__(self):
        super().__init__()
        self.files = {}

    def _on_training_start(self):
        self.model.while_learning.enter_context(self.model.telling(self._after_update))

    def _on_rollout_start(self):
        if self.model._n_updates == 1:
            sys.setprofile(self._note)

    def _after_update(self, agent):
        if agent._n_updates == 2:  # the checkpoint was written: who writes it was told first
            sys.setprofile(None)

    def _on_step(self):
        return True

    def _note(self, frame, event, argument):
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            name = str(path.relative_to(PACKAGE))
            self.files.setdefault(name, set()).add(frame.f_code.co_qualname)


def test_one_step_of_hopper_touches_few_files(tmp_path):
    agent = OTTRPO("MlpPolicy", "Hopper-v5", n_steps=128, batch_size=64, n_epochs=1, seed=0)
    walk = Walk()
    try:
        agent.learn(384, callback=[CheckpointEvery(128, tmp_path), walk])
    finally:
        sys.setprofile(None)
    assert len(walk.files) <= MOST_FILES, sorted(walk.files)
    drawn = CONTRIBUTING.read_text().split("## The walk of one step")[1].split("## ")[0]
    own = [file for file in walk.files if file.split("/")[0] in ("engine", "collect")]
    missing = [file for file in own if Path(file).stem not in drawn]
    assert not missing, missing
