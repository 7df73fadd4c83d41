// Figures and messages as they change. Without this script a page shows those of its first moment.
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

const tail = document.getElementById("tail");
if (tail && window.EventSource) {
  const ROWS_MAX = 100;
  const body = document.querySelector("tbody");
  const stream = new EventSource(tail.dataset.source);
  const cell = (row, text, kind) => {
    const made = row.insertCell();
    made.className = kind;
    made.textContent = text;
    return made;
  };
  stream.addEventListener("messages", (event) => {
    const told = JSON.parse(event.data);
    for (const one of told.messages) {
      const row = body.insertRow();
      const link = document.createElement("a");
      link.href = "/message?" + new URLSearchParams({ id: one.id });
      link.textContent = one.id;
      cell(row, "", "").append(link);
      cell(row, one.stored, "time");
      cell(row, one.key, "");
      cell(row, one.tag, "");
      cell(row, one.bytes.toLocaleString("en"), "n");
      const text = document.createElement(one.hidden ? "span" : "code");
      text.textContent = one.hidden ? `${tail.dataset.hidden} ${one.hidden}` : one.cut ? one.body + "…" : one.body;
      cell(row, "", "wide").append(text);
    }
    while (body.rows.length > ROWS_MAX || (body.rows.length && body.rows[0].cells.length === 1)) body.deleteRow(0);
    tail.textContent = told.left_out ? `${tail.dataset.left} ${told.left_out}` : tail.dataset.live;
  });
  const away = () => { tail.textContent = tail.dataset.away; };
  stream.addEventListener("away", away);
  stream.onerror = away;
  window.addEventListener("pagehide", () => stream.close());
}

// A page of something that goes on looks again by itself.
if (document.querySelector("[data-again]")) setTimeout(() => location.reload(), 1000);

// A table that is wider than the window is scrolled with the keyboard, too.
const reach = () => {
  for (const one of document.querySelectorAll(".scroll")) {
    if (one.scrollWidth > one.clientWidth) one.tabIndex = 0;
    else one.removeAttribute("tabindex");
  }
};
reach();
window.addEventListener("resize", reach);
