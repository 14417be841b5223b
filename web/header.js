// SPDX-License-Identifier: MIT
// The top of the page: what was profiled, how much, and what was lost on the way.

// What each reason means to a reader; the words follow src/profile/loss.h.
const LOSSES = {
  overflow: (n) => [plural(n, "sample", "samples"), " found no room in the tables, kept under [overflow]"],
  truncated: (n) => [plural(n, "sample", "samples"), " with a stack too deep, cut at [truncated]"],
  unattributed: (n) => [plural(n, "sample", "samples"), " while no Lua ran, kept under [outside Lua]"],
  dropped: (n) => [plural(n, "sample", "samples"), " could not be recorded and " + (n === 1 ? "is" : "are") + " missing here"],
  rate_limited: (n) => [plural(n, "sample", "samples"), " skipped to keep to the rate limit, their weight added to the next"],
  gone: (n) => [plural(n, "sample", "samples"), " with a function that was collected before it could be read, shown as [gone]"],
};

function lossWords(reason, n) {
  const words = Object.hasOwn(LOSSES, reason) ? LOSSES[reason](n) : [formatCount(n), ` lost (${visible(reason)})`];
  return [element("b", "", words[0]), words[1]];
}

function showLosses(list, {losses, sampledStacks}) {
  const real = Object.entries(losses).filter(([, n]) => n > 0);
  list.replaceChildren(...real.map(([reason, n]) => element("li", "warning", ...lossWords(reason, n))));
  const remark = sampledStacks > 0 ? ": every sample is here, with its whole stack" : "";
  if (real.length === 0) list.append(element("li", "fine", "Nothing was lost" + remark));
}

function showComments({details, list}, comments) {
  const texts = comments.filter((text) => text.trim() !== "");
  details.hidden = texts.length === 0;
  details.querySelector("summary").textContent = plural(texts.length, "comment", "comments");
  list.replaceChildren(...texts.map((text) => element("li", "", shorten(visible(text), 2000))));
}

function sum(values) {
  return values.reduce((a, b) => a + b, 0);
}

// The number of samples when it was recorded as a value of its own, or else of different stacks. Memory has samples of its own,
// which no value counts.
function sampleFact(profile, {type: shown}) {
  const counted = /^(alloc|inuse|free|peak)_(objects|space)$/.test(shown)
    ? -1 : profile.types.findIndex((type) => type.type === "samples" && type.unit === "count");
  const records = plural(profile.sampledStacks, "distinct stack", "distinct stacks");
  if (counted < 0) return ["Stacks", formatCount(profile.sampledStacks), ""];
  return ["Samples", formatCount(sum(profile.self[counted])), records];
}

// [label, value, remark] of what is known.
function factsOf(profile, type, total) {
  const {unit} = profile.types[type], {periodType, durationNanos} = profile;
  const facts = [["Total", formatValue(total, unit), formatType(profile.types[type])]];
  if (durationNanos > 0) {
    const busy = unit === "nanoseconds" ? `${formatPercent(total, durationNanos)} ${formatType(profile.types[type])}` : "";
    facts.push(["Duration", formatTime(durationNanos), busy]);
  }
  facts.push(sampleFact(profile, profile.types[type]));
  const counted = periodType.type ? `of ${formatType(periodType)}` : "";
  if (profile.period > 0) facts.push(["Period", formatValue(profile.period, periodType.unit), counted]);
  const start = formatStart(profile.timeNanos);
  if (start) facts.push(["Started", start, ""]);
  return facts;
}

function showFacts(list, facts) {
  list.replaceChildren(...facts.map(([label, value, remark]) =>
    element("div", "", element("dt", "", label), element("dd", "", value), element("dd", "remark", remark))));
}

function showProgram(heading, program) {
  // from the first path on, which is the script's where an interpreter stands before it; each without its folders
  const short = program.replace(/^[^/]*?(?=\S*\/)/, "").replace(/\S*\/(?=[^/\s])/g, "");
  heading.textContent = shorten(short, 200) || "Lua program";
  heading.title = shorten(program, 1000);
  document.title = `${shorten(short, 80) || "Profile"} · LuaPulse`;
}

function showLegend(list, entries, dark) {
  const kinds = new Set(entries.map((entry) => entry.kind));
  const items = ["lua", "c", "pseudo"].filter((kind) => kinds.has(kind)).map((kind) => {
    const swatch = element("span", "swatch"), {hue, light, dark: night} = KINDS[kind];
    swatch.style.background = oklch(...(dark ? night : light), hue[0] + hue[1] / 2);
    return element("li", "", swatch, KINDS[kind].label);
  });
  list.replaceChildren(...items);
}
