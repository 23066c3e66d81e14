// Run by Node.js in a folder that has playwright-core: does at a keyboard what it is told, line by line, in the console.
// Arguments: the browser's program, the server's address, and whether pages may run scripts. Each line is a step as JSON,
// and is answered by a line: where the browser is then, or what went wrong.
import { createInterface } from "node:readline";
import { readFileSync } from "node:fs";
import { chromium } from "playwright-core";

const [executablePath, url, scripts] = process.argv.slice(-3);
const browser = await chromium.launch({
  executablePath,
  chromiumSandbox: process.getuid() !== 0, // Chromium refuses to put root into a sandbox
  ignoreDefaultArgs: ["--disable-back-forward-cache"], // people's browsers have one
  timeout: 0,
});
const context = await browser.newContext({ javaScriptEnabled: scripts === "true", locale: "en-US", acceptDownloads: true });
context.setDefaultTimeout(60_000);
const page = await context.newPage();
const complaints = [];
page.on("console", (message) => {
  if (["error", "warning"].includes(message.type())) complaints.push(message.text());
});
page.on("pageerror", (error) => complaints.push(error.message));

const steps = {
  open: (path) => page.goto(url + path),
  // Goes to what the selector names by the tabulator alone.
  async to(selector) {
    await page.locator(selector).first().waitFor({ state: "attached" });
    for (let presses = 0; presses < 400; presses++) {
      if (await page.locator(selector).first().evaluate((element) => element === document.activeElement)) return;
      await page.keyboard.press("Tab");
    }
    throw new Error(`no key leads to ${selector}`);
  },
  type: (text) => page.keyboard.type(text),
  press: (key) => page.keyboard.press(key),
  go: (key) => Promise.all([page.waitForNavigation(), page.keyboard.press(key)]),
  sees: (text) => page.getByText(text).first().waitFor(),
  back: () => page.goBack({ waitUntil: "commit" }), // a page that is kept as it was is not loaded again
  async save(key) {
    const [download] = await Promise.all([page.waitForEvent("download"), page.keyboard.press(key)]);
    return readFileSync(await download.path(), "utf8");
  },
};

console.log(JSON.stringify({ ready: true }));
for await (const line of createInterface({ input: process.stdin })) {
  const [name, value] = JSON.parse(line);
  if (name === "end") break;
  try {
    const result = await steps[name](value);
    const text = await page.locator("body").innerText();
    const focused = await page.locator("html").evaluate(() => document.activeElement.id || document.activeElement.getAttribute("href") || "");
    console.log(JSON.stringify({ address: page.url(), text, focused, saved: typeof result === "string" ? result : null, complaints: complaints.splice(0) }));
  } catch (error) {
    const text = await page.locator("body").innerText().catch(() => "");
    console.log(JSON.stringify({ failed: `${error.message}\nat ${page.url()}:\n${text}` }));
  }
}
await browser.close();
process.exit();
