// The page: its state, what follows from it, and the order in which everything is unpacked.

class Page {
  constructor(facts) {
    this.facts = facts;
    this.dims = facts.dims;
    this.planes = this.dims === 2 ? PLANES.slice(0, 1) : PLANES;
    this.growth = growthTable();
    this.missed = errorTable();
    this.state = {
      // Colours compare best, but only where equal tissue is equally bright.
      mode: facts.metrics.settings?.compared_as === "different" ? "wipe" : "overlay", moment: "after", wipe: 0.5, tiles: 8, beat: 0.8, blinkOn: false, map: "none", grid: "none", linear: true,
      outlines: false, crosshair: true, black: 0, white: 255, zoom: 1, label: null, large: null, active: "axial", hover: null,
    };
  }

  async unpackImages() {
    const { fixed, warped, moving } = this.facts.images;
    // The first view needs two of the images; the rest follows while somebody already looks.
    const [first, second] = await Promise.all([Volume.from(fixed), Volume.from(warped)]);
    this.images = { fixed: first, warped: second };
    this.state.at = first.size.map((size) => Math.floor(size / 2));
    this.state.centre = this.middle();
    return moving;
  }

  async unpackRest(moving) {
    const { maps, labels, transform } = this.facts;
    this.images.moving = await Volume.from(moving);
    const onMap = async (packed) => Volume.from({ ...packed, world_from_voxel: maps.world_from_voxel });
    this.maps = { jacobian: await onMap(maps.jacobian), error: await onMap(maps.error) };
    this.transform = { forward: await Displacement.from(transform.forward), backward: await Displacement.from(transform.backward), linear: transform.linear };
    if (labels) {
      this.labels = { values: labels.values };
      for (const name of ["fixed", "warped", "moving"]) if (labels[name]) this.labels[name] = await Volume.from(labels[name]);
    }
  }

  build() {
    const host = byId("views");
    host.dataset.count = this.planes.length;
    this.views = this.planes.map((plane) => new View(this, plane));
    byId("corner").before(...this.views.map((view) => view.figure));
  }

  // What others ask of the page.

  change(changes) {
    Object.assign(this.state, changes);
    if ("mode" in changes || "beat" in changes) this.blink();
    if ("label" in changes) markLabel(this);
    this.redraw();
  }

  moveTo(axis, index) {
    const at = [...this.state.at];
    at[axis] = index;
    this.goTo(at);
  }

  /** The cross-hair to the voxel nearest to `voxel`, within the image. */
  goTo(voxel) {
    const { size } = this.images.fixed;
    this.change({ at: voxel.map((value, axis) => clamp(Math.round(value), 0, size[axis] - 1)), hover: null });
  }

  goToWorld(world) {
    this.goTo(applied(this.images.fixed.voxelFromWorld, [...world, 0, 0].slice(0, 3)));
  }

  look(finding) {
    if (finding.map) this.change({ map: finding.map });
    if (finding.at) this.goToWorld(finding.at);
    else this.lookAtLabel(finding.label);
    byId("views").scrollIntoView({ block: "nearest" });
  }

  lookAtLabel(label) {
    const place = this.labels ? this.labels.values.indexOf(label) : -1;
    if (place < 0) return;
    this.change({ outlines: true, label: this.state.label === place ? null : place });
    const volume = this.labels.fixed ?? this.labels.warped;
    const voxel = volume && middleOf(volume, place);
    if (voxel && this.state.label !== null) this.goToWorld(applied(volume.worldFromVoxel, voxel));
  }

  enlarge(name) {
    if (this.planes.length > 1) this.change({ large: this.state.large === name ? null : name });
  }

  reset() {
    this.change({ zoom: 1, centre: this.middle(), black: 0, white: 255, large: null, wipe: 0.5 });
  }

  activeView() {
    return this.views.find((view) => view.plane.name === this.state.active) ?? this.views[0];
  }

  middle() {
    return this.images.fixed.size.map((size) => (size - 1) / 2);
  }

  inside(voxel) {
    return voxel.every((value, axis) => value >= 0 && value < this.images.fixed.size[axis]);
  }

  movingLabels() {
    return this.state.moment === "after" ? this.labels?.warped : this.labels?.moving;
  }

  /** The grid of one image as it lies in the other; without the linear part both lie on the fixed image. */
  gridLines(plane, index) {
    const { grid, linear } = this.state;
    const identity = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]];
    const aside = linear ? this.transform.linear : identity;
    return grid === "forward"
      ? deformedGrid(this.images.fixed, plane, index, this.transform.forward, identity, inverted(aside))
      : deformedGrid(this.images.fixed, plane, index, this.transform.backward, aside, identity);
  }

  shownInWords() {
    const { mode, moment, blinkOn } = this.state;
    const moving = moment === "after" ? "moving after registration" : "moving before registration";
    return { fixed: "fixed", moving, blink: blinkOn ? moving : "fixed", wipe: `fixed left, ${moving} right`,
      checker: `fixed and ${moving} in turns`, overlay: `fixed and ${moving} in colours`, difference: `${moving} minus fixed` }[mode];
  }

  blink() {
    clearInterval(this.beating);
    this.state.blinkOn = false;
    if (this.state.mode === "blink") this.beating = setInterval(() => this.change({ blinkOn: !this.state.blinkOn }), 1000 * this.state.beat);
  }

  /** Everything once more, at the next frame; asked for often, done once. */
  redraw() {
    if (this.waiting || !this.views) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      this.draw();
    });
  }

  draw() {
    const { large } = this.state;
    byId("views").classList.toggle("one", large !== null);
    for (const view of this.views) {
      view.figure.hidden = large !== null && view.plane.name !== large;
      view.figure.classList.toggle("active", view.plane.name === this.state.active);
    }
    for (const view of this.views) if (!view.figure.hidden) view.draw();
    showControls(this);
    showLegend(this);
    showCursor(this);
  }
}

/** A voxel of a label where it is thick: in its largest slice, the one nearest to the middle of it there. */
function middleOf(volume, label) {
  const [X, Y, Z] = volume.size, plane = X * Y;
  const counts = new Float64Array(Z);
  for (let z = 0, n = 0; z < Z; z++) for (let k = 0; k < plane; k++) if (volume.values[n++] === label) counts[z]++;
  const z = counts.indexOf(Math.max(...counts));
  if (!counts[z]) return null;
  const places = [];
  for (let k = 0; k < plane; k++) if (volume.values[z * plane + k] === label) places.push([k % X, Math.floor(k / X)]);
  const [x, y] = [0, 1].map((k) => places.reduce((sum, place) => sum + place[k], 0) / places.length);
  const far = (place) => (place[0] - x) ** 2 + (place[1] - y) ** 2;
  return [...places.reduce((best, place) => (far(place) < far(best) ? place : best)), z];
}

async function start() {
  const page = new Page(JSON.parse(byId("facts").textContent));
  addControls(page);
  showFacts(page);
  if (typeof DecompressionStream === "undefined") throw new Error("this browser is too old: it needs DecompressionStream, which browsers have since 2023");
  const moving = await page.unpackImages();
  page.build();
  page.draw();
  performance.mark("first view");
  byId("notice").textContent = "Unpacking maps and labels…";
  await page.unpackRest(moving);
  byId("notice").hidden = true;
  page.change({});
  performance.mark("all unpacked");
  document.documentElement.dataset.ready = "yes";
}

start().catch((error) => {
  byId("notice").hidden = false;
  byId("notice").textContent = `The images could not be shown: ${error.message}.`;
  console.error(error);
});
