"""``ottrpo tune``."""

import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from ottrpo.terminal import bar, say

from .options import Mistake, mistakes, require_at_least

if TYPE_CHECKING:
    from ottrpo.experiments.tuning import Search


@dataclass(frozen=True, kw_only=True)
class Tune:
    """Search for settings of an agent on an environment, and write them to a file.

    Use that file by `ottrpo train ENV --config FILE`. Trials that lag behind the median are ended
    early. The search can be stopped at any time, and the same command continues it.
    """

    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
    """a Gymnasium id"""
    agent: str = "ottrpo"
    """the agent; `ottrpo list` names them"""
    config: str = "default"
    """the configuration of the first trial"""
    trials: int = 30
    """number of trials in all, including those of earlier commands"""
    steps: int | None = None
    """training steps of a trial; by default a tenth of the configuration's"""
    seeds: int = 1
    """number of seeds that each trial is trained with"""
    seed: int = 0
    """the first of these seeds, and the seed of the search"""
    storage: Path | None = None
    """the file that keeps the search; by default one under runs/"""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """the settings file to write; by default ENV-AGENT.toml"""

    def run(self) -> int:
        """Search, tell, write."""
        require_at_least(1, trials=self.trials, steps=self.steps, seeds=self.seeds)
        require_at_least(0, seed=self.seed)
        from ottrpo.experiments import tuning
        from ottrpo.persistence.bundle import write_atomically

        with mistakes():
            search = self._search()
            environment = search.environment.replace("/", "-").replace(":", "-")
            name = "__".join((environment, search.agent, search.config))
            storage = self.storage or Path("runs") / f"tune__{name}.journal"
            out = self.out or Path(f"{environment}-{search.agent}.toml")
            if out.suffix != ".toml":
                raise Mistake(f"{out} must end in .toml")
            study = tuning.open_search(search, storage)
        done = tuning.ended(study)
        say(
            f"{search.agent} ({search.config}) on {search.environment}: {self.trials} trials of "
            f"{search.steps:,} steps, {done} done before -> {storage}"
        )
        began = time.monotonic()
        with bar("trials", max(0, self.trials - done)) as after:

            def tell(trial: Any) -> None:
                after()
                left = self.trials - tuning.ended(study)
                made = self.trials - done - left
                each = (time.monotonic() - began) / max(1, made)
                about = f", about {timedelta(seconds=round(left * each))} left" if left else ""
                say(f"trial {trial.number}: {_told(trial)}{about}")

            try:
                tuning.tune(search, study, self.trials, tell)
            except KeyboardInterrupt:
                say("ottrpo: interrupted; the same command goes on", error=True)
                return 1
        with mistakes():
            told = tuning.outcome(study)
            write_atomically(out, tuning.settings_file(search, study).encode())
        say(
            f"{told}\nwritten: {out}; to use it: ottrpo train {search.environment} "
            f"--agent {search.agent} --config {out}"
        )
        return 0

    def _search(self) -> "Search":
        from ottrpo.experiments.run import plan_run
        from ottrpo.experiments.tuning import Search

        given: dict[str, Any] = {"agent": self.agent, "config": self.config}
        spec = plan_run(self.env, **given, seed=self.seed, steps=self.steps)
        steps = spec.steps if self.steps is not None else max(1, spec.steps // 10)
        return Search(
            environment=spec.environment, **given, steps=steps, seeds=self.seeds, seed=self.seed
        )


def _told(trial: Any) -> str:
    if trial.state.name == "PRUNED":
        return f"ended early after {len(trial.intermediate_values)} evaluations"
    return "failed" if trial.value is None else f"{trial.value:,.2f}"
