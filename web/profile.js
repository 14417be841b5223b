// SPDX-License-Identifier: MIT
// The embedded profile (the JSON that src/format/html.c writes) as typed arrays. Indexes out of range become
// empty names or the root: a damaged profile is drawn as far as it goes.

// What a box or a row is about. Grouping "function": one entry per function; "line": one per frame.
// name: of the function; label: what a box says; place: file and line.
function makeEntry(name, file, line) {
  const known = visible(file).replace(/^[@=]/, "");
  const place = known && line > 0 ? `${known}:${line}` : known;
  const shown = visible(name) || "(no name)";
  return {name: shown, label: shown, place, kind: kindOf(name, file)};
}

function decodeEntries(data) {
  const text = (i) => data.strings[i] ?? "";
  const functions = [], frames = [];
  for (let i = 0; i + 2 < data.functions.length; i += 3)
    functions.push(makeEntry(text(data.functions[i]), text(data.functions[i + 1]), data.functions[i + 2]));
  for (let i = 0; i + 1 < data.frames.length; i += 2) {
    const at = 3 * data.frames[i];
    const entry = makeEntry(text(data.functions[at]), text(data.functions[at + 1]), data.frames[i + 1]);
    if (data.frames[i + 1] > 0) entry.label += `:${data.frames[i + 1]}`;
    frames.push(entry);
  }
  return {function: functions, line: frames};
}

// Parent and frame of each stack; [0] is the empty stack. A parent precedes its children.
function decodeStacks(data) {
  const count = 1 + (data.stacks.length >> 1), frameCount = data.frames.length >> 1;
  const parent = new Int32Array(count), frame = new Int32Array(count).fill(-1);
  for (let i = 1; i < count; i++) {
    const above = data.stacks[2 * i - 2], at = data.stacks[2 * i - 1];
    parent[i] = above < i ? above : 0;
    frame[i] = at < frameCount ? at : -1;
  }
  return {count, parent, frame};
}

// Per sample type: what each stack was seen with itself.
function decodeSamples(data, stackCount) {
  const types = data.types.length, step = 1 + types;
  const self = data.types.map(() => new Float64Array(stackCount));
  for (let i = 0; i + step <= data.samples.length; i += step) {
    const stack = data.samples[i] < stackCount ? data.samples[i] : 0;
    for (let t = 0; t < types; t++) self[t][stack] += data.samples[i + 1 + t];
  }
  return self;
}

// How many different stacks have samples: labels, which are not in the page, split some of them up.
function countStacks(data) {
  const step = 1 + data.types.length, seen = new Set();
  for (let i = 0; i + step <= data.samples.length; i += step) seen.add(data.samples[i]);
  return seen.size;
}

function decodeProfile(data) {
  if (data.format !== 1) throw new Error(`This page cannot read profiles of format ${String(data.format)}.`);
  const stacks = decodeStacks(data);
  const types = data.types.length > 0 ? data.types : [{type: "value", unit: "count"}];
  return {
    program: visible(data.program),
    timeNanos: data.time_nanos,
    durationNanos: data.duration_nanos,
    period: data.period,
    periodType: data.period_type,
    types,
    defaultType: Math.min(data.default_type, types.length - 1),
    losses: data.losses,
    comments: data.comments,
    entries: decodeEntries(data),
    frameFunction: Int32Array.from({length: data.frames.length >> 1}, (_, i) => data.frames[2 * i]),
    frameLine: Float64Array.from({length: data.frames.length >> 1}, (_, i) => data.frames[2 * i + 1]),
    stacks,
    self: data.types.length > 0 ? decodeSamples(data, stacks.count) : [new Float64Array(stacks.count)],
    sampledStacks: countStacks(data),
  };
}

function readEmbeddedProfile() {
  return decodeProfile(JSON.parse(document.getElementById("profile").textContent));
}
