"""OT-TRPO with networks: trust-region policy optimisation in an optimal-transport region.

    OTTRPO("MlpPolicy", "Hopper-v5", seed=0).learn(1_000_000)

Algorithm 1 of the paper is `ottrpo.engine.algorithms.ottrpo`.
"""

import warnings
from typing import Any, ClassVar, Literal, final

from ottrpo.core import Binary, Cost, SquaredEuclidean
from ottrpo.core.cost_data import cost_from_data
from ottrpo.engine import models
from ottrpo.engine.algorithms.ottrpo import TrustRegion
from ottrpo.engine.estimate import Rollout
from ottrpo.engine.models.base import N_CANDIDATES, Options
from ottrpo.engine.schedules import Schedules
from ottrpo.engine.spaces import BoxActions

from .base import DeepAgent
from .settings import at_least, finite, flag, not_negative, one_of, positive, scheduled

UPDATES = ("regression", "ascent")
BOX_RADIUS, LABELS_RADIUS = "30%", "10%"


@final
class OTTRPO(DeepAgent):
    """Optimal-transport trust-region policy optimisation, drop-in for SB3's on-policy agents.

    Args:
        policy: ``MlpPolicy``, ``CnnPolicy`` or ``MultiInputPolicy``.
        env: an environment's id, a Gymnasium environment or an SB3 ``VecEnv``.
        learning_rate: of Adam; a number or a schedule.
        n_steps: steps per environment and update.
        batch_size: rows per gradient step.
        n_epochs: passes over a rollout.
        gamma: discount: a number, a schedule, or ``auto``, which looks as far ahead as recent
            episodes lasted, 100 to 1,000 steps.
        gae_lambda: λ of the generalised advantage estimate, a number or a schedule; by default it
            falls from 0.98 to 0.92 over the first 30 % of training for actions in a box, and is
            0.95 for finite ones.
        vf_coef: weight of the value function's loss.
        max_grad_norm: the joint gradient is clipped to this norm.
        use_sde: generalised state-dependent exploration.
        sde_sample_freq: steps between draws of its noise; -1: once per rollout.
        normalize_advantage: standardise the advantages of each rollout, before the dual.
        radius: ε, the transport budget of an update: a number, a schedule (a function of the
            progress that remains, or ``{"start": x, "end": y}``), or ``"30%"``: that
            share of the rollout's mean cost of a sampled action, whatever its unit. By default
            30 % for actions in a box and 10 % for finite ones.
        cost: of moving an action; squared Euclidean by default for boxes, binary for labels.
        model: how the advantage is thought to behave around the policy. ``linear`` (default with
            GAE): to first order, with all actions as candidates. ``sample``: the paper's
            candidates, the mean and the sampled action. ``antithetic``: a bad action speaks for
            its mirror image. ``candidates`` (default with a network): sampled targets.
        update: ``regression`` on the transport targets (default for boxes), or the paper's
            regularised ``ascent`` (default for finite actions, where targets of one sample per
            state would pull every policy towards the uniform one; not with ``linear`` in a box).
        advantage: ``gae``, or ``network``: a learned A(s, a), fitted to the GAE estimates.
        n_candidates: sampled target actions per state for ``candidates``.
        n_sources: sampled source actions per state for ``candidates``; 0: the Gaussian's mean.
        trust_region: ``exact``: step back until the realised discrepancy between old and new
            policy on the visited states is at most the radius, and shrink a radius that is too
            large to bind, or for a slope to be believed (400 %); ``paper``: neither.
        learn_std: let the standard deviation move too (``linear``, or ``n_sources`` above 0).
        log_std_final: anneal the logarithm of the standard deviation to this value.
        noise_color: exponent of the power spectrum of a Gaussian's noise over time: 0 white, 1
            pink; a number or a schedule. By default it fades from 1 to 0 over a fifth of training.
        normalize_obs: running normalisation of observations, saved with the agent.
        normalize_reward: running scaling of rewards.
        clip_obs: normalised observations are clipped to this.
        clip_reward: normalised rewards are clipped to this.
        n_envs: how many environments of an id to train in, simulated together where possible.
        threads: of their physics; by default one per core. Results do not depend on it.
        stats_window_size: episodes over which logged returns are averaged.
        tensorboard_log: directory for TensorBoard.
        policy_kwargs: ``net_arch``, ``activation_fn`` (a name or a torch class), ``ortho_init``,
            ``log_std_init``, ``features_dim``.
        verbose: 0 nothing, 1 SB3's tables.
        seed: of everything random.
        device: ``auto`` and ``cpu`` are the CPU; ``cuda`` the first accelerator.
    """

    LOG_STD_INIT: ClassVar[float] = -0.7

    def __init__(
        self,
        policy: str | type,
        env: Any,
        learning_rate: Any = 3e-4,
        n_steps: int = 2048,
        batch_size: int = 64,
        n_epochs: int = 10,
        gamma: Any = "auto",
        gae_lambda: Any = None,
        vf_coef: float = 0.5,
        max_grad_norm: float = 0.5,
        use_sde: bool = False,
        sde_sample_freq: int = -1,
        normalize_advantage: bool = True,
        *,
        radius: Any = None,
        cost: Any = None,
        model: str | None = None,
        update: Literal["regression", "ascent"] | None = None,
        advantage: Literal["gae", "network"] = "gae",
        n_candidates: int = N_CANDIDATES,
        n_sources: int = 0,
        trust_region: Literal["exact", "paper"] = "exact",
        learn_std: bool = False,
        log_std_final: float | None = None,
        noise_color: Any = None,
        normalize_obs: bool = True,
        normalize_reward: bool = True,
        clip_obs: float = 10.0,
        clip_reward: float = 10.0,
        n_envs: int = 1,
        threads: int | None = None,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: str = "auto",
        _init_setup_model: bool = True,
    ) -> None:
        super().__init__(
            policy,
            env,
            learning_rate=learning_rate,
            n_steps=n_steps,
            batch_size=batch_size,
            n_epochs=n_epochs,
            gamma=gamma,
            gae_lambda=gae_lambda,
            vf_coef=vf_coef,
            max_grad_norm=max_grad_norm,
            use_sde=use_sde,
            sde_sample_freq=sde_sample_freq,
            noise_color=noise_color,
            normalize_obs=normalize_obs,
            normalize_reward=normalize_reward,
            clip_obs=clip_obs,
            clip_reward=clip_reward,
            n_envs=n_envs,
            threads=threads,
            stats_window_size=stats_window_size,
            tensorboard_log=tensorboard_log,
            policy_kwargs=policy_kwargs,
            verbose=verbose,
            seed=seed,
            device=device,
            _init_setup_model=False,
        )
        self.normalize_advantage = flag("normalize_advantage", normalize_advantage)
        self.radius = radius
        self.cost = cost
        self.advantage = one_of("advantage", advantage, ("gae", "network"))
        known = models.names(self.advantage)
        self.model = one_of("model", model or known[0], known)
        self.update = None if update is None else one_of("update", update, UPDATES)
        self.n_candidates = at_least("n_candidates", n_candidates, 1)
        self.n_sources = at_least("n_sources", n_sources, 0)
        self.trust_region = one_of("trust_region", trust_region, ("exact", "paper"))
        self.learn_std = flag("learn_std", learn_std)
        self.log_std_final = log_std_final
        if log_std_final is not None:
            self.log_std_final = finite("log_std_final", log_std_final)
            if learn_std:
                raise ValueError(
                    "learn_std and log_std_final exclude each other: learn or anneal σ"
                )
        if _init_setup_model:
            self._setup_model()

    def _setup_model(self) -> None:
        super()._setup_model()
        if self.env is not None and self.normalize_advantage and self.n_steps * self.n_envs == 1:
            raise ValueError(
                "n_steps times the number of environments must be above 1: a single advantage "
                "minus its mean is 0, and nothing would be learnt"
            )

    def _schedules(self, **more: Any) -> Schedules:
        default = BOX_RADIUS if isinstance(self.actions, BoxActions) else LABELS_RADIUS
        self._radius = Radius(default if self.radius is None else self.radius)
        log_std = None
        if self.log_std_final is not None:
            log_std = (float(self.architecture.log_std_init or 0.0), self.log_std_final)
        return super()._schedules(radius=self._radius.schedule, log_std=log_std, **more)

    def _algorithm(self) -> TrustRegion:
        model = models.model_for(self.model, self.advantage, self.actions)
        return TrustRegion(
            model=model(self._options()),
            learned=self.advantage == "network",
            relative=self._radius.relative,
            exact=self.trust_region == "exact",
            **self._shared(),
        )

    def _options(self) -> Options:
        box = isinstance(self.actions, BoxActions)
        default: Cost = SquaredEuclidean() if box else Binary()
        cost = default if self.cost is None else cost_from_data(self.cost)
        if cost.takes_labels is box:
            kind = "labels" if cost.takes_labels else "points"
            raise ValueError(f"cost {cost!r} is for {kind}; the actions are {self.action_space}")
        moves_std = self.learn_std or self.log_std_final is not None
        coloured = self.noise_color is not None and self.noise_color != 0
        if not box and (moves_std or self.n_sources or coloured):
            raise ValueError(
                "learn_std, log_std_final, n_sources and noise_color need actions in a Box, got "
                f"{self.action_space}"
            )
        return Options(
            cost=cost,
            actions=self.actions,
            update=self.update,
            learn_std=self.learn_std,
            std_moves=moves_std or self.use_sde,
            n_candidates=self.n_candidates,
            n_sources=self.n_sources,
            shrink=self.trust_region == "exact",
        )

    def train(self, rollout: Rollout) -> dict[str, float]:
        """One update: estimate (step 3), solve the dual (step 4), move the policy (step 5)."""
        update = super().train(rollout)
        if update["ot/inactive"] and self.trust_region == "paper":
            warnings.warn(
                f"the radius {update['ot/radius']:.3g} is too large to bind (multiplier 0): in the "
                "paper's way the policy may not move at all; trust_region='exact' shrinks it",
                stacklevel=2,
            )
        return update


class Radius:
    """ε of an update: a number, a schedule, or a percentage of the rollout's mean cost."""

    def __init__(self, value: Any) -> None:
        parts = [value]
        if isinstance(value, dict):
            parts = [part for key, part in value.items() if key != "end_fraction"]
            value = {k: v if k == "end_fraction" else _share(v) for k, v in value.items()}
        else:
            value = _share(value)
        self.relative = any(isinstance(part, str) for part in parts)
        if self.relative and not all(isinstance(part, str) for part in parts):
            raise ValueError(f"radius mixes percentages and numbers: {parts}")
        check = _budget if callable(value) or isinstance(value, dict) else _positive_budget
        self.schedule = scheduled("radius", value, check)


def _budget(name: str, value: Any) -> float:
    return not_negative(name, finite(name, value))


def _positive_budget(name: str, value: Any) -> float:
    return positive(name, finite(name, value))


def _share(value: Any) -> Any:
    """A percentage as a fraction; anything else as it is."""
    if not isinstance(value, str):
        return value
    try:
        if not value.endswith("%"):
            raise ValueError(value)
        return float(value[:-1]) / 100.0
    except ValueError:
        raise ValueError(
            f'radius must be a number, a schedule or a share such as "30%", got {value!r}'
        ) from None
