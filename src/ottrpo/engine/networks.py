"""Policy and value networks, and their activation functions by name.

Both are separate multi-layer perceptrons, each with its own convolutional encoders when the
observation holds images, so that stepping the policy back never touches the value function.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from . import arrays
from .arrays import Generator, namespace

Array = Any
SDE_VARIANCE_FLOOR = 1e-6  # SB3's: a state with zero features must keep a positive variance


# name -> (for JAX, the number of the compiled one)
ACTIVATIONS: dict[str, tuple[Callable[[Array], Array], int]] = {
    "tanh": (jax.numpy.tanh, arrays.TANH),
    "relu": (jax.nn.relu, arrays.RELU),
    "leakyrelu": (jax.nn.leaky_relu, arrays.LEAKY_RELU),
    "elu": (jax.nn.elu, arrays.ELU),
    "sigmoid": (jax.nn.sigmoid, arrays.SIGMOID),
    "silu": (jax.nn.silu, arrays.SILU),
    "gelu": (jax.nn.gelu, arrays.GELU),
}


def activation_name(activation: Any) -> str:
    """The name of an activation given by name or by its torch class (as for SB3).

    >>> activation_name("LeakyReLU")
    'leakyrelu'
    """
    name = activation if isinstance(activation, str) else getattr(activation, "__name__", "")
    key = name.lower().replace("_", "").replace("swish", "silu")
    if key not in ACTIVATIONS:
        raise ValueError(
            f"activation_fn {activation!r} is unknown; allowed: {', '.join(ACTIVATIONS)}, "
            "or the torch.nn class of that name"
        )
    return key


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """What the networks look like; SB3's names where SB3 has them.

    Attributes:
        inputs: number of flat features.
        images: channels, height and width of each image.
        outputs: action dimensions (Gaussian) or factors times choices (finite actions).
        policy_layers: hidden layers of the policy (``net_arch["pi"]``).
        value_layers: hidden layers of the value function (``net_arch["vf"]``).
        activation: a name of `ACTIVATIONS`.
        ortho_init: orthogonal weights, as SB3 does by default; else uniform as in torch.
        log_std_init: logarithm of the initial standard deviation; ``None`` for finite actions.
        use_sde: generalised state-dependent exploration.
        use_expln: its σ grows like a logarithm above 1, as SB3's does when told so.
        features_dim: size of the code of each image.
        scale_images: pixels are bytes, to be divided by 255.
        first: what the policy's head says before anything was learnt; empty for zeros.
    """

    inputs: int
    outputs: int
    images: tuple[tuple[int, int, int], ...] = ()
    policy_layers: tuple[int, ...] = (64, 64)
    value_layers: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    ortho_init: bool = True
    log_std_init: float | None = None
    use_sde: bool = False
    use_expln: bool = False
    features_dim: int = 256
    scale_images: bool = True
    first: tuple[float, ...] = ()

    @property
    def weights(self) -> int:
        """Entries of the large matrices: what it would take to build such networks."""
        encoders = 0
        for channels, height, width in self.images:
            encoders += channels * 32 * 64 + (height // 8) * (width // 8) * self.features_dim
        total = 0
        for hidden, outputs in ((self.policy_layers, self.outputs), (self.value_layers, 1)):
            inputs = self.inputs + len(self.images) * self.features_dim
            sizes = (inputs, *hidden, outputs)
            total += encoders + sum(sizes[i] * sizes[i + 1] for i in range(len(sizes) - 1))
        return total


class Linear(eqx.Module):
    """x W + b, with W stored [inputs, outputs]."""

    weight: Array
    bias: Array

    def __init__(
        self, inputs: int, outputs: int, rng: Generator, *, gain: float, ortho: bool
    ) -> None:
        if ortho:
            self.weight = jnp.asarray(_orthogonal(inputs, outputs, gain, rng))
            self.bias = jnp.asarray(np.zeros(outputs, np.float32))
        else:
            bound = inputs**-0.5
            self.weight, self.bias = (
                jnp.asarray(rng.uniform(-bound, bound, shape).astype(np.float32))
                for shape in ((inputs, outputs), (outputs,))
            )

    def __call__(self, x: Array) -> Array:
        """Apply it to the last axis."""
        return x @ self.weight + self.bias


class ImageEncoder(eqx.Module):
    """The convolutional network of the Nature DQN paper; pixels 0..255 in, features out.

    Attributes:
        scaled: whether pixels are divided by 255.
    """

    kernels: tuple[Array, ...]
    biases: tuple[Array, ...]
    output: Linear
    scaled: bool = eqx.field(static=True)

    SIZES = ((32, 8), (64, 4), (64, 3))  # outputs and kernel of each layer
    STRIDES = (4, 2, 1)

    def __init__(
        self,
        shape: tuple[int, int, int],
        features: int,
        rng: Generator,
        *,
        ortho: bool,
        scaled: bool = True,
    ) -> None:
        channels, height, width = shape
        self.scaled = scaled
        kernels, biases = [], []
        for (outputs, size), stride in zip(self.SIZES, self.STRIDES, strict=True):
            height, width = (height - size) // stride + 1, (width - size) // stride + 1
            if min(height, width) < 1:
                raise ValueError(
                    f"images must be at least 36 by 36 pixels for CnnPolicy, got shape {shape}; "
                    "resize them with a wrapper, or use MlpPolicy"
                )
            flat = Linear(channels * size * size, outputs, rng, gain=2**0.5, ortho=ortho)
            kernels.append(flat.weight.T.reshape(outputs, channels, size, size))
            biases.append(flat.bias)
            channels = outputs
        self.kernels, self.biases = tuple(kernels), tuple(biases)
        self.output = Linear(channels * height * width, features, rng, gain=2**0.5, ortho=ortho)

    def __call__(self, image: Array) -> Array:
        """Features [r, f] of images [r, channels, h, w]."""
        x = image.astype(jnp.float32)
        if self.scaled:
            x = x / 255.0
        for kernel, bias, stride in zip(self.kernels, self.biases, self.STRIDES, strict=True):
            x = jax.lax.conv(x, kernel, (stride, stride), "VALID") + bias[:, None, None]
            x = jax.nn.relu(x)
        return jax.nn.relu(self.output(x.reshape(len(x), -1)))


class Body(eqx.Module):
    """Image encoders and hidden layers: observation in, latent features out."""

    encoders: tuple[ImageEncoder, ...]
    layers: tuple[Linear, ...]
    activation: str = eqx.field(static=True)

    def __init__(self, architecture: Architecture, hidden: tuple[int, ...], rng: Generator) -> None:
        ortho = architecture.ortho_init
        self.encoders = tuple(
            ImageEncoder(
                shape, architecture.features_dim, rng, ortho=ortho, scaled=architecture.scale_images
            )
            for shape in architecture.images
        )
        sizes = (architecture.inputs + len(self.encoders) * architecture.features_dim, *hidden)
        self.layers = tuple(
            Linear(sizes[i], sizes[i + 1], rng, gain=2**0.5, ortho=ortho)
            for i in range(len(hidden))
        )
        self.activation = architecture.activation

    def __call__(self, flat: Array, images: tuple[Array, ...]) -> Array:
        """Latent features [r, l]."""
        encoded = [encoder(image) for encoder, image in zip(self.encoders, images, strict=True)]
        x = jnp.concatenate([flat, *encoded], axis=-1) if encoded else flat
        function = ACTIVATIONS[self.activation][0]
        for layer in self.layers:
            x = function(layer(x))
        return x


class Headed(eqx.Module):
    """A body and, on it, a head that says so many numbers."""

    body: Body
    head: Linear

    def __init__(
        self,
        architecture: Architecture,
        hidden: tuple[int, ...],
        outputs: int,
        gain: float,
        rng: Generator,
    ) -> None:
        latent = latent_size(architecture, hidden)
        self.body = Body(architecture, hidden, rng)
        self.head = Linear(latent, outputs, rng, gain=gain, ortho=architecture.ortho_init)

    def raw(self, flat: Array, images: tuple[Array, ...]) -> Array:
        """The head's numbers [r, o]."""
        return self.head(self.body(flat, images))


class Policy(Headed):
    """The policy network: a Gaussian's mean and standard deviation, logits, or other numbers."""

    log_std: Array | None
    expln: bool = eqx.field(static=True)

    def __init__(self, architecture: Architecture, rng: Generator) -> None:
        super().__init__(architecture, architecture.policy_layers, architecture.outputs, 0.01, rng)
        latent = self.head.weight.shape[0]
        if architecture.first:
            first = jnp.asarray(np.array(architecture.first, np.float32))
            self.head = eqx.tree_at(lambda head: head.bias, self.head, first)
        self.log_std = _initial_log_std(architecture, latent)
        self.expln = architecture.use_expln

    def gaussian(self, flat: Array, images: tuple[Array, ...] = ()) -> tuple[Array, Array]:
        """Mean and standard deviation [r, d] of the action in each state."""
        latent = self.body(flat, images)
        mean = self.head(latent)
        if self.log_std is None:
            raise TypeError("a policy over finite actions has no standard deviation")
        if self.log_std.ndim == 1:
            return mean, jnp.broadcast_to(jnp.exp(self.log_std), mean.shape)
        # gSDE; as in SB3 the features are not trained through the noise they scale
        latent = jax.lax.stop_gradient(latent)
        variance = latent**2 @ sde_variance(self.log_std, expln=self.expln)
        return mean, jnp.sqrt(variance + SDE_VARIANCE_FLOOR)

    def logits(self, flat: Array, images: tuple[Array, ...], choices: int) -> Array:
        """Unnormalised log-probabilities [r, f, k] of each factor's choices."""
        x = self.raw(flat, images)
        return x.reshape(len(x), -1, choices)


def sde_deviation(log_std: Array, *, expln: bool) -> Array:
    """σ of gSDE: an exponential; with ``expln`` it grows like a logarithm where it is above 1."""
    xp = namespace(log_std)
    if not expln:
        return xp.exp(log_std)
    small, large = xp.minimum(log_std, 0.0), xp.maximum(log_std, 0.0)
    return xp.where(log_std <= 0, xp.exp(small), xp.log1p(large) + 1.0)


def sde_variance(log_std: Array, *, expln: bool) -> Array:
    """Its square."""
    xp = namespace(log_std)
    return sde_deviation(log_std, expln=True) ** 2 if expln else xp.exp(2.0 * log_std)


class Value(Headed):
    """The value network V(s)."""

    def __init__(self, architecture: Architecture, rng: Generator) -> None:
        super().__init__(architecture, architecture.value_layers, 1, 1.0, rng)

    def __call__(self, flat: Array, images: tuple[Array, ...] = ()) -> Array:
        """Values [r]."""
        return self.raw(flat, images)[:, 0]


class Networks(eqx.Module):
    """Everything that is trained by gradient."""

    policy: Policy
    value: Value

    def __init__(self, architecture: Architecture, rng: Generator) -> None:
        self.policy = Policy(architecture, rng)
        self.value = Value(architecture, rng)


def latent_size(architecture: Architecture, hidden: tuple[int, ...]) -> int:
    """Features that the head sees."""
    if hidden:
        return hidden[-1]
    return architecture.inputs + len(architecture.images) * architecture.features_dim


def _initial_log_std(architecture: Architecture, latent: int) -> Array | None:
    if architecture.log_std_init is None:
        return None
    shape = (latent, architecture.outputs) if architecture.use_sde else (architecture.outputs,)
    return jnp.asarray(np.full(shape, architecture.log_std_init, np.float32))


def _orthogonal(inputs: int, outputs: int, gain: float, rng: Generator) -> Array:
    """A random matrix with orthogonal rows or columns of length ``gain``.

    On the host by NumPy: JAX would compile a program for every shape before training could start.
    """
    tall = rng.standard_normal((max(inputs, outputs), min(inputs, outputs)))
    xp = namespace(tall)
    q, r = xp.linalg.qr(tall)
    q = q * xp.sign(xp.diag(r))  # makes the draw uniform
    weight = q if inputs >= outputs else q.T
    return (gain * weight).astype(np.float32)
