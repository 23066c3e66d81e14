// Run by Node.js in a folder that has playwright-core: measures pages of the console in a browser.
// Arguments: the browser's program, and as JSON the server's address, the session's cookie, the page to paint and how often,
// and the pages to keep open. Prints a line of JSON with the milliseconds to each first paint. Then it opens the pages,
// prints a line, waits for one, and prints how far the layout of each page shifted meanwhile.
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const [executablePath, wanted] = process.argv.slice(-2);
const { url, cookie, painted, times, live } = JSON.parse(wanted);
const lines = createInterface({ input: process.stdin });
const browser = await chromium.launch({ executablePath, chromiumSandbox: process.getuid() !== 0, timeout: 0 });
lines.once("close", () => browser.close().finally(() => process.exit()));
const say = (value) => console.log(JSON.stringify(value));

async function open(address) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
  context.setDefaultTimeout(0); // whoever started this ends it when it takes too long
  await context.addCookies([{ name: cookie[0], value: cookie[1], url: `${url}/console` }]);
  const page = await context.newPage();
  await page.addInitScript(() => {
    window.shifts = [];
    new PerformanceObserver((list) => {
      for (const { value, hadRecentInput, sources } of list.getEntries())
        if (!hadRecentInput) window.shifts.push([value, ...sources.map(({ node }) => node?.parentElement?.innerHTML.slice(0, 200))]);
    }).observe({ type: "layout-shift", buffered: true });
  });
  await page.goto(url + address, { waitUntil: "load" });
  return { context, page };
}

const first = async (page) => {
  const find = () => performance.getEntriesByType("paint").find(({ name }) => name === "first-contentful-paint")?.startTime;
  return (await page.waitForFunction(find)).jsonValue();
};
const paints = [];
for (let time = 0; time <= times; time++) {
  const { context, page } = await open(painted); // a context of its own each time, with nothing in its cache
  const ms = await first(page);
  if (time) paints.push(ms); // the first one starts the browser's own processes
  await context.close();
}
say({ paints });

const pages = [];
for (const address of live) pages.push((await open(address)).page);
say({ open: true });
await new Promise((resolve) => { lines.once("line", resolve); });
const shifts = [];
for (const page of pages) shifts.push(await page.evaluate(() => window.shifts));
say({ shifts });
await browser.close();
process.exit();
