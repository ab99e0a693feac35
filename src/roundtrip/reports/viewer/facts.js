// What stands beside the images: verdict, numbers, labels, settings, command. Text only, never markup.

function showFacts(page) {
  const { facts } = page;
  byId("fixed-name").textContent = facts.names.fixed;
  byId("moving-name").textContent = facts.names.moving;
  document.title = `${facts.names.fixed} and ${facts.names.moving} · Roundtrip`;
  showVerdict(page);
  fillTable(byId("numbers"), byId("numbers-part"), numbersOf(facts.metrics));
  fillTable(byId("settings"), byId("settings-part"), flattened(facts.metrics.settings ?? {}));
  byId("command").textContent = facts.command;
  byId("command-part").hidden = !facts.command;
  byId("copy").addEventListener("click", () => copy(facts.command));
  showLabels(page);
}

const SIGNS = { good: "✓", look: "!", bad: "✕" };
const SIGN_WORDS = { good: "good", look: "worth a look", bad: "bad" };

function signOf(level) {
  const sign = made("span", { className: "sign", textContent: SIGNS[level] });
  sign.setAttribute("role", "img");
  sign.setAttribute("aria-label", SIGN_WORDS[level]);
  return sign;
}

function showVerdict(page) {
  const { facts } = page, { verdict } = facts;
  byId("verdict").dataset.level = verdict.level;
  byId("headline").textContent = verdict.headline;
  byId("says").dataset.level = verdict.level;
  byId("says").append(signOf(verdict.level), verdict.headline);
  for (const finding of verdict.findings) {
    const item = made("li");
    item.dataset.level = finding.level;
    const words = made("span", { textContent: `${finding.text} ` });
    if (finding.at || (finding.label !== null && facts.labels)) {
      const look = made("button", { type: "button", className: "link", textContent: "Look there" });
      look.addEventListener("click", () => page.look(finding));
      words.append(look);
    }
    item.append(signOf(finding.level), words);
    byId("findings").append(item);
  }
}

const arrow = (before, after) => (before == null ? short(after) : `${short(before)} → ${short(after)}`);

// Said in the verdict, or in a table of their own.
const ELSEWHERE = new Set(["settings", "ok", "reasons", "notes"]);

function numbersOf(metrics) {
  const rows = [];
  for (const [name, value] of Object.entries(metrics)) {
    if (ELSEWHERE.has(name) || value === null) continue;
    if (name === "similarity") rows.push([value.better ? `${value.name} (${value.better} is better)` : value.name, arrow(value.before, value.after)]);
    else if (name === "folds") rows.push(...foldRows(value));
    else if (value && typeof value === "object" && "mean" in value) rows.push(...meanRows(words(name), value));
    else rows.push(...flattened({ [name]: value }));
  }
  return rows;
}

function foldRows(folds) {
  const rows = [["Folded voxels", `${short(folds.count)} (${short(folds.percent)} %)`]];
  const volume = folds.non_diffeomorphic_volume_percent;
  if (volume !== undefined) rows.push(["Folded volume", `${short(volume)} %`]);
  return rows;
}

function meanRows(name, value) {
  const before = value.before && typeof value.before === "object" ? value.before.mean : value.before;
  const over = value.num_labels === undefined ? "" : ` (${value.num_labels} labels)`;
  const parts = [`${arrow(before, value.mean)} on average${over}`];
  if ("p99" in value) parts.push(`${short(value.p99)} at 99 %`);
  if ("max" in value) parts.push(`${short(value.max)} at most`);
  return [[name, parts.join("\n")]];
}

/** Names and values of nested settings, the names joined by dots. */
function flattened(values, prefix = "") {
  return Object.entries(values).flatMap(([name, value]) =>
    value && typeof value === "object" && !Array.isArray(value)
      ? flattened(value, `${prefix}${words(name)}. `)
      : [[`${prefix}${words(name)}`, Array.isArray(value) ? value.map(short).join(", ") : short(value)]]);
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    byId("copy").textContent = "Copied";
  } catch {
    window.getSelection().selectAllChildren(byId("command"));
    byId("copy").textContent = "Selected";
  }
  setTimeout(() => { byId("copy").textContent = "Copy"; }, 1500);
}

// Labels: a table whose columns sort and whose rows show one label alone.

const COLUMNS = [["label", "Label"], ["before", "Before"], ["after", "Dice"], ["gain", "Change"]];

function showLabels(page) {
  const { facts } = page, { labels } = facts;
  const dice = facts.metrics.dice ?? {};
  const after = dice.labels ?? {}, before = dice.before?.labels ?? {};
  const values = labels ? labels.values.filter((value) => value !== 0) : Object.keys(after).map(Number);
  const rows = values.map((label) => {
    const row = { label, before: before[label] ?? null, after: after[label] ?? null };
    return { ...row, gain: row.before === null || row.after === null ? null : row.after - row.before };
  });
  byId("dice-part").hidden = rows.length === 0;
  const order = { by: rows.some((row) => row.after !== null) ? "after" : "label", down: false };
  const show = () => listLabels(page, rows, order);
  for (const [field, text] of COLUMNS) {
    const head = made("th", { scope: "col" }), button = made("button", { type: "button", textContent: text });
    button.addEventListener("click", () => {
      order.down = order.by === field ? !order.down : false;
      order.by = field;
      show();
    });
    head.dataset.field = field;
    head.append(button);
    byId("dice-head").append(head);
  }
  byId("label-filter").addEventListener("input", show);
  byId("all-labels").addEventListener("click", () => {
    byId("label-filter").value = "";
    page.change({ label: null });
    show();
  });
  show();
}

function listLabels(page, rows, order) {
  const wanted = byId("label-filter").value.trim();
  const sorted = rows.filter((row) => String(row.label).includes(wanted)).sort((one, other) => {
    const [a, b] = [one[order.by] ?? Infinity, other[order.by] ?? Infinity];
    return (order.down ? b - a : a - b) || one.label - other.label;
  });
  for (const head of byId("dice-head").children) {
    head.setAttribute("aria-sort", head.dataset.field !== order.by ? "none" : order.down ? "descending" : "ascending");
  }
  byId("dice").replaceChildren(...sorted.map((row) => labelRow(page, row)));
  markLabel(page);
}

function labelRow(page, { label, before, after, gain }) {
  const row = made("tr"), head = made("th", { scope: "row" });
  row.dataset.label = label;
  if (page.facts.labels) {
    const button = made("button", { type: "button", className: "link", textContent: label });
    button.setAttribute("aria-label", `Show label ${label} alone`);
    button.addEventListener("click", () => page.lookAtLabel(label));
    head.append(button);
  } else head.textContent = label;
  row.append(head, made("td", { textContent: before === null ? "–" : before.toFixed(3) }), diceBar(before, after));
  row.append(made("td", { textContent: gain === null ? "–" : `${gain < 0 ? "−" : "+"}${Math.abs(gain).toFixed(3)}` }));
  return row;
}

/** The Dice as a number over a bar; a mark stands where it was before. */
function diceBar(before, after) {
  const cell = made("td", { className: "bar" });
  cell.append(made("span", { textContent: after === null ? "–" : after.toFixed(3) }));
  cell.style.setProperty("--dice", `${100 * (after ?? 0)}%`);
  cell.style.setProperty("--before", `${100 * (before ?? 0)}%`);
  return cell;
}

function markLabel(page) {
  const shown = page.state.label === null ? null : page.facts.labels.values[page.state.label];
  for (const row of byId("dice").children) row.setAttribute("aria-selected", String(Number(row.dataset.label) === shown));
}
