"""Act by an exported policy (`ottrpo export runs/... policy.onnx`), without JAX and torch."""

import sys

import gymnasium
import onnxruntime

policy = onnxruntime.InferenceSession(sys.argv[1])
env = gymnasium.make(sys.argv[2])
observation, total, done = env.reset(seed=0)[0], 0.0, False
while not done:
    (action,) = policy.run(["action"], {"observation": observation[None]})
    observation, reward, terminated, truncated, _ = env.step(action[0])
    total, done = total + float(reward), terminated or truncated
print(f"return {total:,.1f}")
