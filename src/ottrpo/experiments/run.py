"""Train one agent on one environment, measure it by protocol, and keep the run."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces

from ottrpo.core.checks import require
from ottrpo.envs import catalogue

from . import provenance
from .protocol import protocol_named
from .registry import agent_by_key, agent_for
from .spec import (
    RunSpec,
    merge,
    parse_overrides,
    read_configuration,
    require_known,
    require_types,
)
from .store import RunDirectory

# Updates are logged this often over a whole run; the last one always is.
LOGGED_UPDATES = 1000
# Streams that evaluations draw from start here: far from the seeds people train with.
EVALUATION_STREAM = 1_000_003


class Watch(Protocol):
    """Someone who looks on while an agent trains."""

    def update(self, timestep: int) -> None:
        """The agent has finished an update."""

    def evaluation(self, record: Mapping[str, Any]) -> None:
        """The agent has been evaluated."""


def plan_run(
    environment: str,
    *,
    agent: str = "ottrpo",
    config: str = "default",
    seed: int = 0,
    steps: int | None = None,
    overrides: Iterable[str] = (),
    protocol: str = "paper",
) -> RunSpec:
    """Resolve what the user asked for into a run.

    Raises:
        ValueError: if the environment, the agent, the configuration or a setting is unknown.
    """
    finite = _is_finite(environment)
    name = catalogue.resolve(environment)
    entry = agent_for(agent, name, finite=finite)
    configuration = read_configuration(entry.config_folder, config)
    settings = merge(configuration.settings_for(name), parse_overrides(overrides))
    known = entry.known_settings()
    require_known(settings, known, agent)
    require_types(settings, known)
    total = configuration.steps_for(name) if steps is None else steps
    if total is None:
        raise ValueError(f"the configuration {config!r} says no steps for {name}; give --steps N")
    return RunSpec(
        environment=name,
        asked_environment=environment,
        agent=agent,
        agent_key=entry.key,
        config=config,
        settings=settings,
        seed=seed,
        steps=total,
        protocol=protocol_named(protocol, finite=finite),
    )


def build_agent(spec: RunSpec) -> Any:
    """The agent of ``spec``, untrained.

    Raises:
        ValueError: if a setting has a value that the agent refuses.
    """
    return agent_by_key(spec.agent_key).build(spec.environment, spec.settings, spec.seed)


def manifest(spec: RunSpec) -> dict[str, Any]:
    """What is written down before a run starts."""
    return {
        **asdict(spec),
        "resolved": agent_by_key(spec.agent_key).resolve(spec.settings),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": provenance.versions(),
        "hardware": provenance.hardware(),
        "commit": provenance.commit(),
    }


def train(spec: RunSpec, agent: Any, directory: RunDirectory, watch: Watch) -> None:
    """Train ``agent`` by ``spec`` and write what happens into ``directory``."""
    recorder = _Recorder(spec, directory, watch)
    if agent_by_key(spec.agent_key).finite:
        agent.learn(spec.steps, callback=recorder.after_update)
    else:
        from .sb3_callback import AfterUpdate

        agent.learn(spec.steps, callback=AfterUpdate(recorder.after_update))
    recorder.finish(agent)
    agent.save(directory.agent_path)


def load_agent(directory: RunDirectory) -> Any:
    """The trained agent of a run."""
    require(
        directory.finished,
        f"{directory.path} holds no trained agent: the run has not finished",
    )
    entry = agent_by_key(str(directory.manifest.get("agent_key")))
    return entry.load().load(directory.agent_path, env=directory.manifest["environment"])


class _Recorder:
    """Logs updates and evaluates at the protocol's marks, whichever update passes them."""

    def __init__(self, spec: RunSpec, directory: RunDirectory, watch: Watch) -> None:
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
        began = time.perf_counter()
        train_seconds = self._train_seconds()
        for deterministic in self._spec.protocol.deterministic:
            stream = [EVALUATION_STREAM, self._spec.seed, mark, int(deterministic)]
            seed = int(np.random.SeedSequence(stream).generate_state(1)[0])
            returns = agent.evaluate(
                self._spec.protocol.episodes, deterministic=deterministic, seed=seed
            )
            record = {
                "timestep": int(agent.num_timesteps),
                "mark": mark,
                "deterministic": deterministic,
                "returns": [float(value) for value in returns],
                "train_seconds": train_seconds,
                "wall_seconds": time.perf_counter() - self._started,
            }
            self._directory.log_evaluation(record)
            self._watch.evaluation(record)
        self._evaluating += time.perf_counter() - began

    def _train_seconds(self) -> float:
        return time.perf_counter() - self._started - self._evaluating


def _is_finite(environment: str) -> bool:
    env = catalogue.make(environment)
    try:
        both = (env.observation_space, env.action_space)
        return all(isinstance(space, spaces.Discrete) for space in both)
    finally:
        env.close()


def default_directory(spec: RunSpec, root: Path) -> Path:
    """A new directory under ``root``: what is trained, and when."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    parts = (spec.environment, spec.agent, spec.config, f"seed{spec.seed}", stamp)
    return root / "__".join(part.replace("/", "-") for part in parts)
