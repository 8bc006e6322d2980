"""Train a small network on real handwritten digits with NumPy, and lose no step to a preemption.

Runs by itself (`python examples/digits_numpy.py --steps 500`) and under Penstock, unchanged. Everything
that training depends on is in the checkpoint: weights, momentum, the shuffled order and its generator.
So an interrupted run, resumed, ends with the same bits as one that was left alone; compare `final digest`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from penstock import training

TEST_ROWS = 360


class Trainer:
    """One hidden layer, ReLU, softmax cross-entropy; stochastic gradient descent with momentum."""

    def __init__(self, images: np.ndarray, labels: np.ndarray, *, seed: int, hidden: int, batch: int) -> None:
        self.images, self.labels, self.batch = images, labels, batch
        self.rng = np.random.default_rng(seed)
        self.weights = {
            "w1": self.rng.normal(0.0, 0.15, (images.shape[1], hidden)),
            "b1": np.zeros(hidden),
            "w2": self.rng.normal(0.0, 0.15, (hidden, 10)),
            "b2": np.zeros(10),
        }
        self.momentum = {name: np.zeros_like(weight) for name, weight in self.weights.items()}
        self.order = self.rng.permutation(len(images))

    def state(self) -> dict[str, Any]:
        return {
            "weights": self.weights,
            "momentum": self.momentum,
            "order": self.order,
            "random": training.random_state(shuffle=self.rng),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self.weights, self.momentum, self.order = state["weights"], state["momentum"], state["order"]
        training.restore_random_state(state["random"], shuffle=self.rng)

    def train_step(self, step: int) -> float:
        """Do one step on the next batch and return its loss; shuffles anew at the start of each epoch."""
        batches = len(self.images) // self.batch
        position = step % batches
        if position == 0 and step > 0:
            self.order = self.rng.permutation(len(self.images))
        rows = self.order[position * self.batch : (position + 1) * self.batch]
        loss, gradients = self._gradients(self.images[rows], self.labels[rows])
        for name, gradient in gradients.items():
            self.momentum[name] = 0.9 * self.momentum[name] - 0.1 * gradient
            self.weights[name] = self.weights[name] + self.momentum[name]
        return loss

    def _gradients(self, x: np.ndarray, y: np.ndarray) -> tuple[float, dict[str, np.ndarray]]:
        hidden, probabilities = self._forward(x)
        loss = float(-np.log(probabilities[np.arange(len(y)), y] + 1e-12).mean())
        slope = probabilities.copy()
        slope[np.arange(len(y)), y] -= 1.0
        slope /= len(y)
        back = (slope @ self.weights["w2"].T) * (hidden > 0)
        return loss, {
            "w1": x.T @ back,
            "b1": back.sum(axis=0),
            "w2": hidden.T @ slope,
            "b2": slope.sum(axis=0),
        }

    def _forward(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        hidden = np.maximum(x @ self.weights["w1"] + self.weights["b1"], 0.0)
        scores = hidden @ self.weights["w2"] + self.weights["b2"]
        exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
        return hidden, exponentials / exponentials.sum(axis=1, keepdims=True)

    def accuracy(self, images: np.ndarray, labels: np.ndarray) -> float:
        return float((self._forward(images)[1].argmax(axis=1) == labels).mean())

    def digest(self) -> str:
        """Return the SHA-256 of all weights, in the order of their names."""
        digest = hashlib.sha256()
        for name in sorted(self.weights):
            digest.update(np.ascontiguousarray(self.weights[name]).tobytes())
        return digest.hexdigest()


def write_result(path: Path, result: Mapping[str, Any]) -> None:
    """Put the result in place in one step: a reader never sees half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train on handwritten digits; survives preemption.")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--step-ms", type=float, default=0.0, help="sleep at each step, to make it last")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--dir", help="checkpoint directory when not run by Penstock")
    parser.add_argument("--interval-s", type=float, help="seconds between checkpoints; default: the agent's")
    parser.add_argument("--out", type=Path, help="result file; default: result.json beside the checkpoints")
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    images, labels = load_digits(return_X_y=True)
    images = images / 16.0
    trainer = Trainer(
        images[:-TEST_ROWS],
        labels[:-TEST_ROWS],
        seed=options.seed,
        hidden=options.hidden,
        batch=options.batch,
    )
    with training.session(options.dir, interval_s=options.interval_s) as run:
        state = run.resume(None)
        if state is not None:
            trainer.load(state)
        print(f"starting at step {run.step} of {options.steps}", flush=True)
        for step in run.steps(options.steps, capture=trainer.state):
            loss = trainer.train_step(step)
            run.report(loss=loss, samples=options.batch)
            time.sleep(options.step_ms / 1000)
        result = {
            "steps": run.step,
            "accuracy": trainer.accuracy(images[-TEST_ROWS:], labels[-TEST_ROWS:]),
            "digest": trainer.digest(),
        }
        out = options.out
        if out is None and run.checkpoints is not None:
            out = run.checkpoints.folder.resolve().parent / "result.json"
        if out is not None:
            write_result(out, result)
    print(f"test accuracy: {result['accuracy']:.4f}")
    print(f"final digest: {result['digest']}")


if __name__ == "__main__":
    main()
