"""OT-TRPO with networks: trust-region policy optimisation in an optimal-transport region.

    OTTRPO("MlpPolicy", "Hopper-v5", seed=0).learn(1_000_000)

`OTTRPO.train` is Algorithm 1 of the paper.
"""

import warnings
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from stable_baselines3.common.utils import FloatSchedule

from ottrpo.core import Binary, Cost, SquaredEuclidean
from ottrpo.core.cost_data import cost_from_data
from ottrpo.deep.acting import BoxActions, FiniteActions
from ottrpo.deep.advantage_network import AdvantageNetwork
from ottrpo.deep.losses import actor_critic_loss
from ottrpo.deep.region import between, largest_share
from ottrpo.deep.rollout import NonFiniteError, Rollout
from ottrpo.deep.update import Learner, make_descend, minibatches

from .base import DeepAgent
from .experience import Experience
from .finite import FiniteSteps
from .gaussian import GaussianSteps
from .plan import Plan
from .settings import at_least, finite, flag, not_negative, one_of, positive, scheduled

Array = Any
Scale = tuple[Array, Array]
MODELS = {"gae": ("linear", "sample", "antithetic"), "network": ("candidates", "linear")}
UPDATES = ("regression", "ascent")
BOX_RADIUS, LABELS_RADIUS = "30%", "10%"
N_CANDIDATES = 8
# a schedule may end at 0, and the draws of a policy that has become certain cost nothing
SMALLEST_RADIUS = 1e-10


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
        model: Literal["linear", "sample", "antithetic", "candidates"] | None = None,
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
        default_model = "linear" if advantage == "gae" else "candidates"
        self.model = one_of("model", model or default_model, MODELS[self.advantage])
        self.update = None if update is None else one_of("update", update, UPDATES)
        self.n_candidates = at_least("n_candidates", n_candidates, 1)
        if self.model != "candidates" and n_candidates != N_CANDIDATES:
            raise ValueError(
                f"n_candidates needs advantage 'network' and model 'candidates', got {self.model!r}"
            )
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
        self._steps = self._steps_for(self.actions)
        default = BOX_RADIUS if isinstance(self.actions, BoxActions) else LABELS_RADIUS
        self._radius = Radius(default if self.radius is None else self.radius)
        loss = actor_critic_loss(self._steps.loss(), self.vf_coef)
        self._descend = make_descend(loss, self.max_grad_norm)
        self._spent = self._steps.spent()
        self._network = None
        if self.advantage == "network":
            self._network = AdvantageNetwork(
                self.architecture, self.actions, self.rng, self.max_grad_norm
            )

    def learners(self) -> dict[str, Learner]:
        """Policy and value function, and the learned advantage if there is one."""
        network = self._network
        return super().learners() | ({} if network is None else {"advantage": network.learner})

    def set_learners(self, learners: Mapping[str, Learner]) -> None:
        """Replace what `learners` returned."""
        super().set_learners(learners)
        if self._network is not None:
            self._network.learner = learners["advantage"]

    def _steps_for(self, actions: BoxActions | FiniteActions) -> GaussianSteps | FiniteSteps:
        box = isinstance(actions, BoxActions)
        default: Cost = SquaredEuclidean() if box else Binary()
        cost = default if self.cost is None else cost_from_data(self.cost)
        moves_std = self.learn_std or self.log_std_final is not None
        if cost.takes_labels is box:
            kind = "labels" if cost.takes_labels else "points"
            raise ValueError(f"cost {cost!r} is for {kind}; the actions are {self.action_space}")
        if isinstance(actions, BoxActions):
            return GaussianSteps(
                cost,
                actions.size,
                self.model,
                self.update or "regression",
                learn_std=self.learn_std,
                std_moves=moves_std or self.use_sde,
                n_candidates=self.n_candidates,
                n_sources=self.n_sources,
                shrink=self.trust_region == "exact",
            )
        if self.model == "linear" and self.advantage == "network":
            raise ValueError(
                "model 'linear' with advantage 'network' needs actions in a Box; of finite actions "
                "the network tells all gains (model 'candidates')"
            )
        coloured = self.noise_color is not None and self.noise_color != 0
        if moves_std or self.model == "antithetic" or self.n_sources or coloured:
            raise ValueError(
                "learn_std, log_std_final, n_sources, noise_color and model 'antithetic' need "
                f"actions in a Box, got {self.action_space}"
            )
        return FiniteSteps(
            cost,
            actions,
            self.model,
            self.update or "ascent",
            shrink=self.trust_region == "exact",
        )

    # ------------------------------------------------------------------ Algorithm 1

    def train(self, rollout: Rollout) -> dict[str, float]:
        """One update: estimate (step 3), solve the dual (step 4), move the policy (step 5)."""
        old_policy, old_scale = self.learner.networks.policy, self._acting_scale()
        batch = self.experience(rollout)
        advantage = self._advantage(batch)
        plan = self._plan(batch, advantage)
        fit = self._move(batch, plan)
        share, spent = self._return_to_region(old_policy, old_scale, rollout, batch, plan.radius)
        return self._report(batch, plan, fit, share, spent)

    def _advantage(self, batch: Experience) -> Array:
        """The advantages of the actions taken; a learned advantage is fitted to them."""
        advantage = batch.advantage
        with np.errstate(over="ignore", invalid="ignore"):  # told in our own words
            spread = advantage.std()
        if not np.isfinite(spread):
            raise NonFiniteError(
                f"the advantages at step {self.num_timesteps} are not finite: the rewards or the "
                "values are too large; scale the rewards, or leave normalize_reward on"
            )
        if self.normalize_advantage:  # once, here: the dual and the loss must see the same numbers
            advantage = (advantage - advantage.mean()) / (spread + 1e-8)
        if self._network is not None:
            rows: dict[str, Any] = {"flat": batch.flat, "images": batch.images}
            rows |= {key: batch.drawn[key] for key in ("action", "label") if key in batch.drawn}
            rows["advantage"] = advantage.astype(np.float32)
            self._network.fit(rows, *self._minibatches(batch), self._learning_rate)
        return advantage

    def _plan(self, batch: Experience, advantage: Array) -> Plan:
        """Step 4: the dual, solved exactly."""
        typical = self._steps.typical_cost(batch)
        radius = self._radius(self._current_progress_remaining, typical)
        plan = self._steps.plan(batch, advantage, radius, self._network, self.rng)
        if plan.inactive and self.trust_region == "paper":
            warnings.warn(
                f"the radius {radius:.3g} is too large to bind (multiplier 0): in the paper's way "
                "the policy may not move at all; trust_region='exact' shrinks it",
                stacklevel=2,
            )
        return plan

    def _move(self, batch: Experience, plan: Plan) -> dict[str, Any]:
        """Step 5: gradient descent of all epochs and minibatches, as one compiled program."""
        rows: dict[str, Any] = {key: _single(array) for key, array in plan.rows.items()}
        rows |= {"flat": batch.flat, "images": batch.images, "return": _single(batch.target)}
        constants = {"multiplier": np.float32(plan.solution.multiplier)}
        self.learner, fit = self._descend(
            self.learner, rows, *self._minibatches(batch), self._learning_rate, constants
        )
        self._anneal()
        return fit

    @property
    def _learning_rate(self) -> Array:
        return np.float32(self.lr_schedule(self._current_progress_remaining))

    def _minibatches(self, batch: Experience) -> tuple[Array, Array]:
        return minibatches(len(batch.flat), self.batch_size, self.n_epochs, self.rng)

    def _anneal(self) -> None:
        """Follow the straight line of the logarithm of σ; a part of the step like any other."""
        if self.log_std_final is None:
            return
        networks = self.learner.networks
        first = float(self.architecture.log_std_init or 0.0)
        left = max(self._current_progress_remaining, 0.0)
        log_std = self.log_std_final + left * (first - self.log_std_final)
        policy = eqx.tree_at(
            lambda p: p.log_std, networks.policy, jnp.full_like(networks.policy.log_std, log_std)
        )
        self.learner = Learner(_with_policy(networks, policy), self.learner.moments)

    # ------------------------------------------------------------------ the region

    def _acting_scale(self) -> Scale:
        return self.observation_normaliser.mean, self.observation_normaliser.scale

    def _return_to_region(
        self, old_policy: Any, old_scale: Scale, rollout: Rollout, batch: Experience, radius: float
    ) -> tuple[float, float]:
        """Step back if the step spent too much; the share that was kept and what it spends.

        The step is that of the policy as a function of raw observations: network and
        normalisation are taken back together.
        """
        networks, normaliser = self.learner.networks, self.observation_normaliser
        new_scale = self._acting_scale()
        raw = rollout.flat[:-1].reshape(len(batch.flat), -1)
        rows: dict[str, Any] = {"flat": batch.flat, "images": batch.images}
        rows |= self._steps.region_rows(batch)

        def spent_at(share: float) -> float:
            if share == 1.0:
                return float(self._spent(networks.policy, rows))
            normaliser.mean, normaliser.scale = _scale_between(old_scale, new_scale, share)
            policy = between(old_policy, networks.policy, share)
            return float(self._spent(policy, rows | {"flat": normaliser(raw)}))

        if self.trust_region == "paper":
            return 1.0, spent_at(1.0)
        share, spent = largest_share(spent_at, radius)
        if share < 1.0:
            normaliser.mean, normaliser.scale = _scale_between(old_scale, new_scale, share)
            policy = between(old_policy, networks.policy, share)
            self.learner = Learner(_with_policy(networks, policy), self.learner.moments)
        return share, spent

    def _report(
        self, batch: Experience, plan: Plan, fit: dict[str, Any], share: float, spent: float
    ) -> dict[str, float]:
        variance = float(batch.target.var())
        explained = 1.0 - float((batch.target - batch.value).var()) / variance if variance else 0.0
        return {
            "ot/multiplier": plan.solution.multiplier,
            "ot/radius": plan.radius,
            "ot/spent": spent,
            "ot/split_mass": plan.split_mass,
            "ot/active_fraction": plan.active_fraction,
            "ot/violation": max(spent - plan.radius, 0.0),
            "ot/dual_gap": plan.dual_gap,
            "ot/inactive": float(plan.inactive),
            "ot/step_kept": share,
            "train/discount": self.discount,
            "train/explained_variance": explained,
            **{f"train/{name}": float(value) for name, value in fit.items()},
            "train/learning_rate": float(self._learning_rate),
        }


class Radius:
    """ε of an update: a number, a schedule, or a percentage of the rollout's mean cost."""

    def __init__(self, value: Any) -> None:
        parts = [value]
        if isinstance(value, dict):
            parts = [part for key, part in value.items() if key != "end_fraction"]
            value = {k: v if k == "end_fraction" else _share(v) for k, v in value.items()}
        else:
            value = _share(value)
        self._relative = any(isinstance(part, str) for part in parts)
        if self._relative and not all(isinstance(part, str) for part in parts):
            raise ValueError(f"radius mixes percentages and numbers: {parts}")
        check = _budget if callable(value) or isinstance(value, dict) else _positive_budget
        self._schedule = FloatSchedule(scheduled("radius", value, check))

    def __call__(self, progress_remaining: float, typical_cost: float) -> float:
        """ε now, in units of the cost; never quite 0, where the problem would have no solution."""
        radius = self._schedule(progress_remaining)
        return max(radius * typical_cost if self._relative else radius, SMALLEST_RADIUS)


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


def _single(array: Array) -> Array:
    array = np.asarray(array)
    return array.astype(np.float32) if array.dtype == np.float64 else array


def _scale_between(old: Scale, new: Scale, share: float) -> Scale:
    mean, scale = (a + np.float32(share) * (b - a) for a, b in zip(old, new, strict=True))
    return mean, scale


def _with_policy(networks: Any, policy: Any) -> Any:
    return eqx.tree_at(lambda n: n.policy, networks, policy)
