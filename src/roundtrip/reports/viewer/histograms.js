// Histograms that filter: a bar is a button, its pale part all pairs, its strong part those that are shown.

const MOST_BINS = 20;

/** Where the bars of a column begin and end; the outermost are open, so that every pair is in one. */
function binsOf(values) {
  const sorted = values.filter((value) => value !== null).sort((a, b) => a - b);
  if (!sorted.length) return [];
  return sorted.every((value) => Number.isInteger(value) && value >= 0) ? countBins(sorted) : evenBins(sorted);
}

/** None, a few, tens, hundreds: whole numbers here are counts, mostly 0. */
function countBins(sorted) {
  const most = sorted[sorted.length - 1];
  const bins = [{ low: 0, high: 1, text: "0" }];
  for (let low = 1; low <= most; low *= 10) bins.push({ low, high: 10 * low, text: `${short(low)} to ${short(10 * low - 1)}`, brief: `${brief(low)}+` });
  return bins;
}

function evenBins(sorted) {
  // What lies far out would press all others into one bar: it counts with the last.
  const at = (part) => sorted[Math.round(part * (sorted.length - 1))];
  const [low, high] = [at(0.005), at(0.995)];
  // Few pairs make few bars.
  const step = niceStep((high - low) / clamp(Math.round(2 * Math.sqrt(sorted.length)), 4, MOST_BINS));
  if (!(step > 0)) return [{ low: -Infinity, high: Infinity, text: short(low) }];
  const first = Math.floor(low / step), last = Math.max(first, Math.ceil(high / step) - 1);
  const bins = [];
  for (let n = first; n <= last; n++) bins.push({ low: n * step, high: (n + 1) * step, text: `${short(n * step)} to ${short((n + 1) * step)}` });
  const [begin, end] = [bins[0], bins[bins.length - 1]];
  if (sorted[0] < begin.low) begin.text = `below ${short(begin.high)}`;
  if (sorted[sorted.length - 1] >= end.high) end.text = `from ${short(end.low)}`;
  begin.open = begin.low;
  begin.low = -Infinity;
  end.open = end.high;
  end.high = Infinity;
  return bins;
}

/** The next larger of 1, 2 and 5 times a power of ten. */
function niceStep(step) {
  const power = 10 ** Math.floor(Math.log10(step));
  return [1, 2, 5, 10].map((part) => part * power).find((nice) => nice >= 0.999 * step);
}

const brief = (value) => (value >= 1e6 ? `${value / 1e6}M` : value >= 1000 ? `${value / 1000}k` : String(value));

const isIn = (bin, value) => value !== null && value >= bin.low && value < bin.high;

class Histogram {
  constructor(column, index, rows, choose) {
    this.index = index;
    this.bins = binsOf(rows.map((row) => row.v[index]));
    this.all = this.count(rows);
    this.figure = made("figure", { className: "histogram" });
    const title = made("h2"), host = made("div", { className: "bins" });
    title.append(column.title, made("span", { textContent: `median ${short(medianOf(rows.map((row) => row.v[index])))}` }));
    host.setAttribute("role", "group");
    host.setAttribute("aria-label", `${column.title}: a press on a bar shows its pairs alone`);
    this.buttons = this.bins.map((bin, n) => this.bar(bin, n, choose));
    host.append(...this.buttons);
    this.figure.append(title, host, this.ends());
  }

  bar(bin, n, choose) {
    const button = made("button", { type: "button", title: `${bin.text}: ${short(this.all[n])}` });
    const pale = made("i"), strong = made("i");
    pale.style.height = this.height(this.all[n]);
    button.append(pale, strong);
    // With Shift up to this bar, from the one chosen before.
    button.addEventListener("click", (event) => choose(this, n, event.shiftKey));
    return button;
  }

  height(count) {
    return count ? `max(2px, ${(100 * count) / Math.max(...this.all)}%)` : "0";
  }

  count(rows) {
    const counts = this.bins.map(() => 0);
    for (const row of rows) {
      const n = this.bins.findIndex((bin) => isIn(bin, row.v[this.index]));
      if (n >= 0) counts[n]++;
    }
    return counts;
  }

  ends() {
    const ends = made("div", { className: "ends" }), [first, last] = [this.bins[0], this.bins[this.bins.length - 1]];
    if (first.open === undefined) {
      ends.classList.add("each");
      ends.append(...this.bins.map((bin) => made("span", { textContent: bin.brief ?? bin.text })));
    } else {
      ends.append(...[first.open, last.open].map((value) => made("span", { textContent: short(Number(value.toPrecision(6))) })));
    }
    return ends;
  }

  show(rows, chosen) {
    this.count(rows).forEach((count, n) => {
      const button = this.buttons[n], bin = this.bins[n];
      button.lastChild.style.height = this.height(count);
      button.setAttribute("aria-pressed", String(Boolean(chosen) && n >= chosen[0] && n <= chosen[1]));
      button.setAttribute("aria-label", `${bin.text}: ${short(this.all[n])} pairs`);
    });
  }
}

function medianOf(values) {
  const sorted = values.filter((value) => value !== null).sort((a, b) => a - b);
  if (!sorted.length) return null;
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
