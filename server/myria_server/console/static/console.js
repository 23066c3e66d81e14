// Shows moments in the reader's zone; the title keeps them in UTC. Everything works without this.
"use strict";
const format = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
function localize(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const moment = new Date(time.dateTime);
    if (!Number.isNaN(moment.getTime())) time.textContent = format.format(moment);
  }
}
localize(document);
const zone = document.getElementById("zone");
if (zone) zone.textContent = `${format.resolvedOptions().timeZone}; point at one to see it in UTC`;
document.addEventListener("htmx:load", (event) => localize(event.detail.elt));
const offline = document.getElementById("offline");
for (const name of ["htmx:sendError", "htmx:timeout"])
  document.addEventListener(name, () => { offline.hidden = false; });
// What is refused has a page of its own, which says why.
document.addEventListener("htmx:responseError", (event) => {
  const { requestConfig, pathInfo, xhr } = event.detail;
  if (xhr.status < 500 && requestConfig.triggeringEvent?.type === "submit") location.assign(pathInfo.finalRequestPath);
  else offline.hidden = false;
});
// A form that acts waits as it is while the server is away. Once it was taken a page follows; a refusal is shown in its place.
document.addEventListener("htmx:beforeSwap", ({ detail }) => {
  if (!detail.boosted || detail.xhr.status >= 500) return;
  if (detail.xhr.status < 400) location.assign(detail.xhr.responseURL);
  else {
    const target = document.getElementById("main");
    Object.assign(detail, { target, selectOverride: "#main", swapOverride: "outerHTML", isError: false });
  }
  detail.shouldSwap = detail.xhr.status >= 400;
});
document.addEventListener("htmx:afterOnLoad", () => { offline.hidden = true; });
// What changes by itself comes as server-sent events. A hidden page has no stream: browsers open only six to one server.
for (const live of document.querySelectorAll("[data-live]")) {
  let source, again;
  const begin = () => {
    clearTimeout(again);
    source?.close();
    if (document.hidden) return;
    source = new EventSource(live.dataset.live);
    source.addEventListener("open", () => { offline.hidden = true; });
    source.addEventListener("message", (event) => {
      live.innerHTML = event.data;
      localize(live);
    });
    source.addEventListener("ended", () => location.reload());
    source.addEventListener("error", () => {
      offline.hidden = false;
      // A browser gives up where the answer is no stream: so do proxies answer while a server is replaced.
      if (source.readyState === EventSource.CLOSED) again = setTimeout(begin, 2000 + 2000 * Math.random());
    });
  };
  document.addEventListener("visibilitychange", begin);
  begin();
}
