"""BGPG: behaviour-guided policy gradient, a policy gradient with a Wasserstein penalty.

    BGPG("MlpPolicy", "Hopper-v5", seed=0).learn(1_000_000)

Pacchiano et al., Learning to Score Behaviors for Guided Policy Optimization (2020).
"""

from typing import Any, Literal, final

from ottrpo.engine.algorithms.bgpg import BehaviourGuided

from .guided import GuidedAgent, TestFunctions, TimeLimits


@final
class BGPG(GuidedAgent):
    """Behaviour-guided policy gradient with Stable-Baselines3's interface.

    The defaults are those of the published experiments; docs/bgpg.md says where each comes from.

    Args:
        policy: ``MlpPolicy``, ``CnnPolicy`` or ``MultiInputPolicy``.
        env: an environment's id, a Gymnasium environment or an SB3 ``VecEnv``; actions in a Box.
        learning_rate: of Adam; a number or a schedule.
        n_steps: steps per environment and update.
        batch_size: rows per gradient step.
        n_epochs: passes over a rollout.
        gamma: discount; ``auto`` looks as far ahead as recent episodes lasted, 100 to 1,000 steps.
        gae_lambda: λ of the generalised advantage estimate.
        clip_range: PPO's clipping of the ratio; 10 is as good as none.
        clip_range_vf: clipping of the value's change; ``None`` for none.
        normalize_advantage: standardise the advantages of each minibatch.
        ent_coef: weight of the entropy bonus.
        vf_coef: weight of the value function's mean squared error.
        max_grad_norm: the joint gradient is clipped to this norm.
        use_sde: generalised state-dependent exploration.
        sde_sample_freq: steps between draws of its noise; -1: once per rollout.
        wasserstein_coef: κ, weight of the behaviour penalty.
        n_actions: M, sampled actions of the old and of the new policy per state.
        n_features: D, random features of the test functions.
        feature_bandwidth: σ; the features' frequencies have standard deviation 1/σ.
        smoothing: γ, weight of the entropy in the smoothed Wasserstein distance.
        dual_steps: T, ascent steps of the test functions before each step of the policy.
        dual_learning_rate: of those steps.
        dual_decay: divide it by the square root of the step's number.
        test_functions: ``slot``, as published: coefficients belong to places in a minibatch,
            whatever state stands there; ``sample``: to the states. Zero at every rollout's start.
        time_limits: ``terminal``, as published: nothing follows an episode that was cut off;
            ``bootstrap``: its value does.
        noise_color: exponent of the power spectrum of the noise over time: 0 white, 1 pink; a
            number or a schedule.
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

    def __init__(
        self,
        policy: str | type,
        env: Any,
        learning_rate: Any = 5e-5,
        n_steps: int = 2048,
        batch_size: int = 64,
        n_epochs: int = 10,
        gamma: float | Literal["auto"] = 0.99,
        gae_lambda: float = 0.95,
        clip_range: float = 10.0,
        clip_range_vf: float | None = 10.0,
        normalize_advantage: bool = True,
        ent_coef: float = 0.0,
        vf_coef: float = 0.25,
        max_grad_norm: float = 0.5,
        use_sde: bool = False,
        sde_sample_freq: int = -1,
        *,
        wasserstein_coef: float = 0.1,
        n_actions: int = 10,
        n_features: int = 100,
        feature_bandwidth: float = 0.1,
        smoothing: float = 1.0,
        dual_steps: int = 25,
        dual_learning_rate: float = 0.05,
        dual_decay: bool = False,
        test_functions: TestFunctions = "slot",
        time_limits: TimeLimits = "terminal",
        noise_color: Any = 0.0,
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
            clip_range=clip_range,
            clip_range_vf=clip_range_vf,
            normalize_advantage=normalize_advantage,
            ent_coef=ent_coef,
            vf_coef=vf_coef,
            max_grad_norm=max_grad_norm,
            use_sde=use_sde,
            sde_sample_freq=sde_sample_freq,
            wasserstein_coef=wasserstein_coef,
            n_actions=n_actions,
            n_features=n_features,
            feature_bandwidth=feature_bandwidth,
            smoothing=smoothing,
            dual_steps=dual_steps,
            dual_learning_rate=dual_learning_rate,
            dual_decay=dual_decay,
            test_functions=test_functions,
            time_limits=time_limits,
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
        )
        if _init_setup_model:
            self._setup_model()

    def _algorithm(self) -> BehaviourGuided:
        return BehaviourGuided(**self._shared())
