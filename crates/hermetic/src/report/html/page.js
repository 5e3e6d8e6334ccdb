// Sorts and filters the table of all tests. The page is complete without it. After a change, the digest in html.rs
// must be replaced: its unit test prints the new one.
"use strict";
window.onerror = (message) => { document.body.dataset.error = message; };
const all = document.getElementById("all");
const body = all.querySelector("tbody");
const rows = [...body.rows];
const [search, result, count] = all.querySelectorAll("input, select, output");

function filter() {
  const wanted = search.value.toLowerCase();
  let shown = 0;
  for (const row of rows) {
    const named = row.cells[0].textContent.toLowerCase().includes(wanted);
    row.hidden = !(named && (result.value === "" || row.className === result.value));
    shown += row.hidden ? 0 : 1;
  }
  count.textContent = shown === rows.length ? "" : `${shown} of ${rows.length}`;
}

// Columns of numbers begin with the largest. A row without a number is last.
function sort(head, column) {
  const isText = column < 2;
  const before = head.getAttribute("aria-sort");
  const descends = before ? before === "ascending" : !isText;
  const text = (row) => row.cells[column]?.textContent ?? "";
  const number = (row) => { const value = parseFloat(text(row)); return isNaN(value) ? -1 : value; };
  rows.sort((a, b) => isText ? text(a).localeCompare(text(b)) : number(a) - number(b));
  if (descends) rows.reverse();
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", descends ? "descending" : "ascending");
  body.append(...rows);
}

[...all.querySelector("thead tr").cells].forEach((head, column) => {
  const button = document.createElement("button");
  button.append(...head.childNodes);
  head.append(button);
  button.onclick = () => sort(head, column);
});
search.oninput = result.onchange = filter;
document.getElementById("filter").hidden = false;
document.body.dataset.ready = "1";
