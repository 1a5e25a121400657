"""The policy of an imported agent as an ONNX graph: its torch modules, read one by one.

As in `export`, nothing is traced: a module that is not known is refused by its name.
"""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.preprocessing import is_image_space
from torch import nn

from ottrpo.core.checks import require

if TYPE_CHECKING:
    from .export import Graph

Leaves = dict[str | None, str]  # the key of a Dict -> a node; None where observations are no Dict


def torch_actions(graph: "Graph", agent: Any, leaves: Leaves) -> tuple[str, Any, tuple[int, ...]]:
    """The node of the deterministic actions, their type and their shape.

    Args:
        graph: to which nodes are added.
        agent: whose.
        leaves: nodes of its observations, images with their channels first.
    """
    policy, space = agent.policy, agent.action_space
    seen = agent.observation_space
    features = {key: _prepared(graph, agent, leaf, seen, key) for key, leaf in leaves.items()}
    x = _module(graph, policy.pi_features_extractor, features)
    x = _module(graph, policy.mlp_extractor.policy_net, x)
    x = _module(graph, policy.action_net, x)
    if isinstance(space, spaces.Box):
        action = graph.cast(graph.add("Reshape", x, np.array([-1, *space.shape])), space.dtype)
        action = graph.add("Min", graph.add("Max", action, space.low[None]), space.high[None])
        return action, space.dtype, space.shape
    if isinstance(space, spaces.MultiBinary):  # the mode is a float, one half goes to 0
        on = graph.cast(graph.add("Greater", x, np.float32(0)), np.float32)
        return graph.add("Reshape", on, np.array([-1, *space.shape])), np.float32, space.shape
    if isinstance(space, spaces.Discrete):
        return graph.add("ArgMax", x, axis=1, keepdims=0), np.int64, ()
    edges = np.cumsum([0, *space.nvec])
    labels = [
        graph.add(
            "ArgMax",
            graph.add("Slice", x, np.array([low]), np.array([high]), np.array([1])),
            axis=1,
            keepdims=1,
        )
        for low, high in pairwise(edges)
    ]
    return graph.add("Concat", *labels, axis=1), np.int64, space.shape


def _prepared(graph: "Graph", agent: Any, leaf: str, space: Any, key: str | None) -> str:
    """An observation as the networks get it."""
    from .export import one_hot

    space = space if key is None else space[key]
    running = agent._statistics.get("observations")
    if running is not None:
        from .sb3 import NORMALISER_EPSILON

        limit = np.float64(agent.settings()["clip_obs"])
        leaf = graph.add("Sub", graph.cast(leaf, np.float64), running.mean[None])
        leaf = graph.add("Div", leaf, np.sqrt(running.var + NORMALISER_EPSILON)[None])
        return graph.cast(graph.add("Clip", leaf, -limit, limit), np.float32)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return one_hot(graph, leaf, space)
    leaf = graph.cast(leaf, np.float32)
    if agent.policy.normalize_images and is_image_space(space):
        leaf = graph.add("Div", leaf, np.float32(255))
    return leaf


def _module(graph: "Graph", module: Any, x: Any) -> str:
    """What a module makes of a node, or of the nodes of a Dict."""
    if isinstance(x, Mapping) and set(x) == {None}:
        x = x[None]
    for kind, write in _KNOWN.items():
        if isinstance(module, kind):
            return write(graph, module, x)
    name = type(module).__name__
    if name == "FlattenExtractor":
        return _module(graph, module.flatten, x)
    if name == "NatureCNN":
        return _module(graph, module.linear, _module(graph, module.cnn, x))
    require(name == "CombinedExtractor", f"a network with a {name} can't be exported")
    parts = [_module(graph, part, x[key]) for key, part in module.extractors.items()]
    return parts[0] if len(parts) == 1 else graph.add("Concat", *parts, axis=1)


def _sequence(graph: "Graph", module: Any, x: str) -> str:
    for part in module:
        x = _module(graph, part, x)
    return x


def _array(tensor: Any) -> Any:
    return tensor.detach().cpu().numpy()


def _linear(graph: "Graph", module: Any, x: str) -> str:
    require(module.bias is not None, "a Linear without a bias can't be exported")
    return graph.add("Gemm", x, _array(module.weight), _array(module.bias), transB=1)


def _convolved(graph: "Graph", module: Any, x: str) -> str:
    plain = module.groups == 1 and set(module.dilation) == {1} and module.bias is not None
    require(plain and not isinstance(module.padding, str), f"{module} can't be exported")
    return graph.add(
        "Conv",
        x,
        _array(module.weight),
        _array(module.bias),
        strides=list(module.stride),
        pads=list(module.padding) * 2,
    )


def _simple(kind: str) -> Callable[["Graph", Any, str], str]:
    return lambda graph, module, x: graph.add(kind, x)


_KNOWN: Mapping[type, Callable[["Graph", Any, Any], str]] = {
    nn.Sequential: _sequence,
    nn.Linear: _linear,
    nn.Conv2d: _convolved,
    nn.Flatten: lambda graph, module, x: graph.add("Flatten", x, axis=1),
    nn.Identity: lambda graph, module, x: x,
    nn.ReLU: _simple("Relu"),
    nn.Tanh: _simple("Tanh"),
    nn.Sigmoid: _simple("Sigmoid"),
    nn.ELU: lambda graph, module, x: graph.add("Elu", x, alpha=module.alpha),
    nn.LeakyReLU: lambda graph, module, x: graph.add("LeakyRelu", x, alpha=module.negative_slope),
    nn.GELU: lambda graph, module, x: graph.add("Gelu", x, approximate=module.approximate),
    nn.SiLU: lambda graph, module, x: graph.add("Mul", x, graph.add("Sigmoid", x)),
}
