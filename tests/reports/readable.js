// What an accessibility check asks of a page: contrast of texts as WCAG 2 counts it, names, ids.
() => {
  const channel = (c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const parse = (text) => {
    const n = text.match(/[\d.]+/g)?.map(Number) ?? [0, 0, 0, 0];
    return n.length > 3 && n[3] === 0 ? null : n;
  };
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const colour = parse(getComputedStyle(node).backgroundColor);
      if (colour) return colour;
    }
    return [255, 255, 255];
  };
  const says = (node) => [...node.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
  const contrasts = [];
  for (const node of document.querySelectorAll("body *")) {
    if (node.closest("script, style, :disabled") || !says(node) || !node.getClientRects().length) continue;
    const style = getComputedStyle(node), ink = parse(node instanceof SVGElement ? style.fill : style.color);
    const [a, b] = [light(ink ?? behind(node)), light(behind(node))];
    contrasts.push([`${node.tagName} ${node.textContent.slice(0, 30)}`, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)]);
  }
  const named = (node) => node.labels?.length || node.getAttribute("aria-label") || node.textContent.trim()
    || (node instanceof SVGElement && node.closest("button, a, label, [aria-hidden=true], [style*='display: none']"));
  const nameless = [...document.querySelectorAll("input:not([type=hidden]), select, button, a, svg, summary, [role=region]")]
    .filter((node) => !named(node)).map((node) => node.outerHTML.slice(0, 80));
  const ids = [...document.querySelectorAll("[id]")].map((node) => node.id);
  const levels = [...document.querySelectorAll("h1, h2, h3, h4")].map((node) => Number(node.tagName[1]));
  return {
    texts: contrasts.length, faint: contrasts.filter(([, ratio]) => ratio < 4.5), nameless,
    doubled: ids.filter((id, i) => ids.indexOf(id) !== i),
    jumps: levels.filter((level, i) => level > (levels[i - 1] ?? 0) + 1),
    language: document.documentElement.lang,
  };
}
