// Run by Node.js in a folder that has playwright-core and axe-core: a person signs in to the console at an issuer, by clicks alone.
// Arguments: the browser's program, and as JSON the server's address and the page that is asked for. Prints where the
// browser came to, what it complained of, and which rules the page to sign in at breaks, as JSON.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const [executablePath, wanted] = process.argv.slice(-2);
const { url, path } = JSON.parse(wanted);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
const browser = await chromium.launch({ executablePath, chromiumSandbox: process.getuid() !== 0, timeout: 0 });
const context = await browser.newContext();
context.setDefaultTimeout(0); // whoever started this ends it when it takes too long
const page = await context.newPage();
const complaints = [];
page.on("console", (message) => {
  if (["error", "warning"].includes(message.type())) complaints.push(message.text());
});
await page.goto(url + path);
await page.evaluate(axe);
const { violations } = await page.evaluate((values) => axe.run({ runOnly: { type: "tag", values } }), RULES);
await page.getByRole("link", { name: "Sign in with login" }).click();
await page.waitForURL(/\/authorize/);
await Promise.all([page.waitForURL(/\/console\//), page.getByRole("button", { name: "It is me" }).click()]);
const cookies = await context.cookies(url + path);
const seen = {
  place: page.url().slice(url.length),
  who: await page.locator("header .who").innerText(),
  cookies: cookies.map(({ name, httpOnly, sameSite }) => ({ name, httpOnly, sameSite })),
  complaints,
  violations: violations.map(({ id }) => id),
};
console.log(JSON.stringify(seen));
await browser.close();
