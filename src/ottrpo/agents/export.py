"""A trained policy as one ONNX file: raw observations in, the deterministic action out.

Whatever the agent does between the two stands in the graph: codes of labels, the normaliser, image
encoders, the network, the box of actions. It is written node by node from the agent's arrays (those
of imported agents: `export_torch`): nothing is traced, neither JAX nor torch is needed to run it.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from onnx import checker, helper, numpy_helper

from ottrpo.core.checks import require
from ottrpo.engine.densities import Density, Mixture, RichActions
from ottrpo.engine.networks import Body, ImageEncoder, Linear
from ottrpo.engine.spaces import FORBIDDEN, BinnedActions, BoxActions
from ottrpo.engine.state import Normaliser, Observations
from ottrpo.persistence.bundle import write_atomically
from ottrpo.tabular.base import TabularAgent

from .base import DeepAgent

Array = Any
OPSET, IR = 20, 9  # what runtimes of the last years read; Gelu came with 20
ROWS = "n"  # the first axis of every input and output
ALONE = "observation"  # the input's name where observations are no Dict
CHECKED = 1000  # observations that a written policy was compared on
TOLERANCE = 1e-3  # rounding differs: of actions far less than this, of labels at ties
# activation -> nodes that make it
ACTIVATIONS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "tanh": ("Tanh", {}),
    "relu": ("Relu", {}),
    "leakyrelu": ("LeakyRelu", {"alpha": 0.01}),
    "elu": ("Elu", {}),
    "sigmoid": ("Sigmoid", {}),
    "gelu": ("Gelu", {"approximate": "tanh"}),
}


class Graph:
    """Nodes, their constants, inputs and outputs, in the order in which they are added."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []

    def add(self, kind: str, *inputs: Any, **attributes: Any) -> str:
        """A node; arrays among its inputs become constants. Gives the name of its output."""
        names = [name if isinstance(name, str) else self._constant(name) for name in inputs]
        output = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, names, [output], **attributes))
        return output

    def cast(self, name: str, dtype: Any) -> str:
        """The same numbers, of another type."""
        return self.add("Cast", name, to=_element(dtype))

    def take(self, name: str, space: spaces.Space[Any]) -> str:
        """An input for observations of ``space``, the environments along its first axis."""
        shape: list[Any] = [ROWS, *(space.shape or ())]
        self.inputs.append(helper.make_tensor_value_info(name, _element(space.dtype), shape))
        return name

    def finish(self, output: str, dtype: Any, shape: Sequence[int], about: str) -> Any:
        """The model whose output is that node's."""
        self.nodes.append(helper.make_node("Cast", [output], ["action"], to=_element(dtype)))
        action = helper.make_tensor_value_info("action", _element(dtype), [ROWS, *shape])
        graph = helper.make_graph(self.nodes, "policy", self.inputs, [action], self.constants)
        graph.doc_string = about
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(
            graph, producer_name="ottrpo", opset_imports=opsets, ir_version=IR
        )
        checker.check_model(model, full_check=True)
        return model

    def _constant(self, value: Any) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name


def to_onnx(agent: Any) -> Any:
    """The deterministic policy of ``agent`` as a model of the package ``onnx``.

    Raises:
        ValueError: if it is no agent of this library, or has a network that is not known.
    """
    if isinstance(agent, TabularAgent):
        return _table(agent)
    about = f"the deterministic policy of {type(agent).__name__}"
    if not isinstance(agent, DeepAgent):
        require(
            type(agent).__module__ == "ottrpo.agents.sb3",
            f"{type(agent).__module__}.{type(agent).__name__} is no agent of this library, and "
            "exported by its own, with torch.onnx",
        )
        from .export_torch import torch_actions

        graph = Graph()
        leaves = dict(_leaves(graph, agent.observation_space, _raw_space(agent)))
        return graph.finish(*torch_actions(graph, agent, leaves), about)
    require(
        agent._vec_normalize_env is None,
        "the agent is normalised by a VecNormalize of its environments; train with normalize_obs",
    )
    graph = Graph()
    flat, images = _observations(graph, agent, _raw_space(agent))
    policy, seen = agent.train_state.played
    flat = _normalised(graph, agent.algorithm.estimate.normaliser, seen, flat)
    output = _linear(graph, policy.head, _latent(graph, policy.body, flat, images))
    actions, space = agent.actions, agent.action_space
    if isinstance(actions, RichActions):
        output = _without_noise(graph, actions.density, output)
    if isinstance(actions, BoxActions):
        return graph.finish(_boxed(graph, actions, output), space.dtype, space.shape, about)
    factors, choices = actions.factors, actions.choices
    logits = graph.add("Reshape", output, np.array([-1, factors, choices]))
    if not actions.allowed_fk.all():
        logits = graph.add("Where", actions.allowed_fk[None], logits, np.float32(FORBIDDEN))
    label = graph.add("ArgMax", logits, axis=-1, keepdims=0)
    if isinstance(actions, BinnedActions):
        first = choices * np.arange(factors)  # of the points of each coordinate
        point = graph.add("Gather", actions.points_fk.reshape(-1), graph.add("Add", label, first))
        point = graph.add("Reshape", point, np.array([-1, *space.shape]))
        return graph.finish(point, space.dtype, space.shape, about)
    label = graph.add("Add", label, actions.start)
    if actions.scalar:
        label = graph.add("Squeeze", label, np.array([1]))
    return graph.finish(label, np.int64, () if actions.scalar else (factors,), about)


def export(agent: Any, path: Path) -> float:
    """Write `to_onnx` to a file, if it does as `predict` does, and say by how much it differs.

    Raises:
        ValueError: if the agent can't be exported, or the exported policy does not do as it does.
    """
    content = to_onnx(agent).SerializeToString()
    difference = largest_difference(agent, content)
    require(
        difference <= TOLERANCE,
        f"the exported policy does not do as predict does: actions differ by {difference:.3g}",
    )
    write_atomically(path, content)
    return difference


def largest_difference(agent: Any, content: bytes, rows: int = CHECKED, seed: int = 0) -> float:
    """Between what the model does and `predict` does, on so many observations.

    Of actions in a box it is told in units of its width; of labels, bins too, it is the share of
    rows in which any differs.
    """
    import onnxruntime

    space = _raw_space(agent)
    space.seed(seed)
    drawn = [space.sample() for _ in range(rows)]
    seen = (
        {key: np.stack([x[key] for x in drawn]) for key in space}
        if _is_dict(space)
        else np.stack(drawn)
    )
    wanted = np.asarray(agent.predict(seen, deterministic=True)[0])
    model = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    got = model.run(None, dict(seen) if _is_dict(space) else {ALONE: seen})[0]
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return np.inf
    space = getattr(agent, "action_space", None)  # tables have none, and labels for actions
    binned = isinstance(getattr(agent, "actions", None), BinnedActions)
    if binned or not isinstance(space, spaces.Box):
        return float((got != wanted).reshape(rows, -1).any(axis=1).mean())
    return float(np.abs((got - wanted) / (space.high - space.low)).max())


def _table(agent: TabularAgent) -> Any:
    graph = Graph()
    state = graph.take(ALONE, _raw_space(agent))
    best = agent.policy_sa.argmax(axis=1).astype(np.int64)
    return graph.finish(
        graph.add("Gather", best, state), np.int64, (), f"the policy of {type(agent).__name__}"
    )


def _raw_space(agent: Any) -> Any:
    """Observations as the environment gives them: the agent may see images turned."""
    if isinstance(agent, TabularAgent):
        return spaces.Discrete(agent.problem.n_states)
    try:
        env = agent.fresh_env()
    except ValueError:  # it was not made by an id, or is not known: as the agent sees them then
        return agent.observation_space
    try:
        return env.observation_space
    finally:
        env.close()


def _is_dict(space: Any) -> bool:
    return isinstance(space, spaces.Dict)


def _observations(graph: Graph, agent: DeepAgent, raw: Any) -> tuple[str, list[str]]:
    """Flat features in float64, the type they are normalised in, and images."""
    flat, images = [], []
    leaves = dict(_leaves(graph, agent.observation_space, raw))
    for part in agent.layout.parts:
        leaf = leaves[part.key]
        if part.image:
            images.append(leaf)
        else:
            flat.append(_flat(graph, leaf, part.space))
    if not flat:
        return "", images
    return (flat[0] if len(flat) == 1 else graph.add("Concat", *flat, axis=1)), images


def _leaves(graph: Graph, seen: Any, raw: Any) -> Iterator[tuple[str | None, str]]:
    """An input for every part of an observation, by its key, as the agent sees it."""
    for key in seen if _is_dict(seen) else [None]:
        given, wanted = (space if key is None else space[key] for space in (raw, seen))
        leaf = graph.take(ALONE if key is None else key, given)
        if given.shape != wanted.shape:  # channels come last, and go first
            leaf = graph.add("Transpose", leaf, perm=[0, 3, 1, 2])
        yield key, leaf


def one_hot(graph: Graph, leaf: str, space: Any) -> str:
    """The codes of labels, one after the other."""
    counts = [space.n] if isinstance(space, spaces.Discrete) else space.nvec.reshape(-1)
    start = np.reshape(space.start, (1, -1))
    labels = graph.add("Reshape", graph.cast(leaf, np.int64), np.array([-1, len(counts)]))
    labels = graph.add("Sub", labels, start.astype(np.int64))
    codes = [
        graph.add(
            "OneHot",
            graph.add("Gather", labels, np.int64(i), axis=1),
            np.int64(count),
            np.array([0.0, 1.0], np.float32),
        )
        for i, count in enumerate(counts)
    ]
    return codes[0] if len(codes) == 1 else graph.add("Concat", *codes, axis=1)


def _flat(graph: Graph, leaf: str, space: spaces.Space[Any]) -> str:
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return graph.cast(one_hot(graph, leaf, space), np.float64)
    return graph.cast(graph.add("Flatten", leaf, axis=1), np.float64)


def _normalised(graph: Graph, normaliser: Normaliser, seen: Observations, flat: str) -> str:
    if not flat:
        return ""
    if normaliser.observations:
        # as float64, whatever they are kept in: sensors have digits that float32 would lose
        flat = graph.add("Sub", flat, np.asarray(seen.mean, np.float64)[None])
        flat = graph.add("Mul", flat, np.asarray(seen.scale, np.float64)[None])
        clip = np.float64(normaliser.clip_obs)
        flat = graph.add("Clip", flat, -clip, clip)
    return graph.cast(flat, np.float32)


def _latent(graph: Graph, body: Body, flat: str, images: Sequence[str]) -> str:
    encoded = [_encoded(graph, *pair) for pair in zip(body.encoders, images, strict=True)]
    parts = [flat] * bool(flat) + encoded
    x = parts[0] if len(parts) == 1 else graph.add("Concat", *parts, axis=1)
    for layer in body.layers:
        x = _linear(graph, layer, x)
        if body.activation == "silu":
            x = graph.add("Mul", x, graph.add("Sigmoid", x))
        else:
            kind, attributes = ACTIVATIONS[body.activation]
            x = graph.add(kind, x, **attributes)
    return x


def _encoded(graph: Graph, encoder: ImageEncoder, image: str) -> str:
    x = graph.cast(image, np.float32)
    if encoder.scaled:
        x = graph.add("Div", x, np.float32(255))
    for kernel, bias, stride in zip(encoder.kernels, encoder.biases, encoder.STRIDES, strict=True):
        x = graph.add("Conv", x, np.asarray(kernel), np.asarray(bias), strides=[stride, stride])
        x = graph.add("Relu", x)
    return graph.add("Relu", _linear(graph, encoder.output, graph.add("Flatten", x, axis=1)))


def _linear(graph: Graph, layer: Linear, x: str) -> str:
    return graph.add("Gemm", x, np.asarray(layer.weight), np.asarray(layer.bias))


def _without_noise(graph: Graph, density: Density, head: str) -> str:
    """What a density makes of no noise: the mean of the likeliest component.

    A flow is refused: its steep steps magnify rounding beyond what `export` promises.
    """
    if not isinstance(density, Mixture):
        raise ValueError("a flow can't be exported: in single precision it differs from predict")
    taken, size, count = 0, density.size, density.count

    def take(*shape: int) -> str:
        nonlocal taken
        start, taken = taken, taken + math.prod(shape)
        part = graph.add("Slice", head, np.array([start]), np.array([taken]), np.array([1]))
        return graph.add("Reshape", part, np.array([-1, *shape]))

    likeliest = graph.add("ArgMax", take(count), axis=1, keepdims=0)
    chosen = graph.add("OneHot", likeliest, np.int64(count), np.array([0, 1], np.float32))
    chosen = graph.add("Reshape", chosen, np.array([-1, count, 1]))
    means = graph.add("Mul", chosen, take(count, size))
    return graph.add("ReduceSum", means, np.array([1]), keepdims=0)


def _boxed(graph: Graph, actions: BoxActions, mean: str) -> str:
    """As `BoxActions.to_world` does it, so that the bounds are never left."""
    bounds = () if actions.squash else (np.float32(-1), np.float32(1))
    action = graph.add("Tanh" if actions.squash else "Clip", mean, *bounds)
    if not actions.is_unit:
        share = graph.add("Mul", graph.add("Add", action, np.float32(1)), np.float32(0.5))
        rest = graph.add("Sub", np.float32(1), share)
        low = graph.add("Mul", rest, actions.low[None])
        action = graph.add("Add", low, graph.add("Mul", share, actions.high[None]))
    return graph.add("Reshape", action, np.array([-1, *actions.shape]))


def _element(dtype: Any) -> int:
    kind = np.dtype(dtype)
    require(kind.kind in "biuf", f"numbers of type {kind} can't be exported")
    return int(helper.np_dtype_to_tensor_dtype(kind))
