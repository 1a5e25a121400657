"use strict";
// What is drawn on the page. Nothing is fetched and nothing is kept.
const SVG = "http://www.w3.org/2000/svg";
const $ = (id) => document.getElementById(id);
const told = (x) => Number(x.toPrecision(4)).toString().replace("-", "−");
const letters = "ABCDEF";

function shape(parent, kind, attributes, text) {
  const made = document.createElementNS(SVG, kind);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

function cell(row, content, kind = "td") {
  const made = document.createElement(kind);
  if (kind === "th") made.scope = "row";
  made.append(content);
  row.append(made);
  return made;
}

function field(type, label, value, options) {
  const made = document.createElement("input");
  Object.assign(made, { type, value, ...options });
  made.setAttribute("aria-label", label);
  made.addEventListener("input", show);
  return made;
}

const EXAMPLES = {
  mixed: [[0.4, 0.3, 0.2, 0.1, 0.2, 0.2], [0, -0.5, 1, 2, 0.5, 1.5]],
  corner: [[1, 0, 0, 0, 0, 0], [0, 0.5, 1, 2, 1.5, 1]],
  uniform: [[1, 1, 1, 1, 1, 1], [1, -1, 0.5, 2, 0, 1.5]],
};
const COSTS = {
  binary: (a, b) => Number(a !== b),
  line: (a, b) => Math.abs(a - b),
  square: (a, b) => (a - b) ** 2,
  groups: (a, b) => (a === b ? 0 : Math.floor(a / 2) === Math.floor(b / 2) ? 0.2 : 1),
};
let masses = [], gains = [], costs = [];

function build() {
  const n = Number($("count").value), [mass, gain] = EXAMPLES[$("example").value];
  const body = $("state").tBodies[0];
  body.replaceChildren();
  masses = []; gains = [];
  for (let a = 0; a < n; a++) {
    const row = body.insertRow();
    cell(row, letters[a], "th");
    masses.push(field("range", `mass of action ${letters[a]}`, 0, { min: 0, max: 1, step: 0.01 }));
    masses[a].value = mass[a];
    cell(row, masses[a]);
    cell(row, "");
    gains.push(field("number", `advantage of action ${letters[a]}`, gain[a], { step: 0.1 }));
    cell(row, gains[a]);
    cell(row, ""); cell(row, "");
  }
  buildCosts();
}

function buildCosts() {
  const n = masses.length, kind = $("cost").value, head = $("matrix").tHead, body = $("matrix").tBodies[0];
  const before = costs.length === n ? costs.map((row) => row.map((entry) => entry.value)) : null;
  head.replaceChildren(); body.replaceChildren();
  const top = head.insertRow();
  cell(top, "from \\ to", "th").scope = "col";
  for (let b = 0; b < n; b++) cell(top, letters[b], "th").scope = "col";
  costs = [];
  for (let a = 0; a < n; a++) {
    const row = body.insertRow();
    cell(row, letters[a], "th");
    costs.push([]);
    for (let b = 0; b < n; b++) {
      const value = kind === "own" ? (before ? before[a][b] : Number(a !== b)) : COSTS[kind](a, b);
      const entry = field("number", `cost from ${letters[a]} to ${letters[b]}`, value, { min: 0, step: 0.1 });
      entry.disabled = kind !== "own" || a === b;
      costs[a].push(entry);
      cell(row, entry);
    }
  }
  show();
}

function problem() {
  const mass = masses.map((entry) => Number(entry.value)), total = mass.reduce((x, y) => x + y, 0);
  const policy = mass.map((x) => (total > 0 ? x / total : 1 / mass.length));
  const gain = gains.map((entry) => Number(entry.value) || 0);
  const cost = costs.map((row, a) => row.map((entry, b) => (a === b ? 0 : Math.max(Number(entry.value) || 0, 0))));
  return { policy, gain, cost, radius: Number($("radius").value) };
}

function show() {
  const { policy, gain, cost, radius } = problem();
  const region = regionOf(policy, gain, cost, radius), { solution, next } = region;
  const kl = klUpdate([policy], [1], [gain], radius), value = (p) => p.reduce((sum, x, a) => sum + x * gain[a], 0);
  $("radius-told").textContent = told(radius);
  policy.forEach((x, a) => {
    const cells = $("state").tBodies[0].rows[a].cells;
    cells[2].textContent = told(x);
    cells[4].textContent = told(next[a]);
    cells[5].textContent = told(kl.next[0][a]);
  });
  const unreachable = letters.slice(0, policy.length).split("").filter((_, a) => policy[a] === 0);
  $("told").textContent = `λ* = ${told(solution.multiplier)}, split t* = ${told(1 - solution.share)}, spent ${told(solution.spent)} of ${told(radius)}. `
    + `The advantage gained is ${told(value(next) - value(policy))} by transport and ${told(value(kl.next[0]) - value(policy))} within KL ≤ ${told(radius)}. `
    + (solution.multiplier === 0 ? "The radius is large enough for everything that pays. " : "")
    + (unreachable.length ? `No KL region ever reaches ${unreachable.join(", ")}, which π gives no mass.` : "");
  drawFlow(policy, region);
  drawDual(region, radius);
}

function drawFlow(policy, { plan, next, solution }) {
  const svg = $("flow"), n = policy.length, x = (a) => 520 * (a + 0.5) / n, width = Math.min(60, 300 / n);
  svg.replaceChildren();
  const moves = [], tall = 64 / Math.max(...policy, ...next);
  shape(svg, "text", { x: 4, y: 14 }, "π before");
  shape(svg, "text", { x: 4, y: 314 }, "π after");
  for (let a = 0; a < n; a++) {
    const up = tall * policy[a], down = tall * next[a];
    shape(svg, "rect", { x: x(a) - width / 2, y: 88 - up, width, height: up, class: "bar-old" });
    shape(svg, "rect", { x: x(a) - width / 2, y: 232, width, height: down, class: "bar-ot" });
    shape(svg, "text", { x: x(a) - 4, y: 104 }, letters[a]);
    shape(svg, "text", { x: x(a) - 4, y: 226 }, letters[a]);
    for (let b = 0; b < n; b++) {
      if (plan[a][b] < 1e-9) continue;
      const split = solution.nearest[a] !== solution.farthest[a] && solution.share > 0 && solution.share < 1;
      const kind = a === b ? "stay" : split && b === solution.farthest[a] ? "far" : "ot";
      shape(svg, "path", {
        d: `M${x(a)} 110 C${x(a)} 160 ${x(b)} 160 ${x(b)} 210`, class: kind,
        "stroke-width": Math.max(1, 24 * plan[a][b]), "stroke-opacity": 0.8,
        ...(split && b === solution.nearest[a] ? { "stroke-dasharray": "7 5" } : {}),
      });
      if (a !== b) moves.push(`${told(plan[a][b])} from ${letters[a]} to ${letters[b]}`);
    }
  }
  svg.setAttribute("aria-label", moves.length ? `Mass moves: ${moves.join("; ")}` : "No mass moves");
}

function drawDual({ rows, solution }, radius) {
  const svg = $("dual"), points = solution.breakpoints.filter(Number.isFinite);
  const right = 1.3 * Math.max(...points, solution.multiplier, 0.5), steps = [0, right, ...points].sort((a, b) => a - b);
  const height = steps.map((at) => dualValue(rows, radius, at)), low = Math.min(...height), high = Math.max(...height);
  const x = (at) => 50 + 450 * at / right, y = (value) => 280 - 240 * (value - low) / (high - low || 1);
  svg.replaceChildren();
  shape(svg, "path", { d: "M50 20 V285 H505", class: "stay", "stroke-width": 1 });
  shape(svg, "text", { x: 490, y: 308 }, "λ");
  shape(svg, "text", { x: 56, y: 28 }, "G(λ)");
  shape(svg, "text", { x: 4, y: y(high) + 4 }, told(high));
  shape(svg, "text", { x: 4, y: y(low) + 4 }, told(low));
  points.forEach((at) => shape(svg, "path", { d: `M${x(at)} 281 v8`, class: "stay", "stroke-width": 1.5 }));
  shape(svg, "path", { d: "M" + steps.map((at, i) => `${x(at)} ${y(height[i])}`).join(" L"), class: "ot", "stroke-width": 2.5 });
  const at = solution.multiplier, best = dualValue(rows, radius, at);
  shape(svg, "path", { d: `M${x(at)} ${y(best)} V285`, class: "far", "stroke-width": 1.5, "stroke-dasharray": "4 3" });
  shape(svg, "circle", { cx: x(at), cy: y(best), r: 5, class: "far", "stroke-width": 3 });
  shape(svg, "text", { x: Math.min(x(at) + 8, 420), y: 308 }, `λ* = ${told(at)}`);
  svg.setAttribute("aria-label", `The dual, lowest at lambda ${told(at)} with the value ${told(best)}, breakpoints at ${points.map(told).join(", ") || "none"}`);
}

let cliff;

function restart() {
  cliff = { updates: 0, ot: cliffPolicies(), kl: cliffPolicies() };
  showCliff();
}

function improve(times) {
  const radius = Number($("cliff-radius").value);
  for (let i = 0; i < times; i++) {
    const ot = cliffEvaluate(cliff.ot), kl = cliffEvaluate(cliff.kl);
    cliff.ot = updatePolicy(cliff.ot, ot.occupancy, ot.q, COST, radius).next;
    cliff.kl = klUpdate(cliff.kl, kl.occupancy.map((w) => Math.max(w, 1e-12)), kl.q, radius).next;
    cliff.updates += 1;
  }
  showCliff();
}

function showCliff() {
  $("cliff-radius-told").textContent = told(Number($("cliff-radius").value));
  const names = { ot: "Transport", kl: "KL" }, lines = [];
  for (const kind of ["ot", "kl"]) {
    const value = cliffEvaluate(cliff[kind]).value[CLIFF.start], walk = cliffWalk(cliff[kind]);
    lines.push(`${names[kind]}: the start is worth ${told(value)}; the most probable actions `
      + (walk.arrived ? `reach the goal in ${walk.steps} steps with a return of ${told(walk.total)}.` : "do not reach the goal yet."));
    drawCliff($(`cliff-${kind}`), cliff[kind], lines[lines.length - 1]);
  }
  $("cliff-told").textContent = `After ${cliff.updates} update${cliff.updates === 1 ? "" : "s"}. ${lines.join(" ")}`;
}

function drawCliff(svg, policies, label) {
  svg.replaceChildren();
  policies.forEach((policy, s) => {
    const left = 41 * (s % 12), top = 43 * Math.floor(s / 12), x = left + 20, y = top + 21;
    const falls = s > CLIFF.start && s < CLIFF.goal;
    shape(svg, "rect", { x: left, y: top, width: 40, height: 42, class: falls ? "cell cliff" : "cell" });
    if (s === CLIFF.start) shape(svg, "text", { x: left + 3, y: top + 14 }, "S");
    if (s === CLIFF.goal) shape(svg, "text", { x: x - 4, y: y + 5 }, "G");
    if (falls || s === CLIFF.goal) return;
    policy.forEach((mass, a) => {
      if (mass < 0.01) return;
      const to = 17 * mass;
      shape(svg, "path", { d: `M${x} ${y} l${[0, to, 0, -to][a]} ${[-to, 0, to, 0][a]}`, class: "ot", "stroke-width": 3, "stroke-linecap": "round" });
    });
  });
  svg.setAttribute("aria-label", label);
}

$("count").addEventListener("change", build);
$("example").addEventListener("change", build);
$("cost").addEventListener("change", buildCosts);
$("radius").addEventListener("input", show);
$("step").addEventListener("click", () => improve(1));
$("ten").addEventListener("click", () => improve(10));
$("again").addEventListener("click", restart);
$("cliff-radius").addEventListener("input", showCliff);
build();
restart();
