// The page of many pairs: which are shown, in which order, fifty at a time. Text only, never markup.

const PER_PAGE = 50;
const STATES = { failed: ["✕", "failed"], doubtful: ["!", "not to be relied upon"] };

class Table {
  constructor(facts) {
    this.facts = facts;
    this.columns = facts.columns;
    this.rows = facts.rows.map((row, rank) => ({ ...row, rank, state: row.e ? "failed" : row.d ? "doubtful" : "fine" }));
    for (const row of this.rows) row.said = [row.n, row.e, ...(row.d ?? []), ...(row.t ?? [])].join(" ").toLowerCase();
    this.sheets = new Map();
    this.clear();
  }

  clear() {
    this.state = { search: "", show: "all", texts: this.facts.texts.map(() => ""), bins: new Map(), by: "worst", down: false, page: 0 };
  }

  build() {
    const { facts } = this;
    document.title = `${facts.title} · Roundtrip`;
    byId("title").textContent = facts.title;
    document.documentElement.style.setProperty("--side", `${Math.min(facts.stamps.side, 64)}px`);
    this.countStates();
    this.histograms = this.columns.flatMap((column, n) => (column.histogram ? [new Histogram(column, n, this.rows, (...which) => this.choose(...which))] : []))
      .filter((histogram) => histogram.bins.length);
    byId("histograms").append(...this.histograms.map((histogram) => histogram.figure));
    byId("histograms").hidden = !this.histograms.length;
    this.buildControls();
    this.buildHead();
    for (const { title, names, rows } of facts.tables) byId("tables").append(summary(title, names, rows));
    fillTable(byId("about"), byId("about-part"), facts.about.map(([name, value]) => [words(name), value]));
    addTheme();
  }

  countStates() {
    const counts = byId("counts");
    counts.textContent = `${short(this.rows.length)} pair${this.rows.length === 1 ? "" : "s"}`;
    for (const [state, [, text]] of Object.entries(STATES)) {
      const count = this.rows.filter((row) => row.state === state).length;
      if (!count) continue;
      const button = made("button", { type: "button", className: "link", textContent: `${short(count)} ${text}` });
      button.addEventListener("click", () => this.change({ show: state }));
      counts.append(", ", button);
    }
  }

  buildControls() {
    const { facts } = this;
    const choices = [["all", "all pairs"], ["fine", "those without complaint"], ["doubtful", "not to be relied upon"], ["failed", "failed"]];
    byId("show").append(...choices.map(option));
    facts.texts.forEach((name, n) => {
      const values = [...new Set(this.rows.map((row) => row.t?.[n] ?? ""))].sort();
      if (values.length < 2 || values.length > 40) return;
      const label = made("label"), select = made("select", { id: `text-${n}` });
      select.append(option(["", "all"]), ...values.filter(Boolean).map((value) => option([value, value])));
      select.addEventListener("change", () => this.change({ texts: this.state.texts.with(n, select.value) }));
      label.append(made("span", { textContent: words(name) }), select);
      byId("texts").append(label);
    });
    byId("order").append(option(["worst", "worst first"]), option(["name", "name"]), ...facts.texts.map((name, n) => option([`text ${n}`, words(name)])),
      ...this.columns.map((column, n) => option([`value ${n}`, column.title])));
    byId("search").addEventListener("input", () => this.change({ search: byId("search").value }));
    byId("show").addEventListener("change", () => this.change({ show: byId("show").value }));
    byId("order").addEventListener("change", () => this.sort(byId("order").value));
    byId("turn").addEventListener("click", () => this.change({ down: !this.state.down }));
    byId("clear").addEventListener("click", () => { this.clear(); this.show(); });
    byId("previous").addEventListener("click", () => this.turnTo(this.state.page - 1));
    byId("next").addEventListener("click", () => this.turnTo(this.state.page + 1));
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select")) return;
      if (event.key !== "/") return;
      byId("search").focus();
      event.preventDefault();
    });
  }

  buildHead() {
    const stamp = made("th", { scope: "col", textContent: "fixed, warped, difference" });
    stamp.hidden = !this.hasStamps();
    const heads = [["name", "Pair"], ...this.facts.texts.map((name, n) => [`text ${n}`, words(name)]), ...this.columns.map((column, n) => [`value ${n}`, column.title])];
    byId("head").append(stamp, ...heads.map(([by, text]) => {
      const head = made("th", { scope: "col" }), button = made("button", { type: "button", textContent: text });
      head.dataset.by = by;
      button.addEventListener("click", () => (this.state.by === by ? this.change({ down: !this.state.down }) : this.sort(by)));
      head.append(button);
      return head;
    }));
  }

  hasStamps() {
    return this.facts.stamps.sheets.length > 0;
  }

  // What is asked of the table.

  change(changes) {
    Object.assign(this.state, { page: 0 }, changes);
    this.show();
  }

  /** By a column: its bad end first. */
  sort(by) {
    const column = by.startsWith("value ") ? this.columns[Number(by.slice(6))] : null;
    this.change({ by, down: column?.worse === "higher" });
  }

  choose(histogram, n, extend) {
    const bins = new Map(this.state.bins), before = bins.get(histogram.index);
    if (extend && before) bins.set(histogram.index, [Math.min(before[0], n), Math.max(before[1], n)]);
    else if (before && before[0] === n && before[1] === n) bins.delete(histogram.index);
    else bins.set(histogram.index, [n, n]);
    this.change({ bins });
  }

  turnTo(page) {
    this.change({ page });
    byId("said").scrollIntoView({ block: "nearest" });
  }

  // What is shown.

  passes(row) {
    const { search, show, texts, bins } = this.state;
    if (show !== "all" && row.state !== show) return false;
    if (!texts.every((text, n) => !text || row.t?.[n] === text)) return false;
    if (!search.toLowerCase().split(" ").every((word) => row.said.includes(word))) return false;
    return this.histograms.every(({ index, bins: all }) => {
      const chosen = bins.get(index);
      return !chosen || all.slice(chosen[0], chosen[1] + 1).some((bin) => isIn(bin, row.v[index]));
    });
  }

  sorted(rows) {
    const { by, down } = this.state, sign = down ? -1 : 1;
    const [kind, place] = by.split(" ");
    if (kind === "worst") return [...rows].sort((a, b) => sign * (a.rank - b.rank));
    const key = { name: (row) => row.n, text: (row) => row.t?.[place] ?? "", value: (row) => row.v[place] }[kind];
    const compared = kind === "value" ? (a, b) => a - b : new Intl.Collator("en", { numeric: true }).compare;
    return [...rows].sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      // What has no number comes last, whichever way.
      if (x === null || y === null) return (x === null) - (y === null) || a.rank - b.rank;
      return sign * compared(x, y) || a.rank - b.rank;
    });
  }

  show() {
    const { state } = this;
    const found = this.rows.filter((row) => this.passes(row));
    const pages = Math.max(1, Math.ceil(found.length / PER_PAGE));
    state.page = Math.min(Math.max(state.page, 0), pages - 1);
    const from = state.page * PER_PAGE;
    const shown = this.sorted(found).slice(from, from + PER_PAGE);
    byId("rows").replaceChildren(...shown.map((row) => this.rowOf(row)));
    for (const histogram of this.histograms) histogram.show(found, state.bins.get(histogram.index));
    byId("said").textContent = found.length
      ? `${short(from + 1)} to ${short(from + shown.length)} of ${short(found.length)}${found.length < this.rows.length ? ` (of ${short(this.rows.length)} pairs)` : ""}`
      : "No pair is like that.";
    byId("page").textContent = `${short(state.page + 1)} / ${short(pages)}`;
    byId("pager").hidden = pages === 1;
    byId("previous").disabled = state.page === 0;
    byId("next").disabled = state.page === pages - 1;
    this.showControls(found.length);
  }

  /** Controls say what is so, whoever changed it. */
  showControls(found) {
    const { state } = this;
    if (byId("search").value !== state.search) byId("search").value = state.search;
    byId("show").value = state.show;
    byId("order").value = state.by;
    byId("turn").textContent = state.down ? "▼" : "▲";
    byId("turn").setAttribute("aria-label", state.down ? "Falling; turn around" : "Rising; turn around");
    byId("clear").disabled = found === this.rows.length && state.by === "worst" && !state.down;
    state.texts.forEach((text, n) => { if (byId(`text-${n}`)) byId(`text-${n}`).value = text; });
    for (const head of byId("head").children) {
      if (head.dataset.by) head.setAttribute("aria-sort", head.dataset.by !== state.by ? "none" : state.down ? "descending" : "ascending");
    }
  }

  rowOf(row) {
    const line = made("tr");
    line.dataset.state = row.state;
    if (this.hasStamps()) line.append(this.stampCell(row));
    line.append(nameCell(row));
    if (row.t) line.append(...row.t.map((text, n) => titled(made("td", { textContent: text }), words(this.facts.texts[n]))));
    if (row.e) {
      line.append(made("td", { className: "reason", colSpan: Math.max(1, this.columns.length), textContent: row.e }));
    } else {
      line.append(...this.columns.map((column, n) => valueCell(column, row.v[n], row.b?.[n] ?? null)));
    }
    if (row.r) {
      line.className = "opens";
      line.addEventListener("click", (event) => {
        if (!event.target.closest("a") && !String(window.getSelection())) line.querySelector("a").click();
      });
    }
    return line;
  }

  stampCell(row) {
    const cell = made("td", { className: "stamp" });
    if (row.p === undefined) return cell;
    const { side, per_sheet: perSheet, sheets } = this.facts.stamps;
    const canvas = made("canvas", { width: 3 * side, height: side });
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `fixed, warped and difference of ${row.n}`);
    cell.append(canvas);
    this.sheet(sheets[Math.floor(row.p / perSheet)]).then((picture) => {
      canvas.getContext("2d").drawImage(picture, 0, side * (row.p % perSheet), 3 * side, side, 0, 0, 3 * side, side);
      canvas.dataset.drawn = "yes";
    });
    return cell;
  }

  /** A sheet is unpacked when the first of its stamps is shown. */
  sheet(name) {
    if (!this.sheets.has(name)) {
      const picture = new Image();
      picture.src = `data:image/jpeg;base64,${byId(`block-${name}`).textContent}`;
      this.sheets.set(name, picture.decode().then(() => picture));
    }
    return this.sheets.get(name);
  }
}

const option = ([value, textContent]) => made("option", { value, textContent });

function titled(cell, title) {
  cell.dataset.title = title;
  return cell;
}

function nameCell(row) {
  const cell = made("th", { scope: "row", className: "name" });
  if (STATES[row.state]) {
    const [sign, text] = STATES[row.state];
    const mark = made("span", { className: "state", textContent: sign, title: text });
    mark.setAttribute("role", "img");
    mark.setAttribute("aria-label", text);
    cell.append(mark);
  }
  cell.append(row.r ? made("a", { href: row.r, textContent: row.n }) : row.n);
  for (const doubt of row.d ?? []) cell.append(made("span", { className: "why", textContent: doubt }));
  return cell;
}

function valueCell(column, value, before) {
  const cell = titled(made("td", { className: "number" }), column.title);
  const number = made("span", { textContent: short(value) });
  const fell = value !== null && before !== null && (column.worse === "lower" ? value < before : column.worse === "higher" && value > before);
  if (fell) {
    number.className = "fell";
    number.title = "worse than before";
  }
  cell.append(number);
  if (before !== null) cell.append(made("span", { className: "was", textContent: `was ${short(before)}` }));
  return cell;
}

function summary(title, names, rows) {
  const part = made("section", { className: "card" }), scroller = made("div", { className: "scroller" }), table = made("table"), head = made("thead"), body = made("tbody");
  const heads = made("tr");
  heads.append(...names.map((name) => made("th", { scope: "col", textContent: words(name) })));
  head.append(heads);
  body.append(...rows.map((values) => {
    const row = made("tr");
    row.append(...values.map((value, n) => made(n ? "td" : "th", { textContent: n ? short(value) : words(String(value)) })));
    return row;
  }));
  table.append(head, body);
  scroller.append(table);
  part.append(made("h2", { textContent: title }), scroller);
  return part;
}

try {
  const table = new Table(JSON.parse(byId("facts").textContent));
  table.build();
  table.show();
  performance.mark("first view");
  document.documentElement.dataset.ready = "yes";
} catch (error) {
  byId("notice").hidden = false;
  byId("notice").textContent = `The table could not be shown: ${error.message}.`;
  console.error(error);
}
