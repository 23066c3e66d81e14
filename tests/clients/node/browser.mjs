// Run by Node.js in a folder that has playwright-core and axe-core: a person's browser at the page of consent.
// Arguments: the browser's program, and a list of visits as JSON (see `Visit` in tests/clients/test_browser.py). Each visit is
// made by keyboard alone, and ends in a line of JSON with what was seen; the page may not notice that it is watched.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const [executablePath, visits] = process.argv.slice(-2);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
// Chromium refuses to put root into a sandbox.
const browser = await chromium.launch({ executablePath, chromiumSandbox: process.getuid() !== 0, timeout: 0 });

const focused = (page) => page.evaluate(() => {
  const element = document.activeElement;
  return element === document.body ? null : element.id || element.textContent;
});

async function look(page) {
  await page.evaluate(axe);
  const { violations, passes } = await page.evaluate(() => axe.run({ resultTypes: ["violations"] }));
  return {
    violations: violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).join(" ")}`),
    passes: passes.length,
    fits: await page.evaluate(() => document.documentElement.scrollWidth <= document.documentElement.clientWidth),
  };
}

async function pressByKeyboard(page, visit, key) {
  const order = [];
  for (let presses = 0; presses < 10; presses++) {
    await page.keyboard.press("Tab");
    const place = await focused(page);
    if (place === null || order.includes(place)) break;
    order.push(place);
    if (place === "key" && key !== null) await page.keyboard.type(key);
    if (place === visit.press) {
      await Promise.all([page.waitForNavigation({ waitUntil: "load" }), page.keyboard.press("Enter")]);
      break;
    }
  }
  return order;
}

for (const visit of JSON.parse(visits)) {
  const context = await browser.newContext({
    javaScriptEnabled: visit.javascript,
    colorScheme: visit.scheme,
    viewport: { width: visit.width, height: 800 },
  });
  context.setDefaultTimeout(0); // whoever started this ends it when it takes too long
  const page = await context.newPage();
  const complaints = [];
  const requests = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) complaints.push(message.text());
  });
  page.on("requestfailed", (request) => complaints.push(`${request.url()}: ${request.failure()?.errorText}`));
  page.on("request", (request) => requests.push(`${request.method()} ${new URL(request.url()).origin}`));
  await page.goto(visit.url);
  const seen = { text: await page.locator("body").innerText(), before: await focused(page) };
  seen.first = visit.javascript ? await look(page) : null;
  await page.screenshot({ path: `${visit.shot}.png`, fullPage: true });
  if (visit.mistype) {
    await pressByKeyboard(page, { press: "Allow" }, "nonsense");
    seen.again = { ...await look(page), problem: await page.getByRole("alert").innerText(), before: await focused(page) };
    await page.screenshot({ path: `${visit.shot}-again.png`, fullPage: true });
    await page.goto(visit.url);
  }
  seen.order = await pressByKeyboard(page, visit, visit.key);
  seen.end = { url: page.url(), text: await page.locator("body").innerText() };
  console.log(JSON.stringify({ ...seen, complaints, requests: [...new Set(requests)] }));
  await context.close();
}
await browser.close();
