"""The transport problem of two finite measures, by the simplex method on its tree of cells.

A basic plan is a spanning tree between the rows and the columns: cells (a, b) through which mass
may flow. Prices u_a + v_b = c_ab on the tree say what any other cell would save; one that saves
closes a cycle, along which mass is moved until a cell of the tree runs dry.
"""

from itertools import pairwise

import numpy as np

from .checks import Floats

Cell = tuple[int, int]


def optimal_plan(mu_a: Floats, nu_b: Floats, cost_ab: Floats) -> Floats:
    """The coupling of two measures of the same mass that costs least.

    Args:
        mu_a: masses, all positive.
        nu_b: masses, all positive.
        cost_ab: finite costs.
    """
    flow = _corner_plan(mu_a, nu_b)
    # prices are sums along the tree, each with the rounding of the largest cost
    tolerance = float(np.abs(cost_ab).max()) * np.finfo(np.float64).eps * sum(cost_ab.shape)
    stuck = False
    while True:
        price_a, price_b, parent = _prices(flow, cost_ab)
        slack_ab = cost_ab - price_a[:, None] - price_b
        # where no mass moves the first cell that saves is taken, not the best: else it might cycle
        entering = int((slack_ab < -tolerance).argmax() if stuck else slack_ab.argmin())
        a, b = divmod(entering, cost_ab.shape[1])
        if slack_ab[a, b] >= -tolerance:
            break
        stuck = _pivot(flow, (a, b), parent, mu_a.size) == 0.0
    plan_ab = np.zeros_like(cost_ab)
    for cell, mass in flow.items():
        plan_ab[cell] = mass
    return plan_ab


def _corner_plan(mu_a: Floats, nu_b: Floats) -> dict[Cell, float]:
    """Some plan: rows are served one after the other by columns one after the other."""
    left_a, left_b = mu_a.tolist(), nu_b.tolist()
    flow: dict[Cell, float] = {}
    a = b = 0
    while True:
        mass = min(left_a[a], left_b[b])
        flow[a, b] = mass
        left_a[a] -= mass
        left_b[b] -= mass
        last_a, last_b = a == len(left_a) - 1, b == len(left_b) - 1
        if last_a and last_b:
            return flow
        if last_b or (left_a[a] <= left_b[b] and not last_a):
            a += 1
        else:
            b += 1


def _prices(flow: dict[Cell, float], cost_ab: Floats) -> tuple[Floats, Floats, list[int]]:
    """The prices of rows and columns, and each node's parent: rows first, then columns."""
    rows, columns = cost_ab.shape
    cells: list[list[int]] = [[] for _ in range(rows + columns)]
    for a, b in flow:
        cells[a].append(rows + b)
        cells[rows + b].append(a)
    price, parent = np.zeros(rows + columns), [-1] * (rows + columns)
    waiting = [0]
    while waiting:
        node = waiting.pop()
        for other in cells[node]:
            if other != parent[node]:
                parent[other] = node
                a, b = min(node, other), max(node, other) - rows
                price[other] = cost_ab[a, b] - price[node]
                waiting.append(other)
    return price[:rows], price[rows:], parent


def _pivot(flow: dict[Cell, float], entering: Cell, parent: list[int], rows: int) -> float:
    """Move as much as the cycle through the entering cell lets; says how much that is."""
    path = _path(entering[0], rows + entering[1], parent)
    # from the entering row to its column: they lose and gain in turns
    cells = [(min(pair), max(pair) - rows) for pair in pairwise(path)]
    losing = cells[0::2]
    moved = min(flow[cell] for cell in losing)
    leaving = min(cell for cell in losing if flow[cell] == moved)
    for cell in losing:
        flow[cell] -= moved
    for cell in cells[1::2]:
        flow[cell] += moved
    del flow[leaving]
    flow[entering] = moved
    return moved


def _path(start: int, end: int, parent: list[int]) -> list[int]:
    """The nodes of the tree between two, both included."""
    up, down = [start], [end]
    while parent[up[-1]] >= 0:
        up.append(parent[up[-1]])
    while parent[down[-1]] >= 0:
        down.append(parent[down[-1]])
    while len(up) > 1 and len(down) > 1 and up[-2] == down[-2]:
        up.pop()
        down.pop()
    return up + down[-2::-1]
