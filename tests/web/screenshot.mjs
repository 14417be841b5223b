// SPDX-License-Identifier: MIT
// Takes a picture of a page: node screenshot.mjs PAGE PICTURE.png [light|dark] [WIDTHxHEIGHT] [SCRIPT]
// SCRIPT runs in the page first, to bring it into the state to be shown.

import {writeFile} from "node:fs/promises";
import {resolve} from "node:path";
import {pathToFileURL} from "node:url";

import {openBrowser} from "./webdriver.mjs";

const [page, picture, scheme = "light", size = "1440x900", script = ""] = process.argv.slice(2);
const [width, height] = size.split("x").map(Number);
const browser = await openBrowser();
try {
  await browser.cdp("Emulation.setDeviceMetricsOverride", {width, height, deviceScaleFactor: 1, mobile: false});
  await browser.colourScheme(scheme);
  await browser.open(pathToFileURL(resolve(page)).href);
  if (script) await browser.run(script);
  await browser.until("return window.luapulse.settled()");
  await writeFile(picture, await browser.screenshot());
} finally {
  await browser.close();
}
