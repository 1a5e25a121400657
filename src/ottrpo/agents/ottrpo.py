"""OT-TRPO with networks: trust-region policy optimisation in an optimal-transport region.

    OTTRPO("MlpPolicy", "Hopper-v5", seed=0).learn(1_000_000)

`OTTRPO.train` is Algorithm 1 of the paper.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Literal, final

import numpy as np
from stable_baselines3.common.utils import FloatSchedule

from ottrpo.core import Binary, Cost, SquaredEuclidean
from ottrpo.core.cost_data import cost_from_data
from ottrpo.deep.acting import BoxActions
from ottrpo.deep.losses import (
    actor_critic_loss,
    regularised_finite_advantage,
    regularised_gaussian_advantage,
    towards_displaced_gaussian,
    towards_finite_targets,
    towards_gaussian_targets,
)
from ottrpo.deep.region import between, finite_spent, gaussian_spent, largest_share
from ottrpo.deep.rollout import Rollout
from ottrpo.deep.update import Learner, make_descend, minibatches

from .base import DeepAgent, Experience, as_schedule
from .transport import (
    Plan,
    candidate_plan,
    finite_plan,
    linear_plan,
    quadratic_metric,
    sampled_gain,
)

Array = Any


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
        gamma: discount.
        gae_lambda: λ of the generalised advantage estimate.
        vf_coef: weight of the value function's loss.
        max_grad_norm: the joint gradient is clipped to this norm.
        use_sde: generalised state-dependent exploration.
        sde_sample_freq: steps between draws of its noise; -1: once per rollout.
        normalize_advantage: standardise the advantages of each rollout, before the dual.
        radius: ε, the transport budget of an update: a number, a schedule, or ``"30%"``: that
            share of the rollout's mean cost of a sampled action. It may depend on the unit of the
            actions as a number; as a percentage it does not.
        cost: of moving an action; squared Euclidean by default for boxes, binary for labels.
        model: how the advantage is thought to behave around the policy: ``linear`` (first order,
            all actions are candidates), ``sample`` (the paper's: mean and sampled action) or
            ``antithetic`` (a bad action speaks for its mirror image).
        update: ``regression`` on the transport targets, or the paper's regularised ``ascent``.
        trust_region: ``exact``: step back until the realised discrepancy between old and new
            policy on the visited states is at most the radius; ``paper``: do not.
        learn_std: let the standard deviation move too (``linear`` only).
        log_std_final: anneal the logarithm of the standard deviation to this value.
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
        gamma: float = 0.995,
        gae_lambda: float = 0.95,
        vf_coef: float = 0.5,
        max_grad_norm: float = 0.5,
        use_sde: bool = False,
        sde_sample_freq: int = -1,
        normalize_advantage: bool = True,
        *,
        radius: Any = "30%",
        cost: Any = None,
        model: Literal["linear", "sample", "antithetic"] = "linear",
        update: Literal["regression", "ascent"] = "regression",
        trust_region: Literal["exact", "paper"] = "exact",
        learn_std: bool = False,
        log_std_final: float | None = None,
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
        )
        self.normalize_advantage = normalize_advantage
        self.radius = radius
        self.cost = cost
        self.model = one_of("model", model, ("linear", "sample", "antithetic"))
        self.update = one_of("update", update, ("regression", "ascent"))
        self.trust_region = one_of("trust_region", trust_region, ("exact", "paper"))
        self.learn_std = learn_std
        self.log_std_final = log_std_final
        if _init_setup_model:
            self._setup_model()

    def _setup_model(self) -> None:
        super()._setup_model()
        self._radius = Radius(self.radius)
        box = isinstance(self.actions, BoxActions)
        default: Cost = SquaredEuclidean() if box else Binary()
        self._cost = default if self.cost is None else cost_from_data(self.cost)
        self._refuse_contradictions(box)
        policy_loss = self._gaussian_losses() if box else self._finite_losses()
        self._descend = make_descend(
            actor_critic_loss(policy_loss, self.vf_coef), self.max_grad_norm
        )

    def _refuse_contradictions(self, box: bool) -> None:
        wrong = None
        if self._cost.takes_labels is box:
            wrong = f"cost {self._cost!r} is for {'labels' if box else 'points'}"
        elif not box and self.model == "antithetic":
            wrong = "model 'antithetic' needs a Box: labels have no mirror image"
        elif not box and (self.learn_std or self.log_std_final is not None):
            wrong = "learn_std and log_std_final need a Box"
        elif self.learn_std and self.model != "linear":
            wrong = f"learn_std needs model 'linear'; model {self.model!r} moves the mean only"
        elif box and self.model == "linear" and self._metric is None:
            wrong = (
                f"model 'linear' needs a quadratic cost (SquaredEuclidean, Mahalanobis), got "
                f"{self._cost!r}; use model 'sample' or 'antithetic'"
            )
        if wrong is not None:
            raise ValueError(f"{wrong} (action space {self.action_space})")

    @property
    def _metric(self) -> Array | None:
        return quadratic_metric(self._cost, self.actions.size)

    def _gaussian_losses(self) -> Any:
        metric = self._metric
        std_moves = self.learn_std or self.use_sde or self.log_std_final is not None
        self._spent: Callable[..., Any] = gaussian_spent(
            self._cost, metric, quadratic=metric is not None, std_moves=std_moves
        )
        if self.model == "linear":
            identity = metric is None or np.array_equal(metric, np.eye(len(metric)))
            return towards_displaced_gaussian(
                None if identity else np.asarray(metric, np.float32), learn_std=self.learn_std
            )
        if self.update == "ascent":
            return regularised_gaussian_advantage(self._cost)
        return towards_gaussian_targets(self._cost)

    def _finite_losses(self) -> Any:
        choices = self.actions.choices
        self._spent = finite_spent(self._cost, choices)
        if self.update == "ascent":
            return regularised_finite_advantage(choices)
        return towards_finite_targets(choices)

    # ------------------------------------------------------------------ Algorithm 1

    def train(self, rollout: Rollout) -> dict[str, float]:
        """One update: estimate (step 3), solve the dual (step 4), move the policy (step 5)."""
        old = self.learner.networks.policy, self._acting_scale()
        batch = self.experience(rollout)
        plan = self._plan(batch)
        fit = self._descend_on(batch, plan)
        share, spent = self._return_to_region(old, rollout, batch, plan.radius)
        return self._report(batch, plan, fit, share, spent)

    def _plan(self, batch: Experience) -> Plan:
        advantage = batch.advantage
        if self.normalize_advantage:
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        if not isinstance(self.actions, BoxActions):
            return self._finite_plan(batch, advantage)
        drawn = {key: array.astype(np.float64) for key, array in batch.drawn.items()}
        mean, std, action = drawn["mean"], drawn["std"], drawn["action"]
        typical = float(np.mean(self._cost(mean, action)))
        radius = self._radius(self._current_progress_remaining, typical)
        if self.model == "linear":
            return linear_plan(
                mean, std, action, advantage, self._metric, radius, learn_std=self.learn_std
            )
        return candidate_plan(
            mean, action, advantage, self._cost, radius, antithetic=self.model == "antithetic"
        )

    def _finite_plan(self, batch: Experience, advantage: Array) -> Plan:
        probability, allowed = self._probabilities(batch)
        cost = self._cost.matrix(self.actions.choices)
        typical = float(np.einsum("rfa,rfb,ab->", probability, probability, cost))
        radius = self._radius(self._current_progress_remaining, typical / len(probability))
        gain = sampled_gain(
            probability, batch.drawn["label"], advantage, unbiased=self.model == "linear"
        )
        return finite_plan(probability, gain, allowed, self._cost, radius)

    def _probabilities(self, batch: Experience) -> tuple[Array, Array]:
        logits = batch.drawn["logits"].astype(np.float64)
        allowed = np.broadcast_to(self.actions.allowed_fk, logits.shape)
        if "mask" in batch.drawn:
            allowed = allowed & batch.drawn["mask"]
        weight = np.where(allowed, np.exp(logits - logits.max(-1, keepdims=True)), 0.0)
        return weight / weight.sum(-1, keepdims=True), allowed

    def _rows(self, batch: Experience) -> dict[str, Any]:
        rows: dict[str, Any] = {"flat": batch.flat, "images": batch.images}
        if isinstance(self.actions, BoxActions):
            return rows | {"mean": batch.drawn["mean"], "std": batch.drawn["std"]}
        probability, allowed = self._probabilities(batch)
        return rows | {"probability": probability.astype(np.float32), "allowed": allowed}

    def _descend_on(self, batch: Experience, plan: Plan) -> dict[str, Any]:
        """Step 5: gradient descent of all epochs and minibatches, as one compiled program."""
        if plan.solution.multiplier == 0 and self.update == "ascent":
            return {}  # every advantage is zero: there is nothing to climb
        rows = {key: np.asarray(array, np.float32) for key, array in plan.rows.items()}
        rows |= {"flat": batch.flat, "images": batch.images}
        rows["return"] = np.asarray(batch.target, np.float32)
        if not isinstance(self.actions, BoxActions):
            rows["allowed"] = self._probabilities(batch)[1]
        index, weight = minibatches(len(batch.flat), self.batch_size, self.n_epochs, self.rng)
        rate = np.float32(self.lr_schedule(self._current_progress_remaining))
        constants = {"multiplier": np.float32(plan.solution.multiplier)}
        self.learner, fit = self._descend(self.learner, rows, index, weight, rate, constants)
        return fit

    # ------------------------------------------------------------------ the region

    def _acting_scale(self) -> tuple[Array, Array]:
        return self.observation_normaliser.mean, self.observation_normaliser.scale

    def _return_to_region(
        self,
        old: tuple[Any, tuple[Array, Array]],
        rollout: Rollout,
        batch: Experience,
        radius: float,
    ) -> tuple[float, float]:
        """What the step really spent, after stepping back if it spent too much.

        The step is that of the policy as a function of raw observations: network and
        normalisation are taken back together.
        """
        old_policy, old_scale = old
        new_policy, normaliser = self.learner.networks.policy, self.observation_normaliser
        new_scale = self._acting_scale()
        rows = self._rows(batch)
        raw = rollout.flat[:-1].reshape(-1, rollout.flat.shape[2])

        def spent_at(share: float) -> float:
            if share == 1.0:
                return float(self._spent(new_policy, rows))
            normaliser.mean, normaliser.scale = new_scale
            normaliser.towards(old_scale, share)
            moved = between(old_policy, new_policy, share)
            return float(self._spent(moved, rows | {"flat": normaliser(raw)}))

        if self.trust_region == "paper":
            return 1.0, spent_at(1.0)
        share, spent = largest_share(spent_at, radius)
        if share < 1.0:
            networks = self.learner.networks
            policy = between(old_policy, new_policy, share)
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
            "train/explained_variance": explained,
            **{f"train/{name}": float(value) for name, value in fit.items()},
            "train/learning_rate": float(self.lr_schedule(self._current_progress_remaining)),
        }


class Radius:
    """ε of an update: a number, a schedule, or a percentage of the rollout's mean cost."""

    def __init__(self, value: Any) -> None:
        self._relative = isinstance(value, str)
        if isinstance(value, str):
            try:
                if not value.endswith("%"):
                    raise ValueError(value)
                value = float(value[:-1]) / 100.0
            except ValueError:
                raise ValueError(
                    f'radius must be a number, a schedule or a percentage such as "30%", got {value!r}'
                ) from None
        if not callable(value) and not (isinstance(value, dict) or value > 0):
            raise ValueError(f"radius must be positive, got {value}")
        self._schedule = FloatSchedule(as_schedule(value))

    def __call__(self, progress_remaining: float, typical_cost: float) -> float:
        """ε now, in units of the cost."""
        radius = self._schedule(progress_remaining)
        return radius * typical_cost if self._relative else radius


def one_of(name: str, value: str, allowed: tuple[str, ...]) -> Any:
    """``value`` if it is allowed."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
    return value


def _with_policy(networks: Any, policy: Any) -> Any:
    import equinox as eqx

    return eqx.tree_at(lambda n: n.policy, networks, policy)
