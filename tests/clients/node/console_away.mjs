// Run by Node.js in a folder that has playwright-core: has pages of the console open while their server is replaced.
// Arguments: the browser's program, and the server's address. Whoever started this replaces the server: each line that is
// read here says that the server is gone or back, the last one which build to watch; each line of JSON that is printed says
// what the page showed then.
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const [executablePath, url] = process.argv.slice(-2);
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const told = () => lines.next();
const say = (what) => console.log(JSON.stringify(what));

// Chromium refuses to put root into a sandbox.
const browser = await chromium.launch({ executablePath, chromiumSandbox: process.getuid() !== 0, timeout: 0 });
const context = await browser.newContext();
context.setDefaultTimeout(0); // whoever started this ends it when it takes too long
const page = await context.newPage();
const offline = page.locator("#offline");
const waiting = (count) => page.locator(".live dd", { hasText: new RegExp(`^${count}$`) }).first().waitFor();

await page.goto(`${url}/console/changes`);
await waiting(1);
const watch = () => page.evaluate(() => {
  window.shift = 0;
  const add = (list) => { for (const { value } of list.getEntries()) window.shift += value; };
  new PerformanceObserver(add).observe({ type: "layout-shift", buffered: false });
});
await watch();
// Another page, on which nothing is live, with a form that asks.
const people = await context.newPage();
await people.goto(`${url}/console/people`);
await people.locator("#q").fill("user");
const aside = people.locator("#offline");
say({ open: true });

await told();
await offline.waitFor({ state: "visible" });
await people.locator("#q").press("Enter");
await aside.waitFor({ state: "visible" });
await people.evaluate(() => { document.getElementById("offline").hidden = true; });
await people.locator("header a", { hasText: "Topics" }).press("Enter");
await aside.waitFor({ state: "visible" });
say({ offline: await offline.innerText(), typed: await people.locator("#q").inputValue(), address: people.url() });

await told();
await aside.waitFor({ state: "hidden" });
await Promise.all([people.waitForURL(/q=user/), people.locator("#q").press("Enter")]);
await people.locator("main a[href*='name=user_42']").press("Enter");
await people.waitForURL(/name=user_42/);
const person = people.url();
const [saved] = await Promise.all([people.waitForEvent("download"), people.locator("main a[href*='/export']").click()]);
const [tab] = await Promise.all([
  context.waitForEvent("page"), people.locator("header a", { hasText: "Topics" }).click({ modifiers: ["Control"] }),
]);
await tab.waitForURL(/topics/);
const stayed = people.url() === person;
await people.goBack();
const went = {
  saved: saved.suggestedFilename(), stayed, current: await tab.locator("header [aria-current]").innerText(),
  back: new URL(people.url()).searchParams.get("q"), forth: new URL((await people.goForward()).url()).pathname,
};
say(went);
await Promise.all([tab.close(), people.close()]);
await waiting(2);
await offline.waitFor({ state: "hidden" });
say({ again: true, shift: await page.evaluate(() => window.shift) });

await page.goto(`${url}/console/changes/build`);
await page.locator("#reason").fill("while it is away");
const form = await page.locator("main form").evaluate((sent) => Object.fromEntries(new FormData(sent)));
say({ form: true });

await told();
await page.locator("main form button").click();
await offline.waitFor({ state: "visible" });
say({ kept: await page.locator("#reason").inputValue(), place: new URL(page.url()).pathname });

await told();
await offline.waitFor({ state: "hidden" }); // though nothing on this page is live
await page.locator("main form button").click();
await page.waitForURL(/done=build/);
const done = await page.locator(".notice[role=status]").innerText();
const statuses = [];
for (let time = 0; time < 3; time++) {
  const sent = { form, headers: { origin: url }, maxRedirects: 0 };
  statuses.push((await context.request.post(`${url}/console/changes/build`, sent)).status());
}
say({ done, statuses });

await page.goto(`${url}/console/changes/build`);
await page.locator("main form [name=form_token]").evaluate((field) => { field.value = "forged"; });
await page.locator("main form button").click();
await page.locator("main .problem").waitFor();
say({ refusal: await page.locator("main").innerText() });

const { value: buildId } = await told();
await page.goto(`${url}/console/changes/builds/${buildId}`);
const heading = page.locator("h1");
await watch();
say({ build: await heading.innerText() });
await page.locator("h1", { hasText: "succeeded" }).waitFor();
say({ build: await heading.innerText(), told: await page.locator(".told").innerText(), shift: await page.evaluate(() => window.shift) });
await browser.close();
