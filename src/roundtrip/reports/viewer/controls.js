// Buttons, lists, sliders and keys: each changes one thing of the page's state.

const MODES = [
  ["fixed", "Fixed", "f"], ["moving", "Moving", "m"], ["blink", "Blink", "b"], ["wipe", "Wipe", "w"],
  ["checker", "Checkerboard", "c"], ["overlay", "Colours", "o"], ["difference", "Difference", "d"],
];
const MOMENTS = [["before", "Before", "a"], ["after", "After", "a"]];

const AMOUNTS = {
  blink: { name: "Seconds", field: "beat", min: 0.4, max: 2, step: 0.1 },
  wipe: { name: "Position", field: "wipe", min: 0, max: 1, step: 0.005 },
  checker: { name: "Tiles", field: "tiles", min: 2, max: 24, step: 1 },
};

const KEYS = [
  ["arrows", "move the cross-hair in the active view"], ["Page up, Page down", "next and previous slice of the active view"],
  ["Tab", "next view or control"], ["f m b w c o d", "fixed, moving, blink, wipe, checkerboard, colours, difference"],
  ["a", "before or after registration"], ["l", "label outlines"], ["j e", "Jacobian map, round-trip error map"],
  ["g", "next grid"], ["x", "cross-hair"], ["+ - 0", "zoom in, out, reset"], ["Enter", "enlarge the active view, or make it small again"],
  ["Esc", "leave the large view; show all labels"], ["?", "these keys"],
  ["mouse", "click or drag: cross-hair; wheel: slices; Ctrl and wheel: zoom; Shift and drag: shift; double click: enlarge"],
  ["touch", "drag: cross-hair; two fingers: zoom and shift; slider below a view: slices"],
];

function addChoices(host, name, choices, choose) {
  for (const [value, text, key] of choices) {
    const label = made("label"), input = made("input", { type: "radio", name, value });
    input.addEventListener("change", () => choose(value));
    label.append(input, made("span", { textContent: text, title: `Key: ${key}` }));
    host.append(label);
  }
}

function addControls(page) {
  addChoices(byId("modes"), "mode", MODES, (mode) => page.change({ mode }));
  addChoices(byId("moments"), "moment", MOMENTS, (moment) => page.change({ moment }));
  for (const name of ["map", "grid"]) byId(name).addEventListener("change", (event) => page.change({ [name]: event.target.value }));
  for (const name of ["outlines", "crosshair", "linear"]) {
    byId(name).addEventListener("change", (event) => page.change({ [name]: event.target.checked }));
  }
  byId("amount").addEventListener("input", (event) => page.change({ [AMOUNTS[page.state.mode].field]: Number(event.target.value) }));
  byId("black").addEventListener("input", (event) => page.change({ black: Math.min(Number(event.target.value), page.state.white - 1) }));
  byId("white").addEventListener("input", (event) => page.change({ white: Math.max(Number(event.target.value), page.state.black + 1) }));
  byId("reset").addEventListener("click", () => page.reset());
  byId("help").addEventListener("click", toggleKeys);
  for (const [key, text] of KEYS) byId("key-list").append(made("dt", { textContent: key }), made("dd", { textContent: text }));
  document.addEventListener("keydown", (event) => pressed(page, event));
  addTheme();
}

/** Controls say what is so, whoever changed it. */
function showControls(page) {
  const { state } = page;
  for (const [group, value] of [["mode", state.mode], ["moment", state.moment]]) {
    for (const input of document.getElementsByName(group)) input.checked = input.value === value;
  }
  for (const name of ["map", "grid", "black", "white"]) byId(name).value = state[name];
  for (const name of ["outlines", "crosshair", "linear"]) byId(name).checked = state[name];
  const amount = AMOUNTS[state.mode];
  byId("amount-label").hidden = !amount;
  if (amount) {
    byId("amount-name").textContent = amount.name;
    Object.assign(byId("amount"), { min: amount.min, max: amount.max, step: amount.step });
    byId("amount").value = state[amount.field];
  }
  byId("linear-label").hidden = state.grid === "none";
  byId("outlines-label").hidden = !page.labels;
}

function toggleKeys() {
  const hidden = !byId("keys").hidden;
  byId("keys").hidden = hidden;
  byId("help").setAttribute("aria-expanded", String(!hidden));
}

const next = (values, value) => values[(values.indexOf(value) + 1) % values.length];

function pressed(page, event) {
  const { target, key } = event;
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (target.matches("input:not([type=checkbox]):not([type=radio]), select, textarea")) return;
  if (arrowPressed(page, event)) return event.preventDefault();
  const { state } = page;
  const mode = MODES.find(([, , letter]) => letter === key);
  const toggled = (map) => ({ map: state.map === map ? "none" : map });
  if (mode) page.change({ mode: mode[0] });
  else if (key === "a") page.change({ moment: next(["before", "after"], state.moment) });
  else if (key === "l" && page.labels) page.change({ outlines: !state.outlines });
  else if (key === "j") page.change(toggled("jacobian"));
  else if (key === "e") page.change(toggled("error"));
  else if (key === "g") page.change({ grid: next(["none", "forward", "backward"], state.grid) });
  else if (key === "x") page.change({ crosshair: !state.crosshair });
  else if (key === "+" || key === "=") page.activeView().zoom(1.25);
  else if (key === "-") page.activeView().zoom(0.8);
  else if (key === "0") page.reset();
  else if (key === "?") toggleKeys();
  else if (key === "Escape") page.change({ large: null, label: null });
  else if (key === "Enter" && target.matches("canvas")) page.enlarge(page.state.active);
  else return;
  event.preventDefault();
}

function arrowPressed(page, { key, target }) {
  // Arrows belong to a group of choices while it has the focus.
  if (target.matches("input[type=radio]") && key.startsWith("Arrow")) return false;
  const { plane } = page.activeView();
  const up = plane.up ? 1 : -1;
  const steps = {
    ArrowLeft: [plane.across, -1], ArrowRight: [plane.across, 1], ArrowUp: [plane.down, up], ArrowDown: [plane.down, -up],
    PageUp: [plane.axis, 1], PageDown: [plane.axis, -1],
  };
  if (!(key in steps)) return false;
  const [axis, step] = steps[key];
  page.moveTo(axis, page.state.at[axis] + step);
  return true;
}
