// Run by Node.js in a folder that has playwright-core and axe-core: looks at pages of the console as a person's browser does.
// Arguments: the browser's program, and as JSON the server's address, the paths of the pages, and the ways to look at each
// (see `Way` in tests/clients/test_console.py; with `paths` and a `key` of its own where it has some, and with `acts`: a page with a form, what to fill in and
// what to press); perhaps a key to sign in with, and a question. Prints a line of JSON for each look, and one for a question asked by keyboard.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const [executablePath, wanted] = process.argv.slice(-2);
const { url, paths, ways, question, key: anyKey } = JSON.parse(wanted);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
// Chromium refuses to put root into a sandbox.
const browser = await chromium.launch({ executablePath, chromiumSandbox: process.getuid() !== 0, timeout: 0 });

async function open({ key = anyKey, ...way }) {
  const context = await browser.newContext({
    javaScriptEnabled: way.javascript,
    colorScheme: way.scheme,
    viewport: { width: way.width, height: 800 },
    timezoneId: "Europe/Lisbon",
  });
  context.setDefaultTimeout(0); // whoever started this ends it when it takes too long
  const page = await context.newPage();
  const complaints = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) complaints.push(message.text());
  });
  page.on("pageerror", (error) => complaints.push(error.message));
  if (key) {
    await page.goto(`${url}/console/sign-in`);
    await page.fill("#key", key);
    await Promise.all([page.waitForURL(/\/console\/ask/), page.click("button.main")]);
  }
  return { context, page, complaints };
}

async function violationsOn(page, rules = []) {
  await page.evaluate(axe);
  const runOnly = rules.length ? { type: "rule", values: rules } : { type: "tag", values: RULES };
  const { violations } = await page.evaluate((runOnly) => axe.run({ runOnly, resultTypes: ["violations"] }), runOnly);
  return violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).join(" ")}`);
}

for (const way of ways) {
  const { context, page, complaints } = await open(way);
  const looks = [...(way.paths ?? paths), ...(way.acts ?? [])];
  for (const path of looks) {
    await page.goto(url + (path.path ?? path), { waitUntil: "load" });
    for (const [field, text] of Object.entries(path.fields ?? {})) await page.fill(`#${field}`, text);
    if (path.press) await Promise.all([page.waitForNavigation({ waitUntil: "load" }), page.click(path.press)]);
    const seen = { way, path, title: await page.title(), complaints: complaints.splice(0) };
    if (way.javascript) {
      if (way.direction === "rtl") await page.evaluate(() => { document.documentElement.dir = "rtl"; });
      seen.violations = await violationsOn(page, way.rules);
    }
    seen.fits = await page.locator("html").evaluate((root) => root.scrollWidth <= root.clientWidth).catch(() => null);
    if (way.shots) await page.screenshot({ path: `${way.shots}-${looks.indexOf(path)}.png`, fullPage: true });
    console.log(JSON.stringify(seen));
  }
  await context.close();
}

if (!question) {
  await browser.close();
  process.exit();
}
const { context, page, complaints } = await open({ javascript: true, scheme: "light", width: 1280 });
await page.goto(`${url}/console/ask`);
let loads = 0;
page.on("load", () => { loads += 1; });
const order = [];
for (let presses = 0; presses < 30; presses++) {
  const id = await page.evaluate(() => document.activeElement?.id);
  order.push(id);
  if (id === "q") await page.keyboard.type(question.text);
  if (id === "as") {
    await page.keyboard.type(question.as);
    await Promise.all([page.waitForURL(/[?&]q=/), page.keyboard.press("Enter")]);
    break;
  }
  await page.keyboard.press("Tab");
}
await page.getByText(question.expects).first().waitFor();
const answer = await page.locator("#answer").innerText();
const moment = await page.locator("#answer time").first().innerText();
await page.locator("#answer a[href*='/events/']").first().focus();
await Promise.all([page.waitForNavigation(), page.keyboard.press("Enter")]);
const opened = page.url();
await page.goBack();
await page.getByText(question.expects).first().waitFor();
await page.keyboard.press("Escape"); // out of the question
await page.keyboard.press("?");
await page.locator("#keyboard").waitFor();
const violations = await violationsOn(page);
console.log(JSON.stringify({ question: true, order, answer, moment, opened, loads, violations, complaints }));
await context.close();
await browser.close();
