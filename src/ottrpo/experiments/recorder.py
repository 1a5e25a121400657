"""What is written down while an agent trains: its updates, and its evaluations by protocol."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, final

import numpy as np

from ottrpo.results.run_directory import RunDirectory

from .spec import RunSpec

# Updates are logged this often over a whole run; the last one always is.
LOGGED_UPDATES = 1000
# Streams that evaluations draw from start here: far from the seeds people train with.
EVALUATION_STREAM = 1_000_003


class Onlooker:
    """Someone who looks on while an agent trains; by itself without a word."""

    def update(self, timestep: int) -> None:
        """The agent has finished an update."""

    def evaluation(self, record: Mapping[str, Any]) -> None:
        """The agent has been evaluated."""

    def figures(self, told: Mapping[str, float]) -> None:
        """What the last update told."""


def evaluation_seed(seed: int, mark: int, deterministic: bool) -> int:
    """The seed of an evaluation: that of the run's own, of the mark, and of the way to act."""
    stream = [EVALUATION_STREAM, seed, mark, int(deterministic)]
    return int(np.random.SeedSequence(stream).generate_state(1)[0])


@final
class Recorder:
    """Logs updates and evaluates at the protocol's marks, whichever update passes them."""

    def __init__(self, spec: RunSpec, directory: RunDirectory, watch: Onlooker) -> None:
        self._spec = spec
        self._directory = directory
        self._watch = watch
        self._marks = spec.protocol.marks(spec.steps)
        self._started = time.perf_counter()
        self._evaluating = 0.0
        self._updates = 0
        self._violations = 0
        self._next_log = 0.0
        self._logged = 0

    def after_update(self, agent: Any) -> bool:
        """Called by the agent after every update; training goes on."""
        self._updates += 1
        self._violations += agent.last_update.get("ot/violation", 0.0) > 0
        timestep = int(agent.num_timesteps)
        passed = [mark for mark in self._marks if mark <= timestep]
        if timestep >= self._next_log:
            self._log(agent)
        # an update that passes several marks is evaluated for each: scores keep their ten
        # evaluations in the last tenth, however long the updates are
        for mark in passed:
            self._evaluate(agent, mark)
        self._marks = self._marks[len(passed) :]
        self._watch.update(timestep)
        return True

    def finish(self, agent: Any) -> None:
        """Log the last update, and evaluate the trained agent if no update passed the end."""
        if self._logged < self._updates:
            self._log(agent)
        if self._marks:
            self._evaluate(agent, self._spec.steps)

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps of it: counters and clocks, and how long the logs are."""
        self._directory.sync_logs()
        return {
            "marks_left": len(self._marks),
            "updates": self._updates,
            "violations": self._violations,
            "next_log": self._next_log,
            "logged": self._logged,
            "seconds": time.perf_counter() - self._started,
            "evaluating": self._evaluating,
            "log_sizes": self._directory.log_sizes(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`; what was logged after it is taken out of the logs.

        Raises:
            ValueError: if the logs are shorter than they were.
        """
        self._directory.cut_logs(state["log_sizes"])
        self._marks = self._marks[len(self._marks) - int(state["marks_left"]) :]
        self._updates = int(state["updates"])
        self._violations = int(state["violations"])
        self._next_log = float(state["next_log"])
        self._logged = int(state["logged"])
        self._started = time.perf_counter() - float(state["seconds"])
        self._evaluating = float(state["evaluating"])

    def _log(self, agent: Any) -> None:
        timestep = int(agent.num_timesteps)
        self._next_log = timestep + self._spec.steps / LOGGED_UPDATES
        self._logged = self._updates
        self._directory.log_metrics(
            {
                "timestep": timestep,
                "update": self._updates,
                "violations": self._violations,
                "train_seconds": self._train_seconds(),
                **agent.last_update,
            }
        )

    def _evaluate(self, agent: Any, mark: int) -> None:
        train_seconds, protocol = self._train_seconds(), self._spec.protocol
        with self.evaluating():
            for way in protocol.deterministic:
                seed = evaluation_seed(self._spec.seed, mark, way)
                returns = agent.evaluate(protocol.episodes, deterministic=way, seed=seed)
                record = {
                    "timestep": int(agent.num_timesteps),
                    "mark": mark,
                    "deterministic": way,
                    "returns": [float(value) for value in returns],
                    "train_seconds": train_seconds,
                    "wall_seconds": time.perf_counter() - self._started,
                }
                self._directory.log_evaluation(record)
                self._watch.evaluation(record)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Inside, time does not count as training."""
        began = time.perf_counter()
        yield
        self._evaluating += time.perf_counter() - began

    def _train_seconds(self) -> float:
        return time.perf_counter() - self._started - self._evaluating
