// SPDX-License-Identifier: MIT
// The call tree: stacks merged by function or by line, weighed by one sample type, laid out in rows.
// Flat arrays and no recursion: 100,000 nodes and 1,024 levels are ordinary.

// Node 0 is the root; a parent precedes its children. key: index of the entry, -1 for the root.
function buildTree(profile, grouping) {
  const {count, parent, frame} = profile.stacks;
  const entries = profile.entries[grouping];
  const nodeOf = new Int32Array(count), nextStack = new Int32Array(count).fill(-1);
  const nodeParent = [-1], nodeKey = [-1], nodeDepth = [0], firstStack = [0];
  const known = new Map();
  for (let i = 1; i < count; i++) {
    const above = nodeOf[parent[i]];
    let key = frame[i];
    if (key >= 0 && grouping === "function") key = profile.frameFunction[key];
    if (!(key >= 0 && key < entries.length)) {
      nodeOf[i] = above; // a damaged frame: its weight stays with the caller
      continue;
    }
    const id = above * entries.length + key;
    let node = known.get(id);
    if (node === undefined) {
      node = nodeParent.length;
      known.set(id, node);
      nodeParent.push(above);
      nodeKey.push(key);
      nodeDepth.push(nodeDepth[above] + 1);
      firstStack.push(-1);
    }
    nodeOf[i] = node;
    nextStack[i] = firstStack[node];
    firstStack[node] = i;
  }
  return {
    entries,
    grouping,
    count: nodeParent.length,
    parent: Int32Array.from(nodeParent),
    key: Int32Array.from(nodeKey),
    depth: Int32Array.from(nodeDepth),
    nodeOf,
    firstStack: Int32Array.from(firstStack), // a list of the stacks that are this node …
    nextStack, // … each with the next one, ended by -1
  };
}

// Adds each element to its parent, last first: self becomes total.
function accumulate(self, parent) {
  const total = Float64Array.from(self);
  for (let i = total.length - 1; i > 0; i--) total[parent[i]] += total[i];
  return total;
}

function weighTree(profile, tree, type) {
  const stackSelf = profile.self[type];
  const self = new Float64Array(tree.count);
  for (let i = 0; i < stackSelf.length; i++) self[tree.nodeOf[i]] += stackSelf[i];
  return {self, total: accumulate(self, tree.parent), stackTotal: accumulate(stackSelf, profile.stacks.parent)};
}

// The children of every node that weigh something, heaviest first: node n has child[start[n] … start[n + 1]).
function sortChildren(tree, total) {
  const child = [];
  for (let i = 1; i < tree.count; i++)
    if (total[i] > 0) child.push(i);
  child.sort((a, b) => tree.parent[a] - tree.parent[b] || total[b] - total[a] || tree.key[a] - tree.key[b]);
  const start = new Int32Array(tree.count + 1);
  for (const node of child) start[tree.parent[node] + 1]++;
  for (let i = 0; i < tree.count; i++) start[i + 1] += start[i];
  return {child: Int32Array.from(child), start};
}

// Places every node on the axis of values: it spans [from, to). Children stand in their parent, from its left.
// order: the nodes, callers first; until[n]: the place in order just after n's subtree; rank: place of n in it.
function placeNodes(tree, total, {child, start}) {
  const from = new Float64Array(tree.count), to = new Float64Array(tree.count);
  const rank = new Int32Array(tree.count).fill(-1), until = new Int32Array(tree.count);
  const order = [], open = [0];
  to[0] = Math.max(0, total[0]);
  while (open.length > 0) {
    const node = open.pop();
    if (node < 0) { // the way back up
      until[~node] = order.length;
      continue;
    }
    rank[node] = order.length;
    order.push(node);
    open.push(~node);
    let x = from[node];
    for (let i = start[node]; i < start[node + 1]; i++) {
      from[child[i]] = x;
      x = to[child[i]] = Math.min(to[node], x + total[child[i]]);
    }
    for (let i = start[node + 1] - 1; i >= start[node]; i--) open.push(child[i]);
  }
  return {from, to, order: Int32Array.from(order), rank, until};
}

// The nodes of each level from left to right: level d has row[rowStart[d] … rowStart[d + 1]).
function splitRows(tree, order) {
  let levels = 0;
  for (const node of order) levels = Math.max(levels, tree.depth[node] + 1);
  const rowStart = new Int32Array(levels + 1);
  for (const node of order) rowStart[tree.depth[node] + 1]++;
  for (let d = 0; d < levels; d++) rowStart[d + 1] += rowStart[d];
  const row = new Int32Array(order.length), at = rowStart.slice(), placeInRow = new Int32Array(tree.count);
  for (const node of order) {
    placeInRow[node] = at[tree.depth[node]];
    row[at[tree.depth[node]]++] = node;
  }
  return {levels, row, rowStart, placeInRow};
}

// Everything the graph and the table need, for one grouping and one sample type.
function layOut(profile, grouping, type) {
  const tree = buildTree(profile, grouping);
  const weight = weighTree(profile, tree, type);
  const children = sortChildren(tree, weight.total);
  const places = placeNodes(tree, weight.total, children);
  return {tree, ...weight, ...children, ...places, ...splitRows(tree, places.order)};
}

// The levels below a node, itself included.
function levelsUnder(layout, node) {
  let deepest = layout.tree.depth[node];
  for (let i = layout.rank[node]; i < layout.until[node]; i++)
    deepest = Math.max(deepest, layout.tree.depth[layout.order[i]]);
  return deepest - layout.tree.depth[node] + 1;
}

// From the root's child down to the node itself; empty for the root.
function pathTo(tree, node) {
  const path = [];
  for (let at = node; at > 0; at = tree.parent[at]) path.push(at);
  return path.reverse();
}

// Flat and cumulative value of every entry. A function that calls itself counts once per call path.
function sumEntries(layout) {
  const {tree, self, total} = layout;
  const flat = new Float64Array(tree.entries.length), cum = new Float64Array(tree.entries.length);
  const open = new Int32Array(tree.entries.length), path = [];
  for (const node of layout.order) {
    while (path.length > 0 && layout.until[path[path.length - 1]] <= layout.rank[node]) open[tree.key[path.pop()]]--;
    const key = tree.key[node];
    if (key < 0) continue;
    flat[key] += self[node];
    if (open[key]++ === 0) cum[key] += total[node];
    path.push(node);
  }
  return {flat, cum};
}

// What the boxes of matching entries cover together; a box inside a matching box is not counted again.
function matchedTotal(layout, matches) {
  let sum = 0;
  for (let i = 0; i < layout.order.length;) {
    const node = layout.order[i], key = layout.tree.key[node];
    const hit = key >= 0 && matches[key] === 1;
    if (hit) sum += layout.total[node];
    i = hit ? layout.until[node] : i + 1;
  }
  return sum;
}

// The lines that ran in a node and what each weighs, heaviest first.
function linesOf(profile, layout, node) {
  const weights = new Map();
  for (let i = layout.tree.firstStack[node]; i > 0; i = layout.tree.nextStack[i]) {
    const line = profile.frameLine[profile.stacks.frame[i]];
    if (line > 0) weights.set(line, (weights.get(line) ?? 0) + layout.stackTotal[i]);
  }
  return [...weights].sort((a, b) => b[1] - a[1]);
}
