"""The few names of torch that guidellm's data loader uses, so that guidellm runs without 4 GB of torch and CUDA.

On PYTHONPATH of a guidellm process only. What it replaces: walking an in-process data set in order, one item at a time.
What it leaves alone: guidellm's client, its scheduling, its counting and its report, which are what we test with. Whatever
else is asked of it fails with an AttributeError or a NotImplementedError.
"""

__version__ = "0"  # below every version that a library would take for usable


class Generator:
    """Seed of a shuffle; unused, for a loader over an iterable does not shuffle."""

    def manual_seed(self, seed):
        self.seed = seed
        return self


class Tensor:
    """Nothing here is one; libraries ask whether a value is."""


from . import nn, utils  # noqa: E402  (as in torch itself: `import torch` makes the parts reachable)
