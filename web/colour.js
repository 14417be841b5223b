// SPDX-License-Identifier: MIT
// Colours of boxes: the kind of a function gives the range of hues, its name the place in the range, so a
// function has the same colour in every profile. Lightness is even (OKLCH), so no box shouts and text is readable.

// hue: start and width of the range in degrees; light, dark: lightness and chroma by theme.
const KINDS = {
  lua: {label: "Lua", hue: [28, 66], light: [0.83, 0.105], dark: [0.5, 0.095]},
  c: {label: "C", hue: [205, 60], light: [0.83, 0.065], dark: [0.49, 0.07]},
  pseudo: {label: "Not a function", hue: [310, 24], light: [0.84, 0.055], dark: [0.46, 0.06]},
  root: {label: "All", hue: [260, 0], light: [0.9, 0.012], dark: [0.36, 0.015]},
};

function kindOf(name, file) {
  if (file === "[C]" || file === "=[C]" || name === "[C]" || name.endsWith(" [C]")) return "c";
  if (file === "" && /^\[[^\]]*\]$/.test(name)) return "pseudo";
  return "lua";
}

// FNV-1a, finished with a mix so that names that differ in the last letter differ in colour.
function hashText(text) {
  let h = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 0x01000193);
  h = Math.imul(h ^ (h >>> 15), 0x2c1b3c6d);
  h = Math.imul(h ^ (h >>> 12), 0x297a2d39);
  return (h ^ (h >>> 15)) >>> 0;
}

function gamma(linear) {
  const c = Math.min(1, Math.max(0, linear));
  return Math.round(255 * (c <= 0.0031308 ? 12.92 * c : 1.055 * c ** (1 / 2.4) - 0.055));
}

// Björn Ottosson's OKLab matrices.
function oklch(lightness, chroma, hue) {
  const a = chroma * Math.cos(hue * Math.PI / 180), b = chroma * Math.sin(hue * Math.PI / 180);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const red = gamma(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s);
  const green = gamma(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s);
  const blue = gamma(-0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s);
  return `rgb(${red} ${green} ${blue})`;
}

function colourOf(name, kind, dark) {
  const {hue, light, dark: night} = KINDS[kind];
  const [lightness, chroma] = dark ? night : light;
  const h = hashText(name);
  const turn = (h & 0xffff) / 0xffff, lift = ((h >>> 16) & 0xff) / 0xff - 0.5;
  return oklch(lightness + lift * 0.05, chroma, hue[0] + turn * hue[1]);
}
