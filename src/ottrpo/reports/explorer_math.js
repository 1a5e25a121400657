"use strict";
// The mathematics of the page: the dual solved by sorting, as `ottrpo.core.solve_dual` does it, and
// the same problem inside a Kullback-Leibler region.

// Passages of one row's envelope, from a large multiplier down: to ever dearer and better candidates.
function passages(row, gain, cost) {
  let here = row.stay;
  for (let k = 0; k < gain.length; k++) if (cost[k] === 0 && gain[k] > gain[here]) here = k;
  const found = [], first = here;
  for (;;) {
    let best = 0, next = -1;
    for (let k = 0; k < gain.length; k++) {
      if (cost[k] <= cost[here] || gain[k] <= gain[here]) continue;
      const slope = (gain[k] - gain[here]) / (cost[k] - cost[here]);
      if (slope > best || (slope === best && next >= 0 && cost[k] > cost[next])) { best = slope; next = k; }
    }
    if (next < 0) return { first, found };
    found.push({ at: best, row, to: next, price: row.weight * (cost[next] - cost[here]) });
    here = next;
  }
}

// rows: {weight, stay, gain, cost}; gives the multiplier, both maps, and the share that goes far.
function solveDual(rows, radius) {
  const nearest = [], all = [];
  rows.forEach((row, index) => {
    row.index = index;
    const envelope = passages(row, row.gain, row.cost);
    nearest.push(envelope.first);
    if (row.weight > 0) all.push(...envelope.found);
  });
  all.sort((a, b) => b.at - a.at);
  let spent = 0, multiplier = 0, share = 0, i = 0;
  const farthest = nearest.slice();
  while (i < all.length) {
    let j = i, price = 0;
    while (j < all.length && all[j].at === all[i].at) price += all[j++].price;
    for (let k = i; k < j; k++) farthest[all[k].row.index] = all[k].to;
    if (spent + price > radius) {
      multiplier = all[i].at;
      share = (radius - spent) / price;
      spent = radius;
      break;
    }
    spent += price;
    for (let k = i; k < j; k++) nearest[all[k].row.index] = all[k].to;
    i = j;
  }
  const value = rows.reduce((sum, row, r) =>
    sum + row.weight * ((1 - share) * row.gain[nearest[r]] + share * row.gain[farthest[r]]), 0);
  return { multiplier, nearest, farthest, share, spent, value, breakpoints: all.map((p) => p.at) };
}

function dualValue(rows, radius, multiplier) {
  return rows.reduce((sum, row) => {
    let best = -Infinity;
    row.gain.forEach((gain, k) => { best = Math.max(best, gain - multiplier * row.cost[k]); });
    return sum + row.weight * best;
  }, multiplier * radius);
}

// One state: its actions are the rows.
function regionOf(policy, gain, cost, radius) {
  const rows = policy.map((weight, a) => ({ weight, stay: a, gain, cost: cost[a] }));
  const solution = solveDual(rows, radius);
  const plan = policy.map(() => policy.map(() => 0));
  policy.forEach((mass, a) => {
    plan[a][solution.nearest[a]] += (1 - solution.share) * mass;
    plan[a][solution.farthest[a]] += solution.share * mass;
  });
  const next = policy.map((_, b) => plan.reduce((sum, row) => sum + row[b], 0));
  return { rows, solution, plan, next };
}

// Many states: weight_s of each, one multiplier for all.
function updatePolicy(policies, occupancy, gains, cost, radius) {
  const rows = [];
  policies.forEach((policy, s) => policy.forEach((mass, a) => {
    if (mass > 0 && occupancy[s] > 0) rows.push({ weight: occupancy[s] * mass, stay: a, s, mass, gain: gains[s], cost: cost[a] });
  }));
  const solution = solveDual(rows, radius);
  const next = policies.map((policy, s) => occupancy[s] > 0 ? policy.map(() => 0) : policy.slice());
  rows.forEach((row, r) => {
    next[row.s][solution.nearest[r]] += (1 - solution.share) * row.mass;
    next[row.s][solution.farthest[r]] += solution.share * row.mass;
  });
  return { next, solution };
}

// The policy that gains most while the mean of KL(new | old) stays within the radius.
function klUpdate(policies, occupancy, gains, radius) {
  const tilted = (heat) => policies.map((policy, s) => {
    const top = Math.max(...gains[s].filter((_, a) => policy[a] > 0));
    const weight = policy.map((mass, a) => mass > 0 ? mass * Math.exp((gains[s][a] - top) / heat) : 0);
    const total = weight.reduce((x, y) => x + y, 0);
    return weight.map((w) => w / total);
  });
  const spent = (next) => next.reduce((sum, row, s) => sum + occupancy[s] * row.reduce((kl, p, a) =>
    p > 0 ? kl + p * Math.log(p / policies[s][a]) : kl, 0), 0);
  const coldest = 1e-9, next = tilted(coldest);
  if (spent(next) <= radius) return { next, spent: spent(next), binding: false };
  let low = coldest, high = 1;
  while (spent(tilted(high)) > radius) high *= 2;
  for (let i = 0; i < 200; i++) {
    const middle = Math.sqrt(low * high);
    if (spent(tilted(middle)) > radius) low = middle; else high = middle;
  }
  return { next: tilted(high), spent: spent(tilted(high)), binding: true };
}

// Solves A x = b in place, with partial pivoting.
function linearSolve(A, b) {
  const n = b.length;
  for (let i = 0; i < n; i++) {
    let pivot = i;
    for (let r = i + 1; r < n; r++) if (Math.abs(A[r][i]) > Math.abs(A[pivot][i])) pivot = r;
    [A[i], A[pivot]] = [A[pivot], A[i]];
    [b[i], b[pivot]] = [b[pivot], b[i]];
    for (let r = i + 1; r < n; r++) {
      const factor = A[r][i] / A[i][i];
      if (factor === 0) continue;
      for (let c = i; c < n; c++) A[r][c] -= factor * A[i][c];
      b[r] -= factor * b[i];
    }
  }
  for (let i = n - 1; i >= 0; i--) {
    for (let c = i + 1; c < n; c++) b[i] -= A[i][c] * b[c];
    b[i] /= A[i][i];
  }
  return b;
}

// CliffWalking: 4 rows of 12 cells; up, right, down, left; the cliff leads back to the start.
const CLIFF = { rows: 4, columns: 12, start: 36, goal: 47, discount: 0.95 };
const COST = [0, 1, 2, 3].map((a) => [0, 1, 2, 3].map((b) => Number(a !== b)));

function cliffStep(s, a) {
  const row = Math.floor(s / CLIFF.columns), column = s % CLIFF.columns;
  const y = Math.min(Math.max(row + [-1, 0, 1, 0][a], 0), CLIFF.rows - 1);
  const x = Math.min(Math.max(column + [0, 1, 0, -1][a], 0), CLIFF.columns - 1);
  const to = y * CLIFF.columns + x;
  return to > CLIFF.start && to < CLIFF.goal ? { to: CLIFF.start, reward: -100 } : { to, reward: -1 };
}

// Values, action values and discounted occupancy of a policy, exactly.
function cliffEvaluate(policies) {
  const n = CLIFF.rows * CLIFF.columns, discount = CLIFF.discount;
  const eye = () => Array.from({ length: n }, (_, i) => Array.from({ length: n }, (_, j) => Number(i === j)));
  const forward = eye(), backward = eye(), reward = Array(n).fill(0), start = Array(n).fill(0);
  start[CLIFF.start] = 1 - discount;
  for (let s = 0; s < n; s++) {
    if (s === CLIFF.goal) continue;
    policies[s].forEach((mass, a) => {
      const { to, reward: gained } = cliffStep(s, a);
      reward[s] += mass * gained;
      if (to === CLIFF.goal) return;
      forward[s][to] -= discount * mass;
      backward[to][s] -= discount * mass;
    });
  }
  const value = linearSolve(forward, reward), occupancy = linearSolve(backward, start);
  value[CLIFF.goal] = occupancy[CLIFF.goal] = 0;
  const q = policies.map((_, s) => [0, 1, 2, 3].map((a) => {
    const { to, reward: gained } = cliffStep(s, a);
    return gained + (to === CLIFF.goal ? 0 : discount * value[to]);
  }));
  // what no policy visits has no weight; rounding must not give it one
  return { value, q, occupancy: occupancy.map((w) => Math.max(w, 0)) };
}

function cliffPolicies() {
  return Array.from({ length: CLIFF.rows * CLIFF.columns }, () => [0.25, 0.25, 0.25, 0.25]);
}

// The steps of the best action from the start, and whether they lead to the goal.
function cliffWalk(policies) {
  let s = CLIFF.start, steps = 0, total = 0;
  while (s !== CLIFF.goal && steps < 100) {
    const a = policies[s].indexOf(Math.max(...policies[s]));
    const { to, reward } = cliffStep(s, a);
    s = to; total += reward; steps += 1;
  }
  return { arrived: s === CLIFF.goal, steps, total };
}
