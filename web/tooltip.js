// SPDX-License-Identifier: MIT
// The box that says what a box is.

function createTooltip(box) {
  function place(x, y) {
    const margin = 12, {width, height} = box.getBoundingClientRect();
    const left = Math.min(x + margin, window.innerWidth - width - margin);
    const below = y + margin + height <= window.innerHeight;
    box.style.left = Math.max(margin, left) + "px";
    box.style.top = Math.max(margin, below ? y + margin : y - height - margin) + "px";
  }

  return {
    show(content, x, y) {
      box.replaceChildren(...content);
      box.hidden = false;
      place(x, y);
    },
    move: place,
    hide() {
      box.hidden = true;
    },
    shown: () => !box.hidden,
  };
}

function tooltipRow(label, value, part, whole) {
  return element("tr", "", element("th", "", label), element("td", "", value), element("td", "", formatPercent(part, whole)));
}

function tooltipLines(profile, layout, node, whole) {
  const lines = linesOf(profile, layout, node);
  if (layout.tree.grouping !== "function" || lines.length === 0) return [];
  const list = element("p", "lines", lines.length === 1 ? "On line " : "Mostly on line ");
  lines.slice(0, 4).forEach(([line, weight], i) => {
    list.append(i > 0 ? ", " : "", element("b", "", String(line)), ` ${formatPercent(weight, whole)}`);
  });
  if (lines.length > 4) list.append(` and ${plural(lines.length - 4, "other", "others")}`);
  return [list];
}

// What the tooltip says about a node: name, place, self and total value with their share of everything.
function describeNode(profile, layout, node, {rootName, unit, fill}) {
  const key = layout.tree.key[node], entry = key < 0 ? null : layout.tree.entries[key];
  const whole = layout.total[0], parent = Math.max(0, layout.tree.parent[node]);
  const swatch = element("span", "swatch");
  swatch.style.background = fill;
  const table = element("table", "",
    tooltipRow("Total", formatValue(layout.total[node], unit, true), layout.total[node], whole),
    tooltipRow("Self", formatValue(layout.self[node], unit, true), layout.self[node], whole));
  if (layout.tree.depth[node] > 1) table.append(element("tr", "", element("th", "", "Of its caller"), element("td", ""),
    element("td", "", formatPercent(layout.total[node], layout.total[parent]))));
  return [
    element("p", "name", swatch, shorten(entry ? entry.name : rootName, 400)),
    element("p", "place", entry ? shorten(entry.place, 300) || KINDS[entry.kind].label : "Everything recorded"),
    table,
    ...(entry ? tooltipLines(profile, layout, node, whole) : []),
  ];
}
