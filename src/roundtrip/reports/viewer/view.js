// One of the linked views: a canvas that shows a slice, what is drawn over it, and follows pointer and keys.

const LINE_REACH = 14;

class View {
  constructor(page, plane) {
    this.page = page;
    this.plane = plane;
    this.kept = new Map();
    this.pointers = new Map();
    this.build();
    this.listen();
  }

  get like() { return this.page.images.fixed; }
  get index() { return this.page.state.at[this.plane.axis]; }
  get last() { return this.like.size[this.plane.axis] - 1; }

  build() {
    this.figure = made("figure", { className: "view" });
    this.canvas = made("canvas", { tabIndex: 0 });
    this.canvas.setAttribute("role", "img");
    this.caption = made("output");
    this.slider = made("input", { type: "range", min: 0, max: this.last, step: 1 });
    this.slider.setAttribute("aria-label", `${this.plane.name} slice`);
    this.enlarge = made("button", { type: "button", textContent: "⤢", title: "Enlarge or make small again" });
    this.enlarge.setAttribute("aria-label", `Enlarge the ${this.plane.name} view`);
    const bar = made("figcaption");
    bar.append(this.caption, this.slider, this.enlarge);
    this.figure.append(this.canvas, bar);
    this.slider.disabled = this.last === 0;
    if (this.page.planes.length === 1) this.enlarge.hidden = true;
  }

  listen() {
    const { page, canvas, plane } = this;
    this.slider.addEventListener("input", () => page.moveTo(plane.axis, Number(this.slider.value)));
    this.enlarge.addEventListener("click", () => page.enlarge(plane.name));
    canvas.addEventListener("dblclick", () => page.enlarge(plane.name));
    canvas.addEventListener("focus", () => { page.state.active = plane.name; });
    canvas.addEventListener("pointerdown", (event) => this.press(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, (event) => this.release(event));
    canvas.addEventListener("pointerleave", () => page.change({ hover: null }));
    canvas.addEventListener("wheel", (event) => this.turn(event), { passive: false });
    new ResizeObserver(() => this.page.redraw()).observe(canvas);
  }

  // Where things are on the screen: pixels of CSS from the corner of the canvas.

  measure() {
    const { across, down } = this.plane;
    const { size, spacing } = this.like;
    const [width, height] = [this.canvas.clientWidth, this.canvas.clientHeight];
    const fit = Math.min(width / (size[across] * spacing[across]), height / (size[down] * spacing[down]));
    const scale = fit * this.page.state.zoom;
    const centre = this.page.state.centre;
    return { width, height, right: scale * spacing[across], below: (this.plane.up ? -1 : 1) * scale * spacing[down],
      across: centre[across], down: centre[down] };
  }

  toScreen(m, across, down) {
    return [m.width / 2 + (across - m.across) * m.right, m.height / 2 + (down - m.down) * m.below];
  }

  toVoxel(m, x, y) {
    const voxel = [...this.page.state.at];
    voxel[this.plane.across] = m.across + (x - m.width / 2) / m.right;
    voxel[this.plane.down] = m.down + (y - m.height / 2) / m.below;
    return voxel;
  }

  // Pointer: one moves the cross-hair or the wipe, two zoom and shift.

  press(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, [event.offsetX, event.offsetY]);
    this.wiping = this.page.state.mode === "wipe" && Math.abs(event.offsetX - this.wipeAt()) < LINE_REACH;
    this.shifting = event.shiftKey || event.button === 1;
    if (event.button === 1) event.preventDefault();
    if (this.pointers.size === 1) this.drag(event, [event.offsetX, event.offsetY]);
  }

  move(event) {
    const now = [event.offsetX, event.offsetY], then = this.pointers.get(event.pointerId);
    if (then === undefined) {
      const voxel = this.toVoxel(this.measure(), ...now).map(Math.round);
      this.page.change({ hover: this.page.inside(voxel) ? voxel : null });
      this.canvas.style.cursor = this.page.state.mode === "wipe" && Math.abs(now[0] - this.wipeAt()) < LINE_REACH ? "ew-resize" : "";
      return;
    }
    if (this.pointers.size === 2) this.pinch(event.pointerId, then, now);
    else this.drag(event, then);
    this.pointers.set(event.pointerId, now);
  }

  release(event) {
    this.pointers.delete(event.pointerId);
    this.wiping = this.shifting = false;
  }

  drag(event, then) {
    const m = this.measure();
    if (this.wiping) this.page.change({ wipe: clamp(event.offsetX / m.width, 0, 1) });
    else if (this.shifting) this.shift(m, event.offsetX - then[0], event.offsetY - then[1]);
    else this.page.goTo(this.toVoxel(m, event.offsetX, event.offsetY));
  }

  shift(m, x, y) {
    const centre = [...this.page.state.centre];
    centre[this.plane.across] -= x / m.right;
    centre[this.plane.down] -= y / m.below;
    this.page.change({ centre });
  }

  pinch(id, then, now) {
    const [other] = [...this.pointers].filter(([key]) => key !== id).map(([, place]) => place);
    const apart = (place) => Math.max(20, Math.hypot(place[0] - other[0], place[1] - other[1]));
    const middle = [(now[0] + other[0]) / 2, (now[1] + other[1]) / 2];
    this.zoom(apart(now) / apart(then), ...middle);
    this.shift(this.measure(), (now[0] - then[0]) / 2, (now[1] - then[1]) / 2);
  }

  turn(event) {
    event.preventDefault();
    if (event.ctrlKey || event.metaKey) return this.zoom(Math.exp(-event.deltaY / 300), event.offsetX, event.offsetY);
    // A notch of a wheel is a slice; many small steps of a touch pad add up to one.
    this.turned = (this.turned ?? 0) + (event.deltaMode === 0 ? event.deltaY / 60 : event.deltaY);
    const slices = Math.trunc(this.turned);
    this.turned -= slices;
    if (slices) this.page.moveTo(this.plane.axis, this.index + clamp(slices, -3, 3));
  }

  /** What is under (x, y) stays there. */
  zoom(factor, x = this.canvas.clientWidth / 2, y = this.canvas.clientHeight / 2) {
    const before = this.toVoxel(this.measure(), x, y);
    const zoom = clamp(this.page.state.zoom * factor, 1, 30);
    this.page.change({ zoom, centre: zoom === 1 ? this.page.middle() : this.page.state.centre });
    const after = this.toVoxel(this.measure(), x, y);
    if (zoom > 1) this.page.change({ centre: this.page.state.centre.map((value, axis) => value + before[axis] - after[axis]) });
  }

  wipeAt() {
    return this.page.state.wipe * this.canvas.clientWidth;
  }

  // Drawing.

  draw() {
    const ratio = window.devicePixelRatio || 1;
    const m = this.measure();
    if (!m.width || !m.height) return;
    [this.canvas.width, this.canvas.height] = [Math.round(m.width * ratio), Math.round(m.height * ratio)];
    const context = this.canvas.getContext("2d");
    context.scale(ratio, ratio);
    context.imageSmoothingEnabled = Math.abs(m.right) < 12;
    context.imageSmoothingQuality = "high";
    this.forgetOldSlices();
    this.drawImages(context, m);
    this.drawMap(context, m);
    this.drawGrid(context, m);
    this.drawOutlines(context, m);
    this.drawCross(context, m);
    this.drawLetters(context, m);
    this.describe();
  }

  describe() {
    const { state } = this.page;
    this.slider.value = this.index;
    this.caption.textContent = this.page.dims === 2 ? "" : `${this.plane.name} ${this.index + 1} / ${this.last + 1}`;
    this.slider.hidden = this.page.dims === 2;
    this.canvas.setAttribute("aria-label",
      `${this.plane.name} slice ${this.index + 1} of ${this.last + 1}, ${this.page.shownInWords()}, cross-hair at voxel ${state.at.join(", ")}`);
  }

  /** What was made for a slice is kept until another slice, moment or window is asked for. */
  keep(name, make) {
    if (!this.kept.has(name)) this.kept.set(name, make());
    return this.kept.get(name);
  }

  forgetOldSlices() {
    const { state } = this.page;
    const key = [this.index, state.moment, state.black, state.white, state.label].join();
    if (key !== this.key) this.kept.clear();
    this.key = key;
  }

  bytes(name) {
    return this.keep(`bytes ${name}`, () => {
      const { images, state } = this.page;
      if (name === "fixed") return sliceOf(images.fixed, this.plane, this.index);
      if (state.moment === "after" || !images.moving) return sliceOf(images.warped, this.plane, this.index);
      return sampledSlice(images.moving, images.fixed, this.plane, this.index, true);
    });
  }

  paint(colour) {
    const { size } = this.like;
    return painted(size[this.plane.across], size[this.plane.down], this.plane.up, colour);
  }

  picture(name) {
    return this.keep(`picture ${name}`, () => {
      const { state } = this.page;
      const table = greys(state.black, state.white);
      const level = (byte) => table[byte] & 255;
      if (name === "overlay" || name === "difference") {
        const fixed = this.bytes("fixed"), moving = this.bytes("moving");
        if (name === "overlay") {
          return this.paint((n) => mixedColour(level(fixed[n]), level(moving[n])));
        }
        return this.paint((n) => differenceColour(level(moving[n]) - level(fixed[n])));
      }
      const bytes = this.bytes(name);
      return this.paint((n) => table[bytes[n]]);
    });
  }

  frame(m) {
    const { size } = this.like;
    const [x0, y0] = this.toScreen(m, -0.5, this.plane.up ? size[this.plane.down] - 0.5 : -0.5);
    return [x0, y0, size[this.plane.across] * m.right, size[this.plane.down] * Math.abs(m.below)];
  }

  drawImages(context, m) {
    const { state } = this.page;
    const frame = this.frame(m);
    const put = (name) => context.drawImage(this.picture(name), ...frame);
    if (state.mode === "blink") put(state.blinkOn ? "moving" : "fixed");
    else if (state.mode === "wipe") this.drawWipe(context, m, put);
    else if (state.mode === "checker") this.drawChecker(context, m, frame, put);
    else put(state.mode);
  }

  drawWipe(context, m, put) {
    put("fixed");
    const x = this.wipeAt();
    context.save();
    context.beginPath();
    context.rect(x, 0, m.width - x, m.height);
    context.clip();
    context.clearRect(x, 0, m.width - x, m.height);
    put("moving");
    context.restore();
    context.fillStyle = MOVING_COLOUR;
    context.fillRect(x - 1, 0, 2, m.height);
    context.beginPath();
    context.arc(x, m.height - 44, 9, 0, 2 * Math.PI);
    context.fill();
    context.fillStyle = "#000";
    context.font = "bold 11px system-ui, sans-serif";
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillText("↔", x, m.height - 44);
  }

  drawChecker(context, m, [x0, y0, width, height], put) {
    put("fixed");
    const side = Math.max(width, height) / this.page.state.tiles;
    context.save();
    context.beginPath();
    for (let row = 0; row * side < height; row++) {
      for (let column = (row + 1) % 2; column * side < width; column += 2) {
        context.rect(x0 + column * side, y0 + row * side, side, side);
      }
    }
    context.clip();
    context.clearRect(0, 0, m.width, m.height);
    put("moving");
    context.restore();
  }

  drawMap(context, m) {
    const { state, maps } = this.page;
    if (state.map === "none" || !maps) return;
    const volume = maps[state.map];
    const matrix = product(this.like.voxelFromWorld, volume.worldFromVoxel);
    const [right, below] = [this.plane.across, this.plane.down].map((axis) => matrix[axis][axis]);
    const { axis } = this.plane;
    const index = clamp(Math.round((this.index - matrix[axis][3]) / matrix[axis][axis]), 0, volume.size[axis] - 1);
    const picture = this.keep(`map ${state.map}`, () => {
      const bytes = sliceOf(volume, this.plane, index);
      const table = state.map === "jacobian" ? this.page.growth : this.page.missed;
      return painted(volume.size[this.plane.across], volume.size[this.plane.down], this.plane.up, (n) => table[bytes[n]]);
    });
    const [left, first] = [matrix[this.plane.across][3] - right / 2, matrix[this.plane.down][3] - below / 2];
    const last = first + below * volume.size[this.plane.down];
    const [x0, y0] = this.toScreen(m, left, this.plane.up ? last : first);
    context.drawImage(picture, x0, y0, volume.size[this.plane.across] * right * m.right, (last - first) * Math.abs(m.below));
    if (state.map === "jacobian") this.markFolds(context, m, volume, matrix, index);
  }

  markFolds(context, m, volume, matrix, index) {
    const { across, down } = this.plane;
    const bytes = sliceOf(volume, this.plane, index), width = volume.size[across];
    context.fillStyle = FOLD_COLOUR;
    context.strokeStyle = "#000";
    context.lineWidth = 1;
    const [w, h] = [Math.max(4, matrix[across][across] * m.right), Math.max(4, matrix[down][down] * Math.abs(m.below))];
    bytes.forEach((byte, n) => {
      if (byte !== 0) return;
      const [x, y] = this.toScreen(m, matrix[across][3] + matrix[across][across] * (n % width),
        matrix[down][3] + matrix[down][down] * Math.floor(n / width));
      context.fillRect(x - w / 2, y - h / 2, w, h);
      context.strokeRect(x - w / 2, y - h / 2, w, h);
    });
  }

  drawGrid(context, m) {
    const { state, transform } = this.page;
    if (state.grid === "none" || !transform) return;
    const lines = this.keep(`grid ${state.grid} ${state.linear}`, () => this.page.gridLines(this.plane, this.index));
    for (const [colour, thickness] of [["#000a", 2.6], [state.grid === "forward" ? FIXED_COLOUR : MOVING_COLOUR, 1.1]]) {
      context.strokeStyle = colour;
      context.lineWidth = thickness;
      context.lineJoin = "round";
      context.beginPath();
      for (const line of lines) {
        line.forEach(([across, down], n) => {
          const [x, y] = this.toScreen(m, across, down);
          if (n) context.lineTo(x, y); else context.moveTo(x, y);
        });
      }
      context.stroke();
    }
  }

  drawOutlines(context, m) {
    const { state, labels } = this.page;
    if (!state.outlines || !labels) return;
    const { mode } = state;
    if (labels.fixed && !(mode === "moving" && state.label === null)) this.drawBorders(context, m, "fixed", FIXED_COLOUR);
    if (this.page.movingLabels() && !(mode === "fixed" && state.label === null)) this.drawBorders(context, m, "moving", MOVING_COLOUR);
  }

  drawBorders(context, m, name, colour) {
    const segments = this.keep(`borders ${name}`, () => {
      const { labels, state } = this.page;
      const size = this.like.size;
      let bytes;
      if (name === "fixed") bytes = this.labelSlice(labels.fixed);
      else bytes = this.labelSlice(this.page.movingLabels());
      return borders(bytes, size[this.plane.across], size[this.plane.down], state.label);
    });
    context.strokeStyle = colour;
    context.lineWidth = this.page.state.label === null ? (name === "fixed" ? 1.6 : 1.2) : 2.2;
    context.beginPath();
    for (let n = 0; n < segments.length; n += 4) {
      context.moveTo(...this.toScreen(m, segments[n], segments[n + 1]));
      context.lineTo(...this.toScreen(m, segments[n + 2], segments[n + 3]));
    }
    context.stroke();
  }

  labelSlice(volume) {
    const same = volume.size.every((size, axis) => size === this.like.size[axis]) && volume !== this.page.labels.moving;
    return same ? sliceOf(volume, this.plane, this.index) : sampledSlice(volume, this.like, this.plane, this.index, false);
  }

  drawCross(context, m) {
    const { state } = this.page;
    if (!state.crosshair) return;
    const [x, y] = this.toScreen(m, state.at[this.plane.across], state.at[this.plane.down]);
    const gap = 7;
    for (const [colour, thickness] of [["#0009", 3], [CROSS_COLOUR, 1]]) {
      context.strokeStyle = colour;
      context.lineWidth = thickness;
      context.beginPath();
      for (const [a, b, c, d] of [[0, y, x - gap, y], [x + gap, y, m.width, y], [x, 0, x, y - gap], [x, y + gap, x, m.height]]) {
        context.moveTo(a, b);
        context.lineTo(c, d);
      }
      context.stroke();
    }
  }

  drawLetters(context, m) {
    if (this.page.dims === 2) return;
    const [left, right, top, bottom] = this.plane.letters;
    context.font = "600 13px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.textAlign = "center";
    context.lineWidth = 3;
    context.strokeStyle = "#000";
    context.fillStyle = "#fff";
    for (const [letter, x, y] of [[left, 11, m.height / 2], [right, m.width - 11, m.height / 2], [top, m.width / 2, 12], [bottom, m.width / 2, m.height - 12]]) {
      context.strokeText(letter, x, y);
      context.fillText(letter, x, y);
    }
  }
}

/** Fixed is blue and moving orange: together white, where both are alike grey. */
function mixedColour(fixed, moving) {
  return packedColour(moving, Math.round(0.45 * fixed + 0.55 * moving), fixed);
}

/** Orange where moving is brighter, blue where fixed is, dark where they agree. */
function differenceColour(difference) {
  const strength = Math.min(255, Math.round(2 * Math.abs(difference)));
  return difference > 0
    ? packedColour(strength, Math.round(0.62 * strength), Math.round(0.05 * strength))
    : packedColour(Math.round(0.25 * strength), Math.round(0.65 * strength), strength);
}
