"""What each setting of a deep agent must be, by its name."""

from ottrpo.core.cost_data import cost_from_data
from ottrpo.engine.schedules import is_auto

from .checks import (
    Check,
    at_least,
    finite,
    flag,
    fraction,
    not_negative,
    positive,
    scheduled,
    scheduling,
)
from .radius import is_radius

# choices, and whether None will do, are checked by the type of the setting
CHECKS: dict[str, Check] = {
    **dict.fromkeys(("learning_rate", "noise_color"), scheduling(not_negative)),
    "gamma": lambda name, value: value if is_auto(value) else scheduled(name, value, fraction),
    "gae_lambda": scheduling(fraction),
    **dict.fromkeys(("std_step", "hold_out"), fraction),
    "radius": is_radius,
    "multiplier": scheduling(positive),
    "cost": lambda name, value: cost_from_data(value),
    "log_std_final": finite,
    "sde_sample_freq": lambda name, value: at_least(name, value, -1),
    "seed": lambda name, value: at_least(name, value, 0),
    "n_sources": lambda name, value: at_least(name, value, 0),
    "n_samples": lambda name, value: at_least(name, value, 2),
    **dict.fromkeys(
        (
            *("n_steps", "batch_size", "n_epochs", "stats_window_size", "n_candidates"),
            *("n_actions", "n_features", "dual_steps", "n_basis", "n_envs", "threads"),
            *("buffer_size", "steps_ahead", "prox_steps"),
        ),
        at_least,
    ),
    **dict.fromkeys(
        (
            *("vf_coef", "ent_coef", "wasserstein_coef", "singular_tolerance"),
            *("kl_mean", "kl_std", "temperature"),
        ),
        not_negative,
    ),
    **dict.fromkeys(
        (
            *("max_grad_norm", "clip_obs", "clip_reward", "clip_range", "clip_range_vf"),
            *("feature_bandwidth", "smoothing", "dual_learning_rate", "damping"),
            *("critic_ratio", "step", "entropy"),
        ),
        positive,
    ),
    **dict.fromkeys(
        (
            *("use_sde", "normalize_advantage", "normalize_obs", "normalize_reward"),
            *("learn_std", "dual_decay", "adapt_pace"),
        ),
        flag,
    ),
}
