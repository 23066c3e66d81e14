// Shows moments in the reader's zone; the title keeps them in UTC. Everything works without this.
"use strict";
// As the server and the labels of topics write them, whatever the reader's language: 13 Mar 2026, 09:50.
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const inTwo = (number) => String(number).padStart(2, "0");
function written(moment, isDay) {
  const day = `${moment.getDate()} ${MONTHS[moment.getMonth()]} ${moment.getFullYear()}`;
  return isDay ? day : `${day}, ${inTwo(moment.getHours())}:${inTwo(moment.getMinutes())}`;
}
function localize(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const moment = new Date(time.dateTime);
    if (!Number.isNaN(moment.getTime())) time.textContent = written(moment, time.dataset.shows === "day");
  }
  // No element can stand in an option: its moment is what follows the last dot.
  for (const option of root.querySelectorAll("option[data-at]")) {
    option.textContent = option.textContent.replace(/[^·]*$/, ` ${written(new Date(option.dataset.at))}`);
  }
}
localize(document);
// What is painted first needs no name of a zone: Intl, which knows it, takes longer than all else here.
const isUtc = [0, 6].every((month) => new Date(2026, month).getTimezoneOffset() === 0);
document.documentElement.classList.toggle("zoned", !isUtc);
// Neither does it need htmx, which begins by itself only once the page is complete.
const { htmx: src } = document.currentScript.dataset;
addEventListener("load", () => requestAnimationFrame(() => setTimeout(() => {
  document.head.append(Object.assign(document.createElement("script"), { src }));
  const zone = document.getElementById("zone");
  if (zone && !isUtc) zone.textContent = `${new Intl.DateTimeFormat().resolvedOptions().timeZone}; point at one to see it in UTC`;
})));
// At once: what is painted first in UTC would move when it is said in another zone.
document.addEventListener("htmx:afterSwap", () => localize(document));
const offline = document.getElementById("offline");
// While the server does not answer, a small file is asked for now and then, until it does.
const icon = document.querySelector("link[rel=icon]").href;
let asking;
function away() {
  offline.hidden = false;
  asking ??= setTimeout(ask, 1000, 1000);
}
function back() {
  offline.hidden = true;
  clearTimeout(asking);
  asking = undefined;
}
// What hangs is away, too: a reader who has chosen something wants to hear so.
const isThere = () => fetch(icon, { method: "HEAD", cache: "no-store", signal: AbortSignal.timeout(10000) })
  .then(({ status }) => status < 500, () => false);
async function ask(waited) {
  const answers = !document.hidden && await isThere();
  if (!asking) return;
  if (answers) return back();
  const wait = Math.min(2 * waited, 30000);
  asking = setTimeout(ask, wait * (0.5 + Math.random() / 2), wait);
}
// The browser itself follows a link, and sends what htmx does not, once the server is known to be there: else the
// browser's error page would take the place of this one. Were pages swapped by htmx (hx-boost), we had to keep history,
// focus, place, streams and saved files right, as browsers do.
let chosen;
async function follow(event, go) {
  event.preventDefault();
  chosen = event;
  const answers = await isThere();
  if (chosen !== event) return;
  chosen = undefined;
  if (!answers) return away();
  back();
  go();
}
document.addEventListener("click", (event) => {
  const href = event.target.closest("a[href]")?.getAttribute("href"); // of a drawing, too, whose links have no address
  const isPlain = event.button === 0 && !(event.ctrlKey || event.metaKey || event.shiftKey || event.altKey);
  if (event.defaultPrevented || !isPlain || !href?.startsWith("/")) return;
  follow(event, () => location.assign(href));
});
document.addEventListener("click", async ({ target }) => {
  const button = target.closest("[data-copies]");
  if (!button) return;
  const field = document.getElementById(button.dataset.copies);
  field.select();
  // Without TLS scripts have no clipboard, but browsers copy what is selected.
  const isCopied = await navigator.clipboard?.writeText(field.value).then(() => true, () => false) || document.execCommand("copy");
  button.textContent = isCopied ? "Copied" : "It is selected: press Ctrl+C";
});
document.addEventListener("change", ({ target }) => {
  if (!target.matches("[data-ticks]")) return;
  for (const box of target.form.querySelectorAll("input[type=checkbox]")) box.checked = target.checked;
});
let isSure = false;
document.addEventListener("submit", (event) => {
  if (event.defaultPrevented || isSure) return;
  follow(event, () => {
    isSure = true;
    event.target.requestSubmit(event.submitter);
    isSure = false;
  });
});
// An address that is kept or sent holds what was filled in, and no empty fields.
document.addEventListener("htmx:configRequest", ({ detail }) => {
  if (detail.verb !== "get") return;
  const filled = new FormData();
  for (const [name, value] of detail.formData) if (value !== "") filled.append(name, value);
  detail.parameters = filled;
});
for (const name of ["htmx:sendError", "htmx:timeout"]) document.addEventListener(name, away);
// What is refused has a page of its own, which says why.
document.addEventListener("htmx:responseError", (event) => {
  const { requestConfig, pathInfo, xhr } = event.detail;
  if (xhr.status < 500 && requestConfig.triggeringEvent?.type === "submit") location.assign(pathInfo.finalRequestPath);
  else away();
});
// A form that acts waits as it is while the server is away. Once it was taken a page follows; what answers at its own
// address is shown in its place: a refusal, or a new key, which no other address has.
document.addEventListener("htmx:beforeSwap", ({ detail }) => {
  if (!detail.boosted || detail.xhr.status >= 500) return;
  const own = new URL(detail.pathInfo.finalRequestPath, location).href;
  if (detail.xhr.status < 400 && detail.xhr.responseURL !== own) {
    detail.shouldSwap = false;
    location.assign(detail.xhr.responseURL);
  } else {
    const target = document.getElementById("main");
    document.title = new DOMParser().parseFromString(detail.serverResponse, "text/html").title;
    Object.assign(detail, { target, selectOverride: "#main", swapOverride: "outerHTML", isError: false, shouldSwap: true });
  }
});
document.addEventListener("htmx:afterOnLoad", ({ detail }) => { if (detail.xhr.status < 500) back(); });
// Single keys. A reader may turn them off (WCAG 2.1.4): who dictates, or whose hand shakes, presses some unawares.
const keyboard = document.getElementById("keyboard");
const usesKeys = () => localStorage.getItem("single-keys") !== "off";
keyboard?.addEventListener("beforetoggle", () => { keyboard.querySelector("input").checked = usesKeys(); });
keyboard?.addEventListener("change", ({ target }) => localStorage.setItem("single-keys", target.checked ? "on" : "off"));
function search() {
  const field = document.querySelector("[role=search] input[id]");
  field?.focus();
  field?.select();
  if (!field) document.querySelector("header a[href*='/ask']")?.click();
}
// The focus goes to what opens the row, so that Enter does.
function move(by) {
  const rows = new Map();
  for (const row of document.querySelectorAll("main :is(.tree, .history) > li, main tbody > tr")) {
    const opens = row.querySelector("a[href], summary, input[type=checkbox]");
    if (opens?.checkVisibility() && !rows.has(opens)) rows.set(opens, row);
  }
  const all = [...rows.keys()];
  const now = all.findLastIndex((opens) => rows.get(opens).contains(document.activeElement));
  const next = all[Math.min(Math.max(now + by, 0), all.length - 1)];
  rows.get(next)?.scrollIntoView({ block: "nearest" });
  next?.focus();
}
const KEYS = { "/": search, "?": () => keyboard.togglePopover(), j: () => move(1), k: () => move(-1) };
document.addEventListener("keydown", (event) => {
  const isWriting = event.target.matches("input:not([type=checkbox]), select, textarea");
  if (isWriting && event.key === "Escape" && !event.isComposing) event.target.blur();
  if (isWriting || event.ctrlKey || event.altKey || event.metaKey || !keyboard || !KEYS[event.key] || !usesKeys()) return;
  event.preventDefault();
  if (event.key !== "?") keyboard.hidePopover();
  KEYS[event.key]();
});
// What is as it was stays, and the focus with it.
function show(live, html) {
  const sent = document.createElement("div");
  sent.innerHTML = html;
  localize(sent);
  const shown = [...live.children];
  [...sent.children].forEach((part, place) => {
    if (!shown[place]) live.append(part);
    else if (!shown[place].isEqualNode(part)) shown[place].replaceWith(part);
  });
}
// What changes by itself comes as server-sent events. A hidden page has no stream: browsers open only six to one server.
for (const live of document.querySelectorAll("[data-live]")) {
  let source, again;
  const begin = () => {
    clearTimeout(again);
    source?.close();
    if (document.hidden) return;
    source = new EventSource(live.dataset.live);
    source.addEventListener("open", back);
    source.addEventListener("message", (event) => show(live, event.data));
    source.addEventListener("ended", () => location.reload());
    source.addEventListener("over", () => {
      source.close();
      document.removeEventListener("visibilitychange", begin);
    });
    source.addEventListener("error", () => {
      offline.hidden = false;
      // A browser gives up where the answer is no stream: so do proxies answer while a server is replaced.
      if (source.readyState === EventSource.CLOSED) again = setTimeout(begin, 2000 + 2000 * Math.random());
    });
  };
  document.addEventListener("visibilitychange", begin);
  begin();
}
