// SPDX-License-Identifier: MIT
// What a reader sees and does on the page, in a real browser: node viewer.mjs FOLDER, with the pages that
// make_page.c wrote. Totals are the ones make_page.c spells out. Every page is also watched for console errors
// and for requests: there must be none.

import assert from "node:assert/strict";
import {join, resolve} from "node:path";
import {pathToFileURL} from "node:url";

import {KEY, openBrowser} from "./webdriver.mjs";

const folder = resolve(process.argv[2]);
const browser = await openBrowser();

const settled = () => browser.until("return window.luapulse?.settled()");
const boxes = async () => (await settled(), browser.run("return luapulse.boxes()"));
const box = async (name) => (await boxes()).find((one) => one.name === name);
const text = (selector) => browser.run("return document.querySelector(arguments[0]).innerText.replaceAll('\\u00a0', ' ')", selector);
const near = (value, wanted, by = 1.5) => assert.ok(Math.abs(value - wanted) <= by, `${value} is not about ${wanted}`);

async function openPage(name) {
  await browser.open(pathToFileURL(join(folder, `${name}.html`)).href);
  await settled();
}

async function clickBox(name) {
  const {x, y, width, height} = await box(name);
  await browser.pointer(x + width / 2, y + height / 2, true);
}

async function type(selector, value) {
  await browser.run("document.querySelector(arguments[0]).focus(); document.querySelector(arguments[0]).select()", selector);
  await browser.keys(value);
}

async function choose(selector) {
  await browser.run("document.querySelector(arguments[0]).click()", selector);
  await settled();
}

async function rows() {
  return browser.run(`return [...document.querySelectorAll("#table tbody tr[data-index]")].map((row) =>
    [...row.cells].map((cell) => cell.innerText.replaceAll("\\u00a0", " ").trim()))`);
}

const tests = {
  async "title and totals are shown"() {
    await openPage("small");
    assert.equal(await browser.run("return document.title"), "demo.lua --config settings.lua · LuaPulse");
    assert.equal(await text("#program"), "demo.lua --config settings.lua"); // without the interpreter and folders
    const facts = await text("#facts");
    for (const fact of [/Total\s+1 s\s+cpu/, /Duration\s+2 s\s+50.0 % cpu/, /Samples\s+100\s/, /Period\s+10 ms\s+of cpu/])
      assert.match(facts, fact);
  },

  async "boxes are as wide as their share and stand under their callers"() {
    await openPage("small");
    const all = await boxes(), root = all[0];
    const find = (name, depth) => all.find((one) => one.name === name && one.depth === depth);
    assert.deepEqual(all.map((one) => `${one.depth} ${one.name}`).sort(),
      ["0 All cpu", "1 main", "2 fact", "2 idle", "2 work", "3 fact", "3 string.rep"]);
    for (const [name, depth, share] of [["main", 1, 1], ["work", 2, 0.6], ["idle", 2, 0.3], ["fact", 3, 0.1], ["string.rep", 3, 0.3]])
      near(find(name, depth).width, root.width * share);
    near(find("string.rep", 3).x, find("work", 2).x);
    assert.ok(find("work", 2).y > find("main", 1).y);
  },

  async "the canvas has paint where the boxes are"() {
    await openPage("small");
    const painted = await browser.run(`const canvas = document.getElementById("canvas"), at = canvas.getBoundingClientRect();
      const {data, width} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height), scale = width / at.width;
      return luapulse.boxes().map((b) => {
        const x = Math.round((b.x - at.left + b.width - 4) * scale), y = Math.round((b.y - at.top + 5) * scale);
        return [b.fill, [...data.slice(4 * (y * width + x), 4 * (y * width + x) + 3)].join(" ")];
      })`);
    for (const [fill, pixel] of painted) assert.equal(fill, `rgb(${pixel})`);
  },

  async "callers can stand at the bottom"() {
    await openPage("small");
    await choose("#direction [value=up]");
    assert.ok((await box("work")).y < (await box("main")).y);
    await clickBox("work");
    assert.match(await text("#crumbs"), /work/);
  },

  async "a click zooms, reset and Escape return"() {
    await openPage("small");
    const whole = (await box("All cpu")).width;
    await clickBox("work");
    near((await box("work")).width, whole);
    near((await box("string.rep")).width, whole / 2);
    assert.equal(await box("idle"), undefined);
    assert.match(await text("#crumbs"), /All cpu\s*›\s*main\s*›\s*work\s*600 ms · 60.0 %/);
    await choose("#reset");
    near((await box("work")).width, whole * 0.6);
    await clickBox("idle");
    await browser.keys(KEY.escape);
    near((await box("work")).width, whole * 0.6);
  },

  async "breadcrumbs lead back to a caller"() {
    await openPage("small");
    await clickBox("string.rep");
    await browser.run("[...document.querySelectorAll('.crumb')].find((one) => one.textContent === 'work').click()");
    near((await box("string.rep")).width, (await box("work")).width / 2);
  },

  async "arrow keys and Enter work without a mouse"() {
    await openPage("small");
    await browser.run("document.getElementById('canvas').focus()");
    await browser.keys(KEY.down + KEY.down + KEY.right);
    assert.match(await text("#spoken"), /^idle, 300 ms, 30.0 %/);
    await browser.keys(KEY.enter);
    near((await box("idle")).width, (await box("All cpu")).width);
  },

  async "the tooltip names function, place, values and lines"() {
    await openPage("small");
    const {x, y, width} = await box("work");
    await browser.pointer(x + width - 10, y + 8, false);
    await browser.until("return !document.getElementById('tooltip').hidden");
    const tip = await text("#tooltip");
    for (const part of [/^work/, /demo\.lua:10/, /Total\s+600 ms\s+60.0 %/, /Self\s+300 ms\s+30.0 %/, /line 12 40.0 %, 14 20.0 %/])
      assert.match(tip, part);
  },

  async "search highlights and tells the matched share"() {
    await openPage("small");
    await type("#search", "FACT");
    assert.deepEqual((await boxes()).filter((one) => one.matched).map((one) => one.name), ["fact", "fact"]);
    assert.equal(await text("#matched"), "matched 10.0 %");
    await type("#search", "/^(work|string\\.rep)$/");
    assert.equal(await text("#matched"), "matched 60.0 %");
    await type("#search", "/(/");
    assert.equal(await text("#matched"), "not a regular expression");
    await browser.keys(KEY.escape);
    assert.equal(await text("#matched"), "");
    assert.ok((await boxes()).every((one) => !one.matched));
  },

  async "the table agrees with the totals and sorts by any column"() {
    await openPage("small");
    const column = (id) => choose(`#table th[data-column="${id}"] button`);
    await column("cum");
    assert.deepEqual(await rows(), [
      ["main", "demo.lua", "0 s", "0 %", "1.00 s", "100 %"],
      ["work", "demo.lua:10", "300 ms", "30.0 %", "600 ms", "60.0 %"],
      ["string.rep", "[C]", "300 ms", "30.0 %", "300 ms", "30.0 %"],
      ["idle", "demo.lua:20", "300 ms", "30.0 %", "300 ms", "30.0 %"],
      ["fact", "demo.lua:30", "100 ms", "10.0 %", "100 ms", "10.0 %"],
    ]);
    await column("name");
    assert.deepEqual((await rows()).map((row) => row[0]), ["fact", "idle", "main", "string.rep", "work"]);
    await column("name");
    assert.equal((await rows())[0][0], "work");
    await column("flat%");
    assert.equal((await rows())[4][0], "main");
  },

  async "the table filters, and a row highlights its function"() {
    await openPage("small");
    await type("#filter", "rep");
    assert.deepEqual((await rows()).map((row) => row[0]), ["string.rep"]);
    assert.equal(await text("#top-count"), "1 of 5");
    await choose("#table tbody tr[data-index] button");
    assert.deepEqual((await boxes()).filter((one) => one.matched).map((one) => one.name), ["string.rep"]);
    assert.equal(await text("#matched"), "matched 30.0 %");
    assert.match(await text("#picked"), /string\.rep/);
  },

  async "another kind of value changes graph, table and total"() {
    await openPage("small");
    await browser.run("const s = document.getElementById('type'); s.value = '2'; s.dispatchEvent(new Event('change'))");
    const whole = (await box("All alloc space")).width;
    near((await box("idle")).width, whole * 0.75);
    near((await box("work")).width, whole * 0.25);
    assert.equal(await box("fact"), undefined);
    assert.match(await text("#facts"), /Total\s+4 MiB\s+alloc space/);
    assert.deepEqual((await rows())[0].slice(0, 4), ["idle", "demo.lua:20", "3.00 MiB", "75.0 %"]);
  },

  async "memory is shown in bytes and objects"() {
    await openPage("heap");
    const whole = (await box("All inuse space")).width;
    near((await box("string.rep")).width, whole * 20 / 29);
    const facts = await text("#facts");
    for (const fact of [/Total\s+29 KiB\s+inuse space/, /Stacks\s+2\b/, /Period\s+512 KiB\s+of space/]) assert.match(facts, fact);
    assert.deepEqual((await rows())[1].slice(0, 4), ["load", "heap.lua:10", "9.00 KiB", "31.0 %"]);
    await browser.run("const s = document.getElementById('type'); s.value = '0'; s.dispatchEvent(new Event('change'))");
    assert.match(await text("#facts"), /Total\s+1,010\s+alloc objects/);
    assert.deepEqual((await rows())[0].slice(0, 4), ["string.rep", "[C]", "1,000", "99.0 %"]);
    await openPage("small");
    await browser.run("const s = document.getElementById('type'); s.value = '2'; s.dispatchEvent(new Event('change'))");
    assert.match(await text("#facts"), /Stacks\s+5\b/); // the samples counted are those of cpu
  },

  async "traced calls are shown by time and by count"() {
    await openPage("traced");
    const show = async (type) => {
      await browser.run(`const s = document.getElementById("type"), wanted = arguments[0];
        s.value = [...s.options].find((one) => one.innerText === wanted).value; s.dispatchEvent(new Event("change"))`, type);
      await settled();
    };
    assert.deepEqual(await browser.run("return [...document.querySelectorAll('#type option')].map((one) => one.innerText)"),
      ["calls", "exclusive", "inclusive", "exclusive raw", "inclusive raw", "min", "max"]);
    assert.match(await text("#facts"), /Total\s+18 ms\s+exclusive/);
    const whole = (await box("All exclusive")).width;
    near((await box("f")).width, whole * 7 / 18);
    near((await box("[region checkout]")).width, whole / 18);
    assert.deepEqual(await rows(), [
      ["main", "traced.lua", "9.00 ms", "50.0 %", "18.0 ms", "100 %"],
      ["g", "traced.lua:20", "5.00 ms", "27.8 %", "5.00 ms", "27.8 %"],
      ["f", "traced.lua:10", "3.00 ms", "16.7 %", "7.00 ms", "38.9 %"], // recursion counts once
      ["h", "traced.lua:30", "1.00 ms", "5.56 %", "1.00 ms", "5.56 %"],
      ["[region checkout]", "Not a function", "0 s", "0 %", "1.00 ms", "5.56 %"],
    ]);
    await choose("#comments summary");
    assert.match(await text("#comment-list"), /every call, engine trace[^]*negative exclusive time after correction, -6000 ns/);
    await show("calls");
    assert.match(await text("#facts"), /Total\s+79\s+calls/);
    assert.deepEqual((await rows()).map((row) => [row[0], row[2]]),
      [["n", "60"], ["g", "10"], ["f", "5"], ["h", "3"], ["[region checkout]", "1"], ["main", "0"]]);
    await show("inclusive");
    assert.deepEqual((await rows()).slice(0, 3).map((row) => [row[0], row[2]]), [["main", "18.0 ms"], ["f", "7.00 ms"], ["g", "5.00 ms"]]);
  },

  async "luapulse run --trace has written a page"() {
    await openPage("run");
    assert.equal(await text("#program"), "app.lua");
    assert.match(await text("#facts"), /exclusive/);
    const names = (await boxes()).map((one) => one.name);
    for (const name of ["All exclusive", "main chunk", "[region checkout]", "branch"]) assert.ok(names.includes(name), `no box ${name} among ${names}`);
    await browser.run("const s = document.getElementById('type'); s.value = '0'; s.dispatchEvent(new Event('change'))");
    await settled();
    const calls = Object.fromEntries((await rows()).map((row) => [row[0], row[2]]));
    assert.equal(calls.leaf, "200");
    assert.equal(calls.branch, "200");
    assert.equal(calls["[region checkout]"], "1");
  },

  async "lines can be told apart"() {
    await openPage("small");
    await choose("#grouping [value=line]");
    const root = await box("All cpu");
    near((await box("work:12")).width, root.width * 0.4);
    near((await box("work:14")).width, root.width * 0.2);
  },

  async "losses and comments are shown in words"() {
    await openPage("small");
    const losses = await text("#loss-list");
    assert.match(losses, /1,234 samples could not be recorded/);
    assert.match(losses, /3 samples .*\[truncated\]/);
    assert.equal(await browser.run("return document.querySelectorAll('#loss-list .warning').length"), 2);
    await choose("#comments summary");
    assert.equal(await text("#comment-list"), "host: testbed");
    await openPage("empty");
    assert.match(await text("#loss-list"), /Nothing was lost/);
    assert.equal(await text("#empty"), "No samples were recorded.");
  },

  async "hostile names do no harm and are shown"() {
    await openPage("hostile");
    assert.equal(await browser.run("return window.harmed"), null);
    assert.equal(await browser.run("return document.querySelectorAll('img, iframe, b > *, body > script:not(#profile)').length"), 1);
    const names = (await boxes()).map((one) => one.name), listed = (await rows()).map((row) => row[0]);
    for (const name of ["</script><img src=x onerror=\"window.harmed=1\">", "</SCRIPT /", "<!--<script>window.harmed=1", "__proto__", "constructor",
      "]]>&lt;b&gt;&amp;", "$&$1`<!--luapulse:json-->"]) {
      assert.ok(names.includes(name), `no box ${name}`);
      assert.ok(listed.includes(name), `no row ${name}`);
    }
    assert.ok(names.some((name) => name.length === 200000));
    assert.ok(names.every((name) => !/[\u0000-\u001f\u202e\u2028]/.test(name)));
    assert.ok(names.some((name) => /^nul.+bell.+esc.+line.+end$/.test(name)));
    const long = (await boxes()).find((one) => one.name.length === 200000);
    await browser.pointer(long.x + 20, long.y + 8, false);
    await browser.until("return /200,000 characters/.test(document.getElementById('tooltip').textContent)");
    assert.ok(await browser.run("return document.documentElement.scrollWidth <= window.innerWidth"));
    await type("#search", "constructor");
    assert.equal(await text("#matched"), "matched 7.69 %");
  },

  async "120,000 nodes and 1,024 levels stay usable"() {
    await openPage("big");
    assert.ok(await browser.run("return luapulse.nodes()") > 100000);
    assert.ok(await browser.run("return luapulse.levels()") >= 1025);
    const seen = await boxes();
    assert.ok(seen.length > 20 && seen.length < 20000, `${seen.length} boxes`);
    assert.ok(seen.every((one) => one.width >= 0.3));
    await browser.run("document.getElementById('flame-scroll').scrollTop = 1e9");
    assert.ok(Math.max(...(await boxes()).map((one) => one.depth)) >= 1023);
    await browser.run("document.getElementById('flame-scroll').scrollTop = 0");
    await type("#search", "function_12");
    assert.match(await text("#matched"), /^matched /);
    await browser.run("document.getElementById('table-scroll').scrollTop = 3000");
    await browser.until("return [...document.querySelectorAll('#table tr[data-index]')].some((row) => Number(row.dataset.index) >= 100)");
    assert.ok(await browser.run("return document.querySelectorAll('#table tr').length") < 200);
  },

  async "light and dark follow the system"() {
    await openPage("realistic");
    const ground = () => browser.run("return getComputedStyle(document.body).backgroundColor");
    await browser.colourScheme("light");
    const light = [await ground(), (await box("main")).fill];
    await browser.colourScheme("dark");
    await browser.until("return matchMedia('(prefers-color-scheme: dark)').matches");
    // the page is told of it later than whoever asks
    await browser.until("return luapulse.boxes().find((one) => one.name === 'main').fill !== arguments[0]", light[1]);
    const night = [await ground(), (await box("main")).fill];
    await browser.colourScheme("light");
    assert.notEqual(light[0], night[0]);
    assert.notEqual(light[1], night[1]);
  },

  async "Lua, C and pseudo frames have hues of their own"() {
    await openPage("realistic");
    const kinds = await browser.run("return [...document.querySelectorAll('#legend li')].map((one) => one.textContent)");
    assert.deepEqual(kinds, ["Lua", "C", "Not a function"]);
    const blue = (fill) => { const [r, , b] = fill.match(/\d+/g).map(Number); return b > r; };
    assert.ok(blue((await box("table.sort")).fill));
    assert.ok(!blue((await box("main")).fill));
  },

  async "the page forbids the network"() {
    await openPage("small");
    const refused = await browser.run(`return fetch("https://example.invalid/").then(() => "fetched", () => "refused")`);
    assert.equal(refused, "refused");
    const blocked = (await browser.log("browser")).filter((entry) => /Content Security Policy/.test(entry.message));
    assert.ok(blocked.length > 0, "the request was not stopped by the policy");
    await browser.log("performance");
  },
};

// What went wrong on the page beside the assertions: errors on the console, requests for anything but the page.
async function complaints() {
  const errors = (await browser.log("browser")).filter((entry) => entry.level === "SEVERE" || entry.level === "WARNING");
  const requests = (await browser.log("performance")).map((entry) => JSON.parse(entry.message).message)
    .filter((event) => event.method === "Network.requestWillBeSent").map((event) => event.params.request.url);
  const foreign = requests.filter((url) => !url.startsWith(pathToFileURL(folder).href));
  assert.deepEqual(errors.map((entry) => entry.message), [], "console errors");
  assert.deepEqual(foreign, [], "network requests");
  return requests.length;
}

async function forgetLogs() {
  await browser.log("browser");
  await browser.log("performance");
}

let failed = 0, watched = 0;
try {
  await browser.open("about:blank"); // away from the browser's own first page
  await forgetLogs();
  for (const [name, test] of Object.entries(tests)) {
    try {
      await test();
      watched += await complaints();
      console.log(`ok ${name}`);
    } catch (error) {
      failed++;
      console.log(`not ok ${name}: ${error.message.replace(/\s*\n\s*/g, " ")}`);
      await forgetLogs().catch(() => {});
    }
  }
  // Proof that the watch on requests sees something: the pages themselves.
  console.log(watched > 0 ? "ok requests are watched" : "not ok requests are watched: none was seen, not even a page");
  if (watched === 0) failed++;
} finally {
  await browser.close();
}
process.exitCode = failed > 0 ? 1 : 0;
