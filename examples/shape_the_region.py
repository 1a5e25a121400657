"""A cost of one's own: which moves of probability are cheap is a choice.

In Taxi four actions move the car and two handle the passenger. Here mass passes within each group
at a fifth of the price of passing between them: the same radius moves five times the mass, and all
of it stays in its group.

Run: python examples/shape_the_region.py
"""

from dataclasses import dataclass

from ottrpo import TabularOTTRPO
from ottrpo.core import Binary, Cost, register_cost, update_policy


@register_cost("grouped")  # the name by which files and saved agents know it
@dataclass(frozen=True)
class Grouped(Cost):
    """1 between driving (0 to 3) and handling the passenger (4, 5), less within each."""

    within: float = 0.2
    takes_labels = True

    def __call__(self, source, target, state=None):
        """c(source, target)."""
        other = (source >= 4) != (target >= 4)
        return (source != target) * (self.within + (1.0 - self.within) * other)


print(Grouped().matrix(6))
policy = [[0.5, 0.1, 0.1, 0.1, 0.1, 0.1]]
advantage = [[0.0, 0.2, 0.9, 0.1, -0.5, 1.0]]  # east is good, dropping off a little better
for name, cost in (("binary", Binary()), ("grouped", Grouped())):
    update = update_policy(policy, [1.0], advantage, cost, radius=0.05)
    print(f"{name:>8}: {update.policy_sa[0].round(3)} spends {update.solution.spent:.3f}")

agent = TabularOTTRPO("Taxi-v4", cost=Grouped(), seed=0).learn(20_000)
agent.save("taxi")
print(f"loaded with {TabularOTTRPO.load('taxi').settings.cost}")
