// SPDX-License-Identifier: MIT
// The page: holds what is shown (type, grouping, zoom, search) and keeps graph, table and header in step.

const $ = (id) => document.getElementById(id);

function startPage(profile) {
  const state = {
    type: profile.defaultType,
    grouping: "function",
    up: false,
    layout: null,
    picked: -1, // entry picked in the table, -1 when none
    flameHeight: 0, // set by the reader's hand, 0: by the graph
  };
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const tooltip = createTooltip($("tooltip"));
  const flame = createFlame({canvas: $("canvas"), scroller: $("flame-scroll"), space: $("flame-space")},
    {rootName, onZoom: showCrumbs, onHover: explain, onSelect: speak});
  const table = createTable({table: $("table"), scroller: $("table-scroll"), count: $("top-count")},
    {onPick: pick, fill: fillOfEntry});
  let explained = -1;

  function rootName() {
    return "All " + formatType(profile.types[state.type]);
  }

  function unit() {
    return profile.types[state.type].unit;
  }

  function fillOfEntry(entry) {
    return colourOf(entry.name, entry.kind, dark.matches);
  }

  function nameOf(node) {
    const key = state.layout.tree.key[node];
    return key < 0 ? rootName() : state.layout.tree.entries[key].label;
  }

  // --- showing ---

  function readTheme() {
    const style = getComputedStyle(document.documentElement), value = (name) => style.getPropertyValue(name).trim();
    return {
      dark: dark.matches, root: colourOf("", "root", dark.matches), boxText: value("--box-text"), match: value("--match"),
      matchText: value("--match-text"), dust: value("--dust"), accent: value("--accent"),
    };
  }

  function showTheme() {
    flame.setTheme(readTheme());
    showLegend($("legend"), profile.entries.function, dark.matches);
    if (state.layout) table.redraw();
  }

  function showTable() {
    const {flat, cum} = sumEntries(state.layout), rows = [];
    state.layout.tree.entries.forEach((entry, key) => {
      if (flat[key] !== 0 || cum[key] !== 0) rows.push({key, entry, flat: flat[key], cum: cum[key]});
    });
    $("top-title").textContent = state.grouping === "line" ? "Lines" : "Functions";
    table.setRows(rows, state.layout.total[0], unit());
  }

  function showEmpty() {
    const empty = !(state.layout.total[0] > 0);
    const others = profile.types.length > 1 && profile.self.some((values) => sum(values) > 0);
    $("empty").hidden = !empty;
    $("empty").textContent = others ? `No ${formatType(profile.types[state.type])} in this profile; other values were recorded.`
                                    : "No samples were recorded.";
  }

  // Type or grouping changed. The zoom stays where the same call path exists.
  function showProfile() {
    const sameTree = state.layout?.tree.grouping === state.grouping;
    const zoom = sameTree ? flame.zoomed() : 0;
    if (!sameTree) state.picked = -1;
    state.layout = layOut(profile, state.grouping, state.type);
    showFacts($("facts"), factsOf(profile, state.type, state.layout.total[0]));
    showEmpty();
    flame.setLayout(state.layout, zoom);
    fitFlame();
    if (state.up) flame.setUp(true);
    showTable();
    showMatches();
    showCrumbs(flame.zoomed());
  }

  function crumb(node, current) {
    const button = element("button", "crumb", shorten(nameOf(node), 60));
    button.type = "button";
    button.title = shorten(nameOf(node), 400);
    if (current) button.setAttribute("aria-current", "true");
    else button.addEventListener("click", () => flame.zoomTo(node));
    return button;
  }

  function showCrumbs(node) {
    const path = [0, ...pathTo(state.layout.tree, node)], last = path.length - 1;
    const kept = path.length <= 6 ? path : [0, -1, ...path.slice(-4)];
    const nav = $("crumbs");
    nav.replaceChildren();
    kept.forEach((at, i) => {
      if (i > 0) nav.append(element("span", "between", "›"));
      nav.append(at < 0 ? element("span", "between", `… ${path.length - 5} more …`) : crumb(at, at === path[last]));
    });
    const {total} = state.layout, share = node > 0 ? ` · ${formatPercent(total[node], total[0])}` : "";
    nav.append(element("span", "weight", formatValue(total[node], unit()) + share));
    if (node > 0) {
      const reset = element("button", "reset", "Reset zoom ", element("kbd", "", "Esc"));
      reset.type = "button";
      reset.id = "reset";
      reset.addEventListener("click", () => flame.zoomTo(0));
      nav.append(reset);
    } else if (state.layout.total[0] > 0) nav.append(element("span", "hint", "Click a box to zoom in"));
    tooltip.hide();
  }

  function explain(node, x, y) {
    if (node < 0) {
      tooltip.hide();
      explained = -1;
    } else if (node === explained && tooltip.shown()) {
      tooltip.move(x, y);
    } else {
      const key = state.layout.tree.key[node];
      const fill = key < 0 ? colourOf("", "root", dark.matches) : fillOfEntry(state.layout.tree.entries[key]);
      tooltip.show(describeNode(profile, state.layout, node, {rootName: rootName(), unit: unit(), fill}), x, y);
      explained = node;
    }
  }

  function speak(node, x, y) {
    explain(node, x, y);
    const {total} = state.layout;
    const value = formatValue(total[node], unit()), share = formatPercent(total[node], total[0]);
    $("spoken").textContent = `${shorten(nameOf(node), 120)}, ${value}, ${share}`;
  }

  // --- search ---

  function matchEntries(matcher) {
    const {entries} = state.layout.tree, matches = new Uint8Array(entries.length);
    entries.forEach((entry, key) => { matches[key] = matcher(entry.name) || matcher(entry.place) ? 1 : 0; });
    return matches;
  }

  // Per entry 0 or 1; null when nothing is searched for. Throws on a bad expression.
  function wantedEntries() {
    if (state.picked >= 0) {
      const matches = new Uint8Array(state.layout.tree.entries.length);
      matches[state.picked] = 1;
      return matches;
    }
    const matcher = makeMatcher($("search").value);
    return matcher && matchEntries(matcher);
  }

  function showMatches() {
    const output = $("matched"), chip = $("picked");
    let matches = null;
    $("search").removeAttribute("aria-invalid");
    chip.hidden = state.picked < 0;
    chip.textContent = state.picked < 0 ? "" : shorten(state.layout.tree.entries[state.picked].label, 40);
    try {
      matches = wantedEntries();
      output.textContent = matches ? `matched ${formatPercent(matchedTotal(state.layout, matches), state.layout.total[0])}` : "";
    } catch {
      output.textContent = "not a regular expression";
      $("search").setAttribute("aria-invalid", "true");
    }
    flame.setMatches(matches);
  }

  function pick(key) {
    state.picked = state.picked === key ? -1 : key;
    if (state.picked >= 0) $("search").value = "";
    table.setPicked(state.picked);
    showMatches();
  }

  function clearSearch() {
    $("search").value = "";
    pick(-1);
  }

  // --- controls ---

  function fillTypes() {
    profile.types.forEach((type, i) => {
      const option = element("option", "", shorten(formatType(type), 60));
      option.value = String(i);
      $("type").append(option);
    });
    $("type").value = String(state.type);
    $("type").disabled = profile.types.length < 2;
  }

  function setType(type) {
    state.type = type;
    $("type").value = String(type);
    showProfile();
  }

  function setGrouping(grouping) {
    state.grouping = grouping;
    for (const input of document.getElementsByName("grouping")) input.checked = input.value === grouping;
    showProfile();
  }

  function setDirection(up) {
    state.up = up;
    for (const input of document.getElementsByName("direction")) input.checked = input.value === (up ? "up" : "down");
    flame.setUp(up);
  }

  function setFilter() {
    try {
      table.setFilter(makeMatcher($("filter").value));
      $("filter").removeAttribute("aria-invalid");
    } catch {
      $("filter").setAttribute("aria-invalid", "true");
    }
  }

  function goBack() {
    if ($("search").value !== "" || state.picked >= 0) clearSearch();
    else flame.zoomTo(0);
  }

  const keys = {
    "/": () => $("search").focus(),
    "0": () => flame.zoomTo(0),
    f: () => setDirection(!state.up),
    l: () => setGrouping(state.grouping === "line" ? "function" : "line"),
    t: () => setType((state.type + 1) % profile.types.length),
    "?": () => $("help").showModal(),
  };

  function onKey(event) {
    if (event.ctrlKey || event.altKey || event.metaKey || $("help").open) return;
    const typing = event.target.matches?.("input[type=search], select");
    if (event.key === "Escape" && event.target === $("filter")) {
      $("filter").value = "";
      setFilter();
    } else if (event.key === "Escape") goBack();
    else if (!typing && Object.hasOwn(keys, event.key)) keys[event.key]();
    else return;
    event.preventDefault();
  }

  // --- heights ---

  // The graph takes what it needs, up to 62 % of the room, until the reader decides.
  function fitFlame() {
    const room = $("panes").clientHeight;
    const wanted = state.flameHeight || Math.min(room * 0.62, flame.levels() * ROW + $("crumbs").offsetHeight + 14);
    $("flame").style.height = Math.round(Math.min(Math.max(wanted, 140), Math.max(140, room - 120))) + "px";
  }

  function setFlameHeight(height) {
    state.flameHeight = Math.max(140, height);
    fitFlame();
  }

  function onSplitterDrag(event) {
    const splitter = $("splitter"), offset = event.clientY - $("flame").offsetHeight;
    const drag = (move) => setFlameHeight(move.clientY - offset);
    splitter.setPointerCapture(event.pointerId);
    splitter.addEventListener("pointermove", drag);
    splitter.addEventListener("lostpointercapture", () => splitter.removeEventListener("pointermove", drag), {once: true});
  }

  function onSplitterKey(event) {
    const step = {ArrowUp: -ROW, ArrowDown: ROW}[event.key];
    if (step === undefined) return;
    setFlameHeight($("flame").offsetHeight + step);
    event.preventDefault();
  }

  function listen() {
    $("type").addEventListener("change", () => setType(Number($("type").value)));
    $("grouping").addEventListener("change", (event) => setGrouping(event.target.value));
    $("direction").addEventListener("change", (event) => setDirection(event.target.value === "up"));
    $("search").addEventListener("input", () => { state.picked = -1; table.setPicked(-1); showMatches(); });
    $("filter").addEventListener("input", setFilter);
    $("picked").addEventListener("click", () => pick(-1));
    $("help-open").addEventListener("click", () => $("help").showModal());
    $("splitter").addEventListener("pointerdown", onSplitterDrag);
    $("splitter").addEventListener("keydown", onSplitterKey);
    $("splitter").addEventListener("dblclick", () => { state.flameHeight = 0; fitFlame(); });
    document.addEventListener("keydown", onKey);
    window.addEventListener("resize", fitFlame);
    dark.addEventListener("change", showTheme);
  }

  showProgram($("program"), profile.program);
  showLosses($("loss-list"), profile);
  showComments({details: $("comments"), list: $("comment-list")}, profile.comments);
  fillTypes();
  listen();
  showTheme();
  showProfile();

  // Read-only, for tests.
  window.luapulse = Object.freeze({
    boxes: () => flame.boxes(),
    settled: () => flame.settled(),
    nodes: () => state.layout.tree.count,
    levels: () => state.layout.levels,
  });
}

function showFailure(error) {
  const notice = $("empty");
  notice.hidden = false;
  notice.textContent = `The profile in this page cannot be shown: ${String(error.message)}`;
}

try {
  startPage(readEmbeddedProfile());
} catch (error) {
  showFailure(error);
  throw error;
}
