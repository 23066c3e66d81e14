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
document.addEventListener("htmx:afterOnLoad", () => { offline.hidden = true; });
