// Figures of the overview as they change. Without this script the page shows those of its first moment.
"use strict";
const places = document.querySelectorAll("[data-figure]");
const state = document.getElementById("live");
if (places.length && state && window.EventSource) {
  const stream = new EventSource("/live");
  stream.addEventListener("figures", (event) => {
    const told = JSON.parse(event.data);
    for (const place of places) {
      const figure = told[place.dataset.figure];
      if (figure !== undefined && place.textContent !== figure) place.textContent = figure;
    }
    state.textContent = state.dataset.live;
  });
  const away = () => { state.textContent = state.dataset.away; };
  stream.addEventListener("away", away);
  stream.onerror = away;
  window.addEventListener("pagehide", () => stream.close());
}
