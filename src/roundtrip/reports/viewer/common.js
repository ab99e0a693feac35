// What the pages of one pair and of many have in common. Text only, never markup.

const byId = (id) => document.getElementById(id);

const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

function made(tag, properties = {}) {
  return Object.assign(document.createElement(tag), properties);
}

function darkNow() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : window.matchMedia("(prefers-color-scheme: dark)").matches;
}

function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  byId("theme").textContent = darkNow() ? "Light" : "Dark";
}

/** Light and dark follow the system, or the button. */
function addTheme() {
  byId("theme").addEventListener("click", () => setTheme(darkNow() ? "light" : "dark"));
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => setTheme(null));
  setTheme(null);
}

function fillTable(body, part, rows) {
  for (const [name, value] of rows) {
    const row = made("tr");
    const head = made("th", { textContent: name });
    head.scope = "row";
    row.append(head, made("td", { textContent: value }));
    body.append(row);
  }
  part.hidden = rows.length === 0;
}

const words = (name) => name.replaceAll("_", " ").replace(/ (mm|voxels)$/, " ($1)").replace(/ percent$/, " (%)")
  .replace(/^roundtrip/, "round-trip").replace(/^./, (letter) => letter.toUpperCase());

function short(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value !== "number") return String(value);
  return Number.isInteger(value) ? value.toLocaleString("en") : String(Number(value.toPrecision(3)));
}
