"""What can be set in a deep agent: frozen, checked, documented and written once.

The constructor of an agent, its signature and its help, the keys of TOML files and of ``--set``,
the JSON of a saved agent: all follow from the dataclasses here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from inspect import Parameter, Signature
from types import NoneType
from typing import Any, ClassVar, Literal, Self, final, get_args, get_origin

from ottrpo.core import Cost, multiplier_of_step
from ottrpo.core.checks import Refused, require_one_of
from ottrpo.core.cost_data import cost_to_data
from ottrpo.engine import models
from ottrpo.engine.models.base import N_CANDIDATES
from ottrpo.engine.networks import activation_name
from ottrpo.engine.schedules import is_function, schedule_to_data

from .checklist import CHECKS
from .checks import is_so_anyway, one_of
from .policies import density_of, optimiser_name

# say where to write or to compute, not what; a file has no say in it
NOT_SAVED = ("tensorboard_log", "device")


@dataclass(frozen=True, kw_only=True)
class DeepSettings:
    """The settings that all deep agents share.

    Attributes:
        learning_rate: learning rate of Adam; a number or a schedule.
        n_steps: steps per environment and update.
        batch_size: rows per gradient step.
        n_epochs: passes over a rollout.
        gamma: discount: a number, a schedule, or ``auto``, with which the horizon is the mean
            length of recent episodes, 100 to 1,000 steps.
        gae_lambda: λ of the generalised advantage estimate, a number or a schedule; by default it
            falls from 0.98 to 0.92 over the first 30 % of training for actions in a box, and is
            0.95 for finite ones.
        vf_coef: weight of the value function's loss.
        max_grad_norm: the joint gradient is clipped to this norm.
        use_sde: generalised state-dependent exploration.
        sde_sample_freq: steps between draws of its noise; -1: once per rollout.
        normalize_advantage: standardise the advantages.
        noise_color: exponent of the power spectrum of a Gaussian's noise over time: 0 white, 1
            pink; a number or a schedule. By default it fades from 1 to 0 over a fifth of training
            (with ``mixed`` over half, or a tenth once an episode has ended other than by a time
            limit, if training has ten rollouts or more; else it is white).
        normalize_obs: running normalisation of observations, saved with the agent.
        normalize_reward: running scaling of rewards.
        clip_obs: normalised observations are clipped to this.
        clip_reward: normalised rewards are clipped to this.
        n_envs: number of environments to train in, simulated together where possible.
        threads: threads of the physics; by default one per core. Results do not depend on it.
        stats_window_size: episodes over which logged returns are averaged.
        tensorboard_log: directory for TensorBoard.
        policy_kwargs: ``net_arch``, ``activation_fn`` (a name or a torch class), ``ortho_init``,
            ``log_std_init``, ``features_dim``; ``bins``: number of labels for each
            coordinate of a box; ``mixture``: number of Gaussians (of OTTRPO), ``flow``: number of
            steps of the map; ``squash_output`` and ``use_expln``, with gSDE;
            ``normalize_images=False`` for images that are not bytes; ``optimizer_class`` Adam or
            AdamW, the latter with ``weight_decay`` in ``optimizer_kwargs``.
        verbose: 0 prints nothing, 1 SB3's tables.
        seed: seed of everything that is random.
        device: ``auto`` and ``cpu`` mean the CPU; ``cuda`` the first accelerator.
    """

    # those that may be given by position, in SB3's order
    positional: ClassVar[tuple[str, ...]] = ()
    # those that the networks were built by: they can't change any more
    fixed: ClassVar[tuple[str, ...]] = ("policy_kwargs", "use_sde", "threads", "stats_window_size")
    rich: ClassVar[bool] = False  # whether a policy may be a mixture or a flow
    # what SB3's agents, and RL-Zoo's files for them, have and these don't, and what of the settings
    # below an agent has no use for: what takes its place
    instead: ClassVar[Mapping[str, str]] = {
        "n_critic_updates": "policy and value function learn side by side; see n_epochs, vf_coef",
        **dict.fromkeys(
            (
                *("cg_max_steps", "cg_damping", "line_search_shrinking_factor"),
                *("line_search_max_iter", "sub_sampling_factor"),
            ),
            "there is no conjugate gradient or line search; see batch_size and n_epochs",
        ),
        "use_rms_prop": "Adam is the optimiser; see learning_rate",
        "rms_prop_eps": "Adam is the optimiser; see learning_rate",
        **dict.fromkeys(
            ("rollout_buffer_class", "rollout_buffer_kwargs"),
            "rollouts are arrays of the engine; callbacks see them as rollout_buffer",
        ),
        "target_kl": "an update is never ended early; see n_epochs, learning_rate",
    }

    learning_rate: Any = 3e-4
    n_steps: int = 2048
    batch_size: int = 64
    n_epochs: int = 10
    gamma: Any = "auto"
    gae_lambda: Any = None
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5
    use_sde: bool = False
    sde_sample_freq: int = -1
    normalize_advantage: bool = True
    noise_color: Any = None
    normalize_obs: bool = True
    normalize_reward: bool = True
    clip_obs: float = 10.0
    clip_reward: float = 10.0
    n_envs: int = 1
    threads: int | None = None
    stats_window_size: int = 100
    tensorboard_log: str | None = None
    policy_kwargs: dict[str, Any] | None = None
    verbose: int = 0
    seed: int | None = None
    device: str = "auto"

    def __post_init__(self) -> None:
        for each in fields(self):
            value, check = getattr(self, each.name), CHECKS.get(each.name)
            kinds = (each.type, *get_args(each.type))
            choices = next((get_args(kind) for kind in kinds if get_origin(kind) is Literal), None)
            if value is None and (each.default is None or NoneType in kinds):
                continue
            if choices is not None:
                one_of(each.name, value, choices)
            elif check is not None:
                object.__setattr__(self, each.name, check(each.name, value))
        if density_of(self.policy_kwargs) and not self.rich:
            raise Refused("mixture and flow are policies of OTTRPO, moved by sample transport")
        if self.use_sde and self.coloured:
            raise ValueError(f"noise_color {self.noise_color!r} has no meaning with use_sde")

    @property
    def coloured(self) -> bool:
        """Whether the noise was asked to have a colour."""
        return self.noise_color is not None and self.noise_color != 0

    @classmethod
    def given(cls, agent: str, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Self:
        """The settings of a constructor's arguments.

        Raises:
            ValueError: if one is not known, given twice, or not as it must be.
        """
        if len(arguments) > len(cls.positional):
            raise ValueError(
                f"{agent} takes {len(cls.positional)} settings by position, got {len(arguments)}"
            )
        values = dict(zip(cls.positional, arguments, strict=False))
        for name, value in keywords.items():
            if name in cls.instead and is_so_anyway(name, value):
                continue
            if name in cls.instead:
                raise Refused(f"{agent} has no {name!r}: {cls.instead[name]}")
            require_one_of(name, cls.names(), f"a setting of {agent}")
            if name in values:
                raise ValueError(f"{name} is given twice, by position and by name")
            values[name] = value
        return cls(**values)

    @classmethod
    def names(cls) -> list[str]:
        """All settings, in the order of the constructor: SB3's, the agent's own, the rest."""
        known = [each.name for each in fields(cls) if each.name not in cls.instead]
        shared = [each.name for each in fields(DeepSettings) if each.name in known]
        own = [name for name in known if name not in shared]
        rest = [name for name in own + shared if name not in cls.positional]
        return [*cls.positional, *rest]

    @classmethod
    def saved_names(cls) -> list[str]:
        """The settings that a file may have."""
        return [name for name in cls.names() if name not in NOT_SAVED]

    @classmethod
    def signature(cls) -> Signature:
        """What the constructor of an agent takes."""
        known = {each.name: each for each in fields(cls)}
        both = Parameter.POSITIONAL_OR_KEYWORD
        parameters = [Parameter("self", both)]
        parameters += [Parameter("policy", both, annotation=str | type)]
        parameters += [Parameter("env", both, annotation=Any)]
        for name in cls.names():
            kind = both if name in cls.positional else Parameter.KEYWORD_ONLY
            default, annotation = known[name].default, known[name].type
            parameters.append(Parameter(name, kind, default=default, annotation=annotation))
        last = Parameter("_init_setup_model", Parameter.KEYWORD_ONLY, default=True, annotation=bool)
        return Signature([*parameters, last])

    def of(self, kind: Any) -> dict[str, Any]:
        """Those that a dataclass of the engine has fields for, under the same names."""
        both = {each.name for each in fields(kind)} & set(self.names())
        return {name: getattr(self, name) for name in both}

    def changed(self, **values: Any) -> Self:
        """The settings with others in their place, checked as well."""
        return replace(self, **values)

    @cached_property
    def data(self) -> Mapping[str, Any]:
        """The saved settings as plain data; a function of one's own as a table of its values."""
        return {name: _to_data(name, getattr(self, name)) for name in self.saved_names()}

    @cached_property
    def functions(self) -> list[str]:
        """The settings that are functions of somebody else's: plain data only comes close."""
        values = {name: getattr(self, name) for name in self.saved_names()}
        return [n for n, v in values.items() if is_function(v) and not isinstance(v, Cost)]


@final
@dataclass(frozen=True, kw_only=True)
class OTTRPOSettings(DeepSettings):
    """The settings of `OTTRPO`.

    Attributes:
        normalize_advantage: standardise the advantages of each rollout, before the dual.
        radius: ε, the transport budget of an update: a number, a schedule (a function of the
            progress that remains, or ``{"start": x, "end": y}``), or a percentage such as
            ``"30%"``: that share of the rollout's mean cost of a sampled action. By default
            30 % for actions in a box, 10 % for finite ones, mixtures and flows, and 100 % falling
            to 20 % for labels of several factors; smaller with ``mixed``, ``adapt_pace`` or
            ``natural``, which spend nearly all of it.
        multiplier: a price λ on what the region measures, in place of a radius; a number or a
            schedule. The radius of an update is then the amount that this price spends.
        step: size η of a proximal step, the same as a multiplier of 1/(2η).
        region: what the radius limits on average over the states. ``transport``: the discrepancy as
            in the paper. ``kl``: the divergence KL(π̃ | π) in nats, without a cost (``linear`` in a
            box, all models of labels). ``sinkhorn``: transport with entropic regularisation
            (labels, and ``candidates`` in a box).
        entropy: τ, the weight of that regularisation, with a ``multiplier`` or a ``step``; with a
            radius it takes a tenth of it at most.
        cost: the cost of moving an action; by default squared Euclidean for boxes, binary for
            labels.
        model: the model of the advantage around the policy. ``linear`` (default with GAE): first
            order, with all actions as candidates. ``sample``: the paper's candidates, the mean and
            the sampled action. ``antithetic``: the same, with a bad action replaced by its mirror
            image. ``candidates`` (default with a network): sampled targets.
        update: ``regression`` on the transport targets (default for boxes), or the paper's
            regularised ``ascent`` (default for finite actions, where targets of one sample per
            state would pull every policy towards the uniform one; not with ``linear`` in a box),
            or, for finite actions, ascent on the plain ``gain`` (default for several factors).
            ``natural``, with region ``kl``: TRPO's step as a control, along F⁻¹∇ of all rows.
        advantage: how the advantage is estimated. ``gae``: for the actions taken; ``network``: by
            a learned A(s, a), fitted to these; ``mixed``: by GAE and by critics Q(s, a) that learn
            from past rollouts, each with half of the radius. By default ``mixed`` where it can be
            used (no images, ``linear``; actions in a box with a quadratic cost and one σ for all
            states, or one choice among labels without masks or an explicit ``update``),
            ``network`` for mixtures and flows, else ``gae``. With ``gamma="auto"`` the horizon of
            ``mixed`` is ten times the length of episodes. Once an episode has ended other than by
            a time limit it is 200 steps at most, and ``gae_lambda`` and ``noise_color`` reach their
            final values within a tenth of training unless they are given.
        buffer_size: number of past steps, of all environments, that the critics of ``mixed`` learn
            from.
        critic_ratio: gradient steps of the critics per step of the environments.
        adapt_pace: adapt the policy's learning rate so that updates spend most of the radius,
            whatever the task.
        std_step: share by which σ may change in an update, in a budget of its own; with 0 it stays,
            unless ``learn_std`` is set. By default 0.01 with ``mixed``, else 0.
        hold_out: share of each rollout that is excluded from the policy's fit; the gain there is
            logged as ``ot/gain_held_out``. By default 0.1 with ``mixed``, which needs it.
        n_candidates: sampled target actions per state for ``candidates``.
        n_sources: sampled source actions per state for ``candidates``; 0: the mean of a Gaussian,
            four samples of a mixture or a flow.
        trust_region: ``exact``: shorten a step until the realised discrepancy between old and new
            policy on the visited states is at most the radius, and reduce a radius that is too
            large to bind, or above 400 %; ``paper``: neither.
        learn_std: learn the standard deviation too (``linear``, or ``n_sources`` above 0).
        log_std_final: anneal the logarithm of the standard deviation to this value.
        clip_range_vf: largest change of a value in an update, in the unit of normalised rewards,
            as in SB3's PPO; ``None``: no limit. Not with ``mixed``.
    """

    rich: ClassVar[bool] = True
    positional: ClassVar[tuple[str, ...]] = (
        *("learning_rate", "n_steps", "batch_size", "n_epochs", "gamma", "gae_lambda", "vf_coef"),
        *("max_grad_norm", "use_sde", "sde_sample_freq", "normalize_advantage"),
    )
    fixed: ClassVar[tuple[str, ...]] = (
        *DeepSettings.fixed,
        *("advantage", "buffer_size", "critic_ratio"),
    )
    instead: ClassVar[Mapping[str, str]] = {
        **DeepSettings.instead,
        "clip_range": "the trust region takes its place, see radius",
        "target_kl": "the trust region takes its place, see radius",
        "ent_coef": "exploration is set by noise_color, learn_std, log_std_final and "
        "policy_kwargs=dict(log_std_init=...)",
    }

    radius: Any = None
    multiplier: Any = None
    step: float | None = None
    region: Literal["transport", "kl", "sinkhorn"] = "transport"
    entropy: float | None = None
    cost: Any = None
    model: str | None = None
    update: Literal["regression", "ascent", "gain", "natural"] | None = None
    advantage: Literal["gae", "network", "mixed"] | None = None
    buffer_size: int = 131_072
    critic_ratio: float = 0.25
    adapt_pace: bool = False
    std_step: float | None = None
    hold_out: float | None = None
    n_candidates: int = N_CANDIDATES
    n_sources: int = 0
    trust_region: Literal["exact", "paper"] = "exact"
    learn_std: bool = False
    log_std_final: float | None = None
    clip_range_vf: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        usual = "network" if density_of(self.policy_kwargs) else "gae"
        known = models.names(self.advantage or usual)
        object.__setattr__(self, "model", one_of("model", self.model or known[0], known))
        self._check_mode()
        if self.region != "transport" and self.advantage == "mixed":
            raise ValueError(f"advantage 'mixed' measures transport, got region {self.region!r}")
        if self.region == "kl" and self.cost is not None:
            raise ValueError(f"cost has no meaning for region 'kl', got {self.cost!r}")
        if self.learn_std and self.log_std_final is not None:
            raise ValueError("learn_std and log_std_final exclude each other: learn or anneal σ")
        moved = [name for name in ("learn_std", "log_std_final", "use_sde") if getattr(self, name)]
        if moved and (self.std_step or self.advantage == "mixed"):
            raise ValueError(
                f"std_step and advantage 'mixed' move σ themselves, without {moved[0]}"
            )
        if self.advantage == "mixed" and self.clip_range_vf is not None:
            raise ValueError("advantage 'mixed' has no clip_range_vf; use 'gae' or 'network'")
        if self.advantage == "mixed" and self.hold_out == 0:
            raise ValueError("advantage 'mixed' is steered by what is held out: hold_out above 0")
        if self.std_step and self.model != "linear":
            raise ValueError(f"std_step needs model 'linear', got {self.model!r}")

    def _check_mode(self) -> None:
        """Budget, multiplier or proximal step: one of them, where it means something."""
        modes = ("radius", "multiplier", "step")
        given = [name for name in modes if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"give one of {', '.join(modes)}; got {' and '.join(given)}")
        smooth = self.region == "sinkhorn" and self.price is not None
        if smooth and self.entropy is None:
            raise ValueError(f"region 'sinkhorn' with a {given[0]} needs an entropy")
        if self.entropy is not None and not smooth:
            raise ValueError("entropy is of region 'sinkhorn' with a multiplier or a step")
        if self.price is None:
            return
        spends = {"advantage": "mixed", "update": "natural"}
        needs = [f"{name} {what!r}" for name, what in spends.items() if getattr(self, name) == what]
        needs += ["adapt_pace"] * self.adapt_pace
        if needs:
            raise ValueError(f"{needs[0]} needs a radius, got a {given[0]}")

    @property
    def price(self) -> Any:
        """λ, a number or a schedule, in the place of a radius; None if there is a radius."""
        return self.multiplier if self.step is None else multiplier_of_step(self.step)


def _to_data(name: str, value: Any) -> Any:
    if isinstance(value, Cost):
        return cost_to_data(value)
    if callable(value):
        return schedule_to_data(value)
    if name == "policy_kwargs":
        value = value or {}
        named = {"activation_fn": activation_name(value.get("activation_fn", "tanh"))}
        if "optimizer_class" in value:
            named["optimizer_class"] = optimiser_name(value["optimizer_class"])
        if "features_extractor_class" in value:
            asked = value["features_extractor_class"]
            named["features_extractor_class"] = getattr(asked, "__name__", asked)
        return value | named
    return value
