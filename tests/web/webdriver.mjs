// SPDX-License-Identifier: MIT
// A small WebDriver client: starts chromedriver on a free loopback port and a headless chromium with a fresh
// profile folder, and ends both. Only node's own modules. CHROMIUM and CHROMEDRIVER name other programs.

import {spawn} from "node:child_process";
import {accessSync, constants} from "node:fs";
import {mkdtemp, rm} from "node:fs/promises";
import {tmpdir} from "node:os";
import {delimiter, join} from "node:path";

const REQUEST_MS = 60_000;

function findProgram(variable, ...names) {
  if (process.env[variable]) return process.env[variable];
  for (const folder of (process.env.PATH ?? "").split(delimiter))
    for (const name of names) {
      try {
        accessSync(join(folder, name), constants.X_OK);
        return join(folder, name);
      } catch { /* not in this folder */ }
    }
  throw new Error(`${names[0]} not found: install it (apt install chromium chromium-driver) or set ${variable}`);
}

// Resolves to the port that chromedriver says it listens on.
function listeningPort(driver) {
  return new Promise((resolve, reject) => {
    let said = "";
    driver.stdout.on("data", (data) => {
      said += data;
      const port = /started successfully on port (\d+)/.exec(said);
      if (port) resolve(Number(port[1]));
    });
    driver.on("error", reject);
    driver.on("exit", (status) => reject(new Error(`chromedriver ended with status ${status}: ${said}`)));
    setTimeout(() => reject(new Error(`chromedriver did not start: ${said}`)), REQUEST_MS).unref();
  });
}

function capabilities(folder) {
  return {
    browserName: "chrome",
    "goog:loggingPrefs": {browser: "ALL", performance: "ALL"},
    "goog:chromeOptions": {
      binary: findProgram("CHROMIUM", "chromium", "chromium-browser", "google-chrome"),
      args: ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
        "--force-device-scale-factor=1", "--window-size=1280,900", `--user-data-dir=${folder}`],
    },
  };
}

async function endProcess(child) {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise((resolve) => child.once("exit", resolve));
  child.kill("SIGTERM");
  const late = setTimeout(() => child.kill("SIGKILL"), 5000);
  await ended;
  clearTimeout(late);
}

export async function openBrowser() {
  const folder = await mkdtemp(join(tmpdir(), "luapulse-web-"));
  const driver = spawn(findProgram("CHROMEDRIVER", "chromedriver"), ["--port=0"], {stdio: ["ignore", "pipe", "ignore"]});
  let base = "", session = "";

  async function call(method, path, body) {
    const answer = await fetch(base + path, {
      method, body: body && JSON.stringify(body), headers: {"content-type": "application/json"},
      signal: AbortSignal.timeout(REQUEST_MS),
    });
    const {value} = await answer.json();
    if (!answer.ok) throw new Error(`${path}: ${value?.message ?? answer.status}`);
    return value;
  }

  async function close() {
    try {
      if (session) await call("DELETE", session);
    } catch { /* the driver is ended anyway */ }
    await endProcess(driver);
    await rm(folder, {recursive: true, force: true, maxRetries: 10, retryDelay: 200});
  }

  for (const [signal, status] of [["SIGINT", 130], ["SIGTERM", 143]])
    process.once(signal, () => close().finally(() => process.exit(status)));

  try {
    base = `http://127.0.0.1:${await listeningPort(driver)}`;
    const made = await call("POST", "/session", {capabilities: {alwaysMatch: capabilities(folder)}});
    session = `/session/${made.sessionId}`;
  } catch (error) {
    await close();
    throw error;
  }

  const post = (path, body) => call("POST", session + path, body);
  const browser = {
    close,
    open: (url) => post("/url", {url}),
    // Runs the body of a function in the page; the arguments are JSON.
    run: (script, ...args) => post("/execute/sync", {script, args}),
    cdp: (cmd, params) => post("/goog/cdp/execute", {cmd, params}),
    log: (type) => post("/se/log", {type}),
    screenshot: async () => Buffer.from(await call("GET", `${session}/screenshot`), "base64"),
    resize: (width, height) => post("/window/rect", {width, height}),
    colourScheme: (value) => browser.cdp("Emulation.setEmulatedMedia", {features: [{name: "prefers-color-scheme", value}]}),
    pointer: (x, y, click) => post("/actions", {actions: [{
      type: "pointer", id: "mouse", parameters: {pointerType: "mouse"},
      actions: [{type: "pointerMove", duration: 0, x: Math.round(x), y: Math.round(y)},
        ...(click ? [{type: "pointerDown", button: 0}, {type: "pointerUp", button: 0}] : [])],
    }]}),
    keys: (text) => post("/actions", {actions: [{
      type: "key", id: "keyboard",
      actions: [...text].flatMap((value) => [{type: "keyDown", value}, {type: "keyUp", value}]),
    }]}),
    // Waits until the script answers something true, and returns it.
    async until(script, ...args) {
      for (const deadline = Date.now() + 30_000;;) {
        const value = await browser.run(script, ...args);
        if (value) return value;
        if (Date.now() > deadline) throw new Error(`waited in vain for: ${script}`);
        await new Promise((resolve) => setTimeout(resolve, 25));
      }
    },
  };
  return browser;
}

export const KEY = {escape: "\uE00C", enter: "\uE007", left: "\uE012", up: "\uE013", right: "\uE014", down: "\uE015"};
