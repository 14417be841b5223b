// SPDX-License-Identifier: MIT
// Words and numbers for people: units, percentages, names made safe to look at. Pure functions.

const NBSP = "\u00a0";
const NANOS = {nanoseconds: 1, microseconds: 1e3, milliseconds: 1e6, seconds: 1e9, ns: 1, us: 1e3, ms: 1e6, s: 1e9};

function formatCount(n) {
  return Math.round(n).toLocaleString("en-US");
}

// Three significant digits without an exponent: 1.25, 12.5, 125. Zeros at the end stay when values stand in a column.
function formatShort(n, aligned) {
  const size = Math.abs(n);
  const digits = size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  const least = aligned && size > 0 ? digits : 0;
  return Number(n.toFixed(digits)).toLocaleString("en-US", {minimumFractionDigits: least, maximumFractionDigits: 2});
}

function formatScaled(n, aligned, steps) {
  let [, word] = steps[0];
  let by = 1;
  for (const [from, name] of steps)
    if (Math.abs(n) >= from * 0.9995) [by, word] = [from, name];
  return formatShort(n / by, aligned && by > 1) + NBSP + word;
}

function formatTime(nanos, aligned) {
  const seconds = Math.round(Math.abs(nanos) / 1e9);
  const sign = nanos < 0 ? "-" : "";
  const pair = (large, word, small, smaller) =>
    `${sign}${large}${NBSP}${word}` + (small > 0 || aligned ? ` ${small}${NBSP}${smaller}` : "");
  if (seconds >= 7200) return pair(Math.floor(seconds / 3600), "h", Math.floor(seconds % 3600 / 60), "min");
  if (seconds >= 120) return pair(Math.floor(seconds / 60), "min", seconds % 60, "s");
  return formatScaled(nanos, aligned, [[1, "ns"], [1e3, "µs"], [1e6, "ms"], [1e9, "s"]]);
}

function formatBytes(n, aligned) {
  return formatScaled(n, aligned, [[1, "B"], [2 ** 10, "KiB"], [2 ** 20, "MiB"], [2 ** 30, "GiB"], [2 ** 40, "TiB"]]);
}

function formatValue(n, unit, aligned = false) {
  if (Object.hasOwn(NANOS, unit)) return n === 0 ? "0" + NBSP + "s" : formatTime(n * NANOS[unit], aligned);
  if (unit === "bytes") return formatBytes(n, aligned);
  if (unit === "count" || unit === "") return formatCount(n);
  return formatCount(n) + NBSP + visible(unit);
}

function formatPercent(part, whole) {
  if (!(Math.abs(whole) > 0)) return "–";
  const percent = 100 * part / whole;
  const size = Math.abs(percent);
  if (size > 0 && size < 0.01) return (percent < 0 ? "> -" : "< ") + "0.01" + NBSP + "%";
  const digits = size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  return percent.toFixed(size === 0 ? 0 : digits) + NBSP + "%";
}

function formatStart(timeNanos) {
  const date = new Date(timeNanos / 1e6);
  if (!(timeNanos > 0) || Number.isNaN(date.getTime())) return "";
  return date.toLocaleString(undefined, {dateStyle: "medium", timeStyle: "medium"});
}

// "alloc_space" reads better as "alloc space"; the unit is told by the values.
function formatType(type) {
  return visible(type.type.replaceAll("_", " ")) || "value";
}

// Control characters and those that turn the direction of text are shown instead of obeyed.
function visible(text) {
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, (c) => {
    const code = c.charCodeAt(0);
    if (code < 0x20) return String.fromCharCode(0x2400 + code);
    if (code === 0x7f) return "\u2421";
    return "\\u" + code.toString(16).padStart(4, "0");
  });
}

function shorten(text, limit) {
  if (text.length <= limit) return text;
  return `${text.slice(0, limit)}… (${formatCount(text.length)} characters)`;
}

function plural(n, one, many) {
  return `${formatCount(n)} ${n === 1 ? one : many}`;
}

// A substring, or a regular expression between slashes; null for an empty text. Throws on a bad expression.
function makeMatcher(text) {
  if (text.trim() === "") return null;
  const regex = /^\/(.+)\/(i?)$/.exec(text);
  if (regex) {
    const pattern = new RegExp(regex[1], regex[2]);
    return (candidate) => pattern.test(candidate);
  }
  const wanted = text.toLowerCase();
  return (candidate) => candidate.toLowerCase().includes(wanted);
}

// An element with classes and text; children are elements or strings. Data only ever becomes text nodes.
function element(tag, className, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children);
  return made;
}
