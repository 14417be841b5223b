// SPDX-License-Identifier: MIT
// The flame graph on a canvas. The canvas is as large as its window and stays put while the space around it
// scrolls; only boxes in sight are visited, and a run of boxes too narrow to see is drawn as one.

const ROW = 22; // height of a level, px
const NARROW = 0.3; // boxes narrower than this are not drawn one by one, px
const LABEL_FROM = 28; // narrowest box with a label, px
const ZOOM_MS = 180;
const LABEL_FONT = "12px ui-sans-serif, system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";

function createFlame({canvas, scroller, space}, hooks) {
  const context = canvas.getContext("2d");
  const view = {
    layout: null,
    zoom: 0, // node that fills the width
    levels: 1, // rows the zoomed graph needs
    from: 0, to: 1, // the values in sight; differ from the zoom's while it moves
    up: false, // root at the bottom
    matches: null, // per entry 0 or 1, or null
    hovered: -1,
    selected: -1, // by keyboard
    width: 0, height: 0,
    theme: null,
    fills: [], labelWidths: [],
  };
  let drawing = 0, moving = 0;

  function redraw() {
    if (drawing === 0) drawing = requestAnimationFrame(() => { drawing = 0; draw(); });
  }

  function resize() {
    const scale = window.devicePixelRatio || 1;
    view.width = scroller.clientWidth;
    view.height = scroller.clientHeight;
    canvas.width = Math.max(1, Math.round(view.width * scale));
    canvas.height = Math.max(1, Math.round(view.height * scale));
    canvas.style.width = view.width + "px";
    canvas.style.height = view.height + "px";
    context.setTransform(scale, 0, 0, scale, 0, 0);
    draw();
  }

  // --- where things are ---

  function topOf(depth) {
    const content = view.levels * ROW;
    const y = view.up ? Math.max(content, view.height) - (depth + 1) * ROW : depth * ROW;
    return y - scroller.scrollTop;
  }

  function depthAt(y) {
    return view.up ? Math.ceil((topOf(0) + ROW - y) / ROW) - 1 : Math.floor((y - topOf(0)) / ROW);
  }

  function xOf(value) {
    return (value - view.from) / (view.to - view.from) * view.width;
  }

  function valueAt(x) {
    return view.from + x / view.width * (view.to - view.from);
  }

  // First place at or after `low` in the level whose box ends beyond the value.
  function findInRow(depth, value, low = view.layout.rowStart[depth]) {
    const {row, rowStart, to} = view.layout;
    let high = rowStart[depth + 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (to[row[middle]] > value) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  function nodeAt(x, y) {
    const depth = depthAt(y);
    if (!view.layout || depth < 0 || depth >= view.layout.levels || x < 0 || x > view.width) return -1;
    const place = findInRow(depth, valueAt(x));
    if (place >= view.layout.rowStart[depth + 1]) return -1;
    const node = view.layout.row[place];
    return view.layout.from[node] <= valueAt(x) ? node : -1;
  }

  // Calls box(node, x, y, width) for every box in sight, dust(x, y, width) for runs too narrow to tell apart.
  function visitLevel(depth, y, box, dust) {
    const {row, rowStart, from, to} = view.layout;
    const end = rowStart[depth + 1];
    let place = findInRow(depth, view.from);
    while (place < end && from[row[place]] < view.to) {
      const node = row[place];
      const x = Math.max(0, xOf(from[node]));
      const width = Math.min(view.width, xOf(to[node])) - x;
      if (width >= NARROW) {
        box(node, x, y, width);
        place++;
      } else {
        const next = findInRow(depth, valueAt(x + NARROW), place + 1);
        dust(x, y, Math.min(view.width, xOf(to[row[next - 1]])) - x);
        place = next;
      }
    }
  }

  function visitBoxes(box, dust) {
    if (!view.layout || !(view.to > view.from)) return;
    for (let depth = 0; depth < view.layout.levels; depth++) {
      const y = topOf(depth);
      if (y + ROW > 0 && y < view.height) visitLevel(depth, y, box, dust);
    }
  }

  // --- drawing ---

  function fillOf(node) {
    const key = view.layout.tree.key[node];
    if (key < 0) return view.theme.root;
    return view.fills[key] ??= colourOf(view.layout.tree.entries[key].name, view.layout.tree.entries[key].kind, view.theme.dark);
  }

  function nameOf(node) {
    const key = view.layout.tree.key[node];
    return key < 0 ? hooks.rootName() : view.layout.tree.entries[key].label;
  }

  function isMatched(node) {
    const key = view.layout.tree.key[node];
    return view.matches !== null && key >= 0 && view.matches[key] === 1;
  }

  // The name, cut to the room there is. Widths are measured once per entry and estimated for the cut.
  function labelOf(node, room) {
    const name = nameOf(node).slice(0, 240), key = view.layout.tree.key[node] + 1;
    const full = view.labelWidths[key] ??= context.measureText(name).width;
    if (full <= room) return name;
    const letters = Math.floor((room - 9) / full * name.length);
    return letters >= 2 ? name.slice(0, letters) + "…" : "";
  }

  function shape(x, y, width) {
    const gap = width > 3 ? 1 : 0;
    context.beginPath();
    if (width > 8) context.roundRect(x, y + 0.5, width - gap, ROW - 1, 3);
    else context.rect(x, y + 0.5, width - gap, ROW - 1);
  }

  function drawBox(node, x, y, width) {
    const {theme} = view, matched = isMatched(node);
    const above = view.layout.tree.depth[node] < view.layout.tree.depth[view.zoom];
    const faded = (view.matches !== null && !matched) || above;
    context.globalAlpha = faded ? (above ? 0.5 : 0.38) : 1;
    context.fillStyle = matched ? theme.match : fillOf(node);
    shape(x, y, width);
    context.fill();
    context.globalAlpha = faded ? 0.75 : 1;
    if (width >= LABEL_FROM) {
      context.fillStyle = matched ? theme.matchText : theme.boxText;
      const label = labelOf(node, width - 12);
      if (label) context.fillText(label, x + 6, y + ROW / 2 + 0.5);
    }
    context.globalAlpha = 1;
  }

  function drawDust(x, y, width) {
    context.fillStyle = view.theme.dust;
    context.fillRect(x, y + 0.5, Math.max(width, NARROW), ROW - 1);
  }

  function outline(node, colour, thick) {
    if (node < 0 || view.layout.rank[node] < 0) return;
    const x = Math.max(0, xOf(view.layout.from[node])), y = topOf(view.layout.tree.depth[node]);
    const width = Math.min(view.width, xOf(view.layout.to[node])) - x;
    if (!(width > 0)) return;
    context.strokeStyle = colour;
    context.lineWidth = thick;
    context.beginPath();
    context.roundRect(x + thick / 2, y + 0.5 + thick / 2, Math.max(1, width - 1 - thick), ROW - 1 - thick, 3);
    context.stroke();
  }

  function draw() {
    context.clearRect(0, 0, view.width, view.height);
    if (!view.layout) return;
    context.font = LABEL_FONT;
    context.textBaseline = "middle";
    visitBoxes(drawBox, drawDust);
    outline(view.hovered, view.theme.boxText, 1.5);
    if (document.activeElement === canvas) outline(view.selected, view.theme.accent, 2.5);
  }

  // --- moving ---

  function finishMove() {
    cancelAnimationFrame(moving);
    moving = 0;
    view.from = view.layout.from[view.zoom];
    view.to = view.layout.to[view.zoom];
    redraw();
  }

  function moveToZoom() {
    const start = {from: view.from, to: view.to, at: performance.now()};
    const goal = {from: view.layout.from[view.zoom], to: view.layout.to[view.zoom]};
    cancelAnimationFrame(moving);
    if (window.matchMedia("(prefers-reduced-motion: reduce)").matches) return finishMove();
    const step = (now) => {
      const done = Math.min(1, Math.max(0, now - start.at) / ZOOM_MS), eased = 1 - (1 - done) ** 3;
      if (done >= 1) return finishMove();
      view.from = start.from + (goal.from - start.from) * eased;
      view.to = start.to + (goal.to - start.to) * eased;
      draw();
      moving = requestAnimationFrame(step);
    };
    moving = requestAnimationFrame(step);
  }

  function fitSpace() {
    view.levels = view.layout.tree.depth[view.zoom] + levelsUnder(view.layout, view.zoom);
    space.style.height = view.levels * ROW + "px";
  }

  // Scrolls so that the level is in sight, with `margin` levels of its callers.
  function reveal(depth, margin) {
    const y = topOf(depth), callers = margin * ROW;
    const low = view.up ? 0 : callers, high = view.height - ROW - (view.up ? callers : 0);
    if (y < low) scroller.scrollTop += y - low;
    else if (y > high) scroller.scrollTop += y - high;
  }

  function zoomTo(node) {
    if (!view.layout || view.layout.rank[node] < 0) return;
    view.zoom = node;
    fitSpace();
    reveal(view.layout.tree.depth[node], 3);
    moveToZoom();
    hooks.onZoom(node);
  }

  // --- pointer and keys ---

  function hover(node, event) {
    if (node !== view.hovered) {
      view.hovered = node;
      canvas.style.cursor = node >= 0 ? "pointer" : "default";
      redraw();
    }
    hooks.onHover(node, event.clientX, event.clientY);
  }

  function pointed(event) {
    const at = canvas.getBoundingClientRect();
    return nodeAt(event.clientX - at.left, event.clientY - at.top);
  }

  function leave() {
    view.hovered = -1;
    redraw();
    hooks.onHover(-1, 0, 0);
  }

  function select(node) {
    if (node < 0 || view.layout.rank[node] < 0) return;
    view.selected = node;
    reveal(view.layout.tree.depth[node], 1);
    draw();
    const at = canvas.getBoundingClientRect();
    const middle = (Math.max(0, xOf(view.layout.from[node])) + Math.min(view.width, xOf(view.layout.to[node]))) / 2;
    hooks.onSelect(node, at.left + middle, at.top + topOf(view.layout.tree.depth[node]) + ROW);
  }

  function neighbour(node, step) {
    const {row, rowStart, placeInRow, tree, from, to} = view.layout;
    const place = placeInRow[node] + step, depth = tree.depth[node];
    if (place < rowStart[depth] || place >= rowStart[depth + 1]) return -1;
    const other = row[place];
    return from[other] < view.to && to[other] > view.from ? other : -1;
  }

  function firstCallee(node) {
    const {child, start} = view.layout;
    const inSight = (n) => view.layout.to[n] > view.from && view.layout.from[n] < view.to;
    for (let i = start[node]; i < start[node + 1]; i++)
      if (inSight(child[i])) return child[i];
    return -1;
  }

  function onKey(event) {
    if (!view.layout || event.ctrlKey || event.altKey || event.metaKey) return;
    const now = view.layout.rank[view.selected] >= 0 ? view.selected : view.zoom;
    const deeper = view.up ? "ArrowUp" : "ArrowDown", back = view.up ? "ArrowDown" : "ArrowUp";
    if (event.key === deeper) select(firstCallee(now));
    else if (event.key === back) select(view.layout.tree.parent[now]);
    else if (event.key === "ArrowLeft") select(neighbour(now, -1));
    else if (event.key === "ArrowRight") select(neighbour(now, 1));
    else if (event.key === "Enter" || event.key === " ") zoomTo(now);
    else return;
    event.preventDefault();
  }

  canvas.addEventListener("pointermove", (event) => hover(pointed(event), event));
  canvas.addEventListener("pointerleave", leave);
  canvas.addEventListener("click", (event) => {
    const node = pointed(event);
    if (node >= 0) { view.selected = node; zoomTo(node); }
  });
  canvas.addEventListener("keydown", onKey);
  canvas.addEventListener("focus", redraw);
  canvas.addEventListener("blur", () => { redraw(); hooks.onHover(-1, 0, 0); });
  scroller.addEventListener("scroll", () => { hooks.onHover(-1, 0, 0); view.hovered = -1; redraw(); }, {passive: true});
  new ResizeObserver(resize).observe(scroller);

  return {
    zoomTo,
    zoomed: () => view.zoom,
    settled: () => moving === 0 && drawing === 0,
    levels: () => view.layout.levels,
    setTheme(theme) {
      view.theme = theme;
      view.fills = [];
      redraw();
    },
    // A new tree: the zoom goes to the given node of it.
    setLayout(layout, zoom) {
      const sameEntries = view.layout?.tree.entries === layout.tree.entries;
      if (!sameEntries) { view.fills = []; view.labelWidths = []; }
      Object.assign(view, {layout, zoom: layout.rank[zoom] >= 0 ? zoom : 0, hovered: -1, selected: -1});
      fitSpace();
      finishMove();
    },
    setMatches(matches) {
      view.matches = matches;
      redraw();
    },
    setUp(up) {
      view.up = up;
      scroller.scrollTop = up ? scroller.scrollHeight : 0;
      redraw();
    },
    // For tests: the boxes in sight, in the page's coordinates.
    boxes() {
      const at = canvas.getBoundingClientRect(), list = [];
      visitBoxes((node, x, y, width) => list.push({
        node, name: nameOf(node), x: at.left + x, y: at.top + y, width, height: ROW,
        depth: view.layout.tree.depth[node], self: view.layout.self[node], total: view.layout.total[node],
        matched: isMatched(node), fill: fillOf(node),
      }), () => {});
      return list;
    },
  };
}
