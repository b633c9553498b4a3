"""Vowpal Wabbit: contextual bandit with action features, SquareCB, told the scores of known prompts first.

Shared features are the components of the prompt, the action is the specialist, all pairs of both are used
(`-q xa`). A known prompt is one example per specialist, as if each had been drawn with the same chance.
"""

import numpy as np
import vowpalwabbit
from streamed import stream

PASSES = 3


class Learner:
    """A workspace of Vowpal Wabbit; the cost it minimises is 1 - reward."""

    def __init__(self, known, reward, seed):
        self.count = reward.shape[1]
        self.rng = np.random.default_rng(seed)
        options = "--cb_explore_adf --squarecb --cb_type mtr -q xa --quiet -b 20"
        self.vw = vowpalwabbit.Workspace(f"{options} --random_seed {seed}")
        for _ in range(PASSES):
            for row in self.rng.permutation(len(known)):
                for m in self.rng.permutation(self.count):
                    self.vw.learn(self.text(known[row], m, reward[row, m], 1.0 / self.count))

    def text(self, features, chosen=None, reward=0.0, chance=1.0):
        """The lines of one example."""
        shared = "shared |x " + " ".join(f"{i}:{value:.5f}" for i, value in enumerate(features))
        lines = [shared]
        for m in range(self.count):
            label = f"{m}:{1.0 - reward:.5f}:{chance:.5f} " if m == chosen else ""
            lines.append(f"{label}|a s{m}")
        return lines

    def ask(self, features):
        """Draw a specialist by the distribution that the exploration wants."""
        chances = np.array(self.vw.predict(self.text(features)))
        m = int(self.rng.choice(self.count, p=chances / chances.sum()))
        return m, (features, m, float(chances[m] / chances.sum()))

    def rated(self, ticket, reward):
        """Learn from one reward."""
        features, m, chance = ticket
        self.vw.learn(self.text(features, m, reward, chance))

    def best(self, features):
        """The specialist of the highest chance."""
        return int(np.argmax(self.vw.predict(self.text(features))))


if __name__ == "__main__":
    stream(Learner)
