// Run by Node.js in a folder that has playwright-core: opens pages of the console that show hostile text.
// Arguments: the browser's program, and as JSON the server's address and the tours: each has the cookie of a session, and
// the paths of pages. Prints a line of JSON for each page: its status and size, what it is made of, what its browser
// complained of, and at which widths it is too wide.
import { chromium } from "playwright-core";

const [executablePath, wanted] = process.argv.slice(-2);
const { url, tours, widths } = JSON.parse(wanted);
// Chromium refuses to put root into a sandbox.
const browser = await chromium.launch({ executablePath, chromiumSandbox: process.getuid() !== 0, timeout: 0 });

function madeOf() {
  const names = new Set();
  const outside = [];
  for (const element of document.querySelectorAll("*")) {
    names.add(element.localName);
    for (const { name, value } of element.attributes) {
      names.add(`${element.localName} ${name}`);
      if (/^(href|src|action|formaction|hx-get|hx-post)$/.test(name)) {
        const { protocol, origin, pathname } = new URL(value, location.href);
        if (origin !== location.origin || !pathname.startsWith("/console")) outside.push(protocol + value);
      }
    }
  }
  return { names: [...names].sort(), outside, hit: window.hit, violations: window.violations };
}

for (const [number, { cookie, paths, question }] of tours.entries()) {
  const context = await browser.newContext();
  context.setDefaultTimeout(0); // whoever started this ends it when it takes too long
  await context.addCookies([{ name: cookie[0], value: cookie[1], url: `${url}/console` }]);
  await context.addInitScript(() => {
    window.violations = [];
    document.addEventListener("securitypolicyviolation", (event) => window.violations.push(`${event.violatedDirective} ${event.blockedURI}`));
  });
  const page = await context.newPage();
  const complaints = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) complaints.push(message.text());
  });
  page.on("pageerror", (error) => complaints.push(error.message));
  page.on("dialog", (dialog) => { complaints.push(`a dialog: ${dialog.message()}`); dialog.dismiss(); });
  const seen = async (path, answer = {}) => {
    const wide = [];
    for (const width of widths.reverse()) { // the window has one of the widths already
      await page.setViewportSize({ width, height: 800 });
      if (await page.evaluate(() => document.documentElement.scrollWidth > document.documentElement.clientWidth)) wide.push(width);
    }
    console.log(JSON.stringify({ tour: number, path, wide, complaints: complaints.splice(0), ...answer, ...(await page.evaluate(madeOf)) }));
  };
  for (const path of paths) {
    const response = await page.goto(url + path, { waitUntil: "load" });
    await page.waitForFunction(() => !document.querySelector(".htmx-request")); // parts that a page loads are there, too
    await seen(path, { status: response.status(), bytes: (await response.body()).length });
  }
  // A part of a page that a script puts in place.
  await page.goto(url + paths[0]);
  await page.fill("#q", question);
  await Promise.all([page.waitForURL(/[?&]q=/), page.press("#q", "Enter")]);
  await page.locator("#answer ul.tree").waitFor();
  await seen("a part of Ask");
  await context.close();
}
await browser.close();
