// SPDX-License-Identifier: MIT
// The table of functions (or lines): sortable, filterable. Only the rows in sight are in the page.

const ROW_HEIGHT = 30; // px, as in viewer.css
const COLUMNS = [
  {id: "name", label: "Function", text: true},
  {id: "place", label: "Location", text: true},
  {id: "flat", label: "Flat", hint: "What it spent itself"},
  {id: "flat%", label: "Flat %", by: "flat", hint: "Flat, of the total"},
  {id: "cum", label: "Cum", hint: "Cumulative: itself and everything it called"},
  {id: "cum%", label: "Cum %", by: "cum", hint: "Cumulative, of the total"},
];

function compareRows(column, down) {
  const by = column.by ?? column.id, sign = down ? -1 : 1;
  const words = new Intl.Collator("en", {numeric: true});
  if (column.text) return (a, b) => sign * words.compare(a.entry[by], b.entry[by]) || b.cum - a.cum;
  return (a, b) => sign * (a[by] - b[by]) || b.cum - a.cum || a.key - b.key;
}

function createTable({table, scroller, count}, hooks) {
  const head = table.tHead.rows[0], body = table.tBodies[0];
  const state = {rows: [], shown: [], total: 0, unit: "", most: {flat: 0, cum: 0}, sort: COLUMNS[2], down: true, matcher: null, picked: -1};

  function makeHead() {
    for (const column of COLUMNS) {
      const button = element("button", "", column.label);
      button.type = "button";
      button.title = column.hint ?? "";
      button.addEventListener("click", () => sortBy(column));
      const cell = element("th", column.text ? "" : "number", button);
      cell.scope = "col";
      cell.dataset.column = column.id;
      head.append(cell);
    }
  }

  function sortBy(column) {
    state.down = state.sort === column ? !state.down : !column.text;
    state.sort = column;
    refresh();
  }

  function refresh() {
    const {rows, matcher} = state;
    state.shown = matcher ? rows.filter((row) => matcher(row.entry.name) || matcher(row.entry.place)) : rows.slice();
    state.shown.sort(compareRows(state.sort, state.down));
    for (const cell of head.cells) {
      const active = cell.dataset.column === state.sort.id;
      if (active) cell.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    }
    count.textContent = matcher ? `${formatCount(state.shown.length)} of ${formatCount(rows.length)}` : formatCount(rows.length);
    scroller.scrollTop = 0;
    render();
  }

  // The bar is as long as the part is of the largest in its column.
  function shareCell(part, most) {
    const cell = element("td", "number share", element("span", "", formatPercent(part, state.total)));
    cell.style.setProperty("--share-of", String(Math.min(1, Math.max(0, part / most || 0))));
    return cell;
  }

  function makeRow(row, index) {
    const swatch = element("span", "swatch"), name = element("button", "name", shorten(row.entry.name, 300));
    swatch.style.background = hooks.fill(row.entry);
    name.type = "button";
    name.title = shorten(row.entry.name, 1000);
    name.setAttribute("aria-pressed", String(row.key === state.picked));
    const place = element("td", "place", shorten(row.entry.place, 300) || KINDS[row.entry.kind].label);
    place.title = shorten(row.entry.place, 1000);
    const made = element("tr", row.key === state.picked ? "picked" : "",
      element("td", "", element("div", "", swatch, name)), place,
      element("td", "number", formatValue(row.flat, state.unit, true)), shareCell(row.flat, state.most.flat),
      element("td", "number", formatValue(row.cum, state.unit, true)), shareCell(row.cum, state.most.cum));
    made.dataset.index = String(index);
    made.addEventListener("click", () => hooks.onPick(row.key));
    return made;
  }

  function spacer(rows) {
    const made = element("tr", "spacer", element("td"));
    made.setAttribute("aria-hidden", "true");
    made.style.height = rows * ROW_HEIGHT + "px";
    return made;
  }

  function noRows() {
    const cell = element("td", "notice", state.rows.length === 0 ? "No samples were recorded." : "Nothing matches the filter.");
    cell.colSpan = COLUMNS.length;
    return element("tr", "", cell);
  }

  function render() {
    const focused = document.activeElement?.closest?.("#table tr")?.dataset.index;
    const first = Math.max(0, Math.floor(scroller.scrollTop / ROW_HEIGHT) - 8);
    const last = Math.min(state.shown.length, first + Math.ceil(scroller.clientHeight / ROW_HEIGHT) + 16);
    const rows = state.shown.slice(first, last).map((row, i) => makeRow(row, first + i));
    if (rows.length === 0) rows.push(noRows());
    body.replaceChildren(spacer(first), ...rows, spacer(state.shown.length - last));
    table.setAttribute("aria-rowcount", String(state.shown.length + 1));
    if (focused !== undefined) focusRow(Number(focused));
  }

  function focusRow(index) {
    body.querySelector(`tr[data-index="${index}"] button`)?.focus({preventScroll: true});
  }

  function moveFocus(index) {
    if (index < 0 || index >= state.shown.length) return;
    const headHeight = head.offsetHeight, top = index * ROW_HEIGHT;
    if (top < scroller.scrollTop) scroller.scrollTop = top;
    const bottom = top + ROW_HEIGHT + headHeight - scroller.clientHeight;
    if (bottom > scroller.scrollTop) scroller.scrollTop = bottom;
    render();
    focusRow(index);
  }

  body.addEventListener("keydown", (event) => {
    const step = {ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10}[event.key];
    const row = event.target.closest("tr");
    if (step === undefined || row?.dataset.index === undefined) return;
    event.preventDefault();
    moveFocus(Math.min(state.shown.length - 1, Math.max(0, Number(row.dataset.index) + step)));
  });
  scroller.addEventListener("scroll", render, {passive: true});
  new ResizeObserver(render).observe(scroller);
  makeHead();

  return {
    setRows(rows, total, unit) {
      const most = (by) => rows.reduce((so, row) => Math.max(so, row[by]), 0);
      Object.assign(state, {rows, total, unit, most: {flat: most("flat"), cum: most("cum")}});
      refresh();
    },
    setFilter(matcher) {
      state.matcher = matcher;
      refresh();
    },
    setPicked(key) {
      state.picked = key;
      render();
    },
    redraw: render,
  };
}
