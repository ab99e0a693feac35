// What the colours mean, and what is known about the point at the cross-hair or under the pointer.

function showLegend(page) {
  const { state, facts } = page;
  const parts = [swatchless(`Shown: ${page.shownInWords()}.`)];
  const colours = [];
  if (state.mode === "overlay") colours.push(["#00a0ff", "fixed"], ["#ff8c00", "moving"], ["#cccccc", "both alike"]);
  if (state.mode === "difference") colours.push([MOVING_COLOUR, "moving brighter"], [FIXED_COLOUR, "fixed brighter"]);
  if (state.outlines && page.labels) {
    const which = state.label === null ? "labels" : `label ${page.labels.values[state.label]}`;
    colours.push([FIXED_COLOUR, `${which} of fixed`], [MOVING_COLOUR, `${which} of moving, ${state.moment}`]);
  }
  if (state.grid === "forward") colours.push([FIXED_COLOUR, "grid of fixed, carried to moving"]);
  if (state.grid === "backward") colours.push([MOVING_COLOUR, "grid of moving, carried to fixed"]);
  parts.push(...colours.map(([colour, text]) => swatch(colour, text)));
  if (state.map === "jacobian") parts.push(scale(SHRINK_GROW, growthTicks(facts.maps.jacobian.exponent), "volume in moving to fixed"), foldSwatch(facts.maps));
  if (state.map === "error") parts.push(scale(FAR, errorTicks(facts.maps.error.top), "round trip misses by (mm)"));
  byId("legend").replaceChildren(...parts);
}

function swatchless(text) {
  return made("span", { className: "shown", textContent: text });
}

function swatch(colour, text) {
  const part = made("span", { className: "swatch" }), square = made("i");
  square.style.background = colour;
  part.append(square, text);
  return part;
}

function foldSwatch({ jacobian, binned }) {
  const size = binned > 1 ? ` (cubes of ${binned} voxels a side)` : "";
  const part = swatch(FOLD_COLOUR, jacobian.folded ? `folded${size}` : "folded: none");
  part.firstChild.className = "fold";
  return part;
}

function scale(stops, ticks, text) {
  const part = made("span", { className: "scale" }), bar = made("i");
  bar.style.background = cssGradient(stops);
  const marks = made("span", { className: "ticks" });
  for (const tick of ticks) marks.append(made("span", { textContent: tick }));
  const body = made("span", { className: "body" });
  body.append(bar, marks);
  part.append(body, text);
  return part;
}

function growthTicks(exponent) {
  return [-1, -0.5, 0, 0.5, 1].map((part) => `×${short(2 ** (part * exponent))}`);
}

/** The scale is one of square roots, as the bytes are. */
function errorTicks(top) {
  return [0, 0.25, 0.5, 0.75, 1].map((part) => String(Number((top * part * part).toPrecision(2))));
}

function showCursor(page) {
  const { images, facts, state, transform, labels, maps } = page;
  const voxel = state.hover ?? state.at;
  const world = applied(images.fixed.worldFromVoxel, voxel);
  const rows = [
    [state.hover ? "Pointer" : "Cross-hair", placed(page, "fixed", world)],
    ["Fixed", intensity(page, "fixed", images.fixed, world)],
    ["Moving, after", intensity(page, "moving", images.warped, world)],
  ];
  if (images.moving) rows.push(["Moving, before", intensity(page, "moving", images.moving, world)]);
  if (transform) {
    const from = transform.forward.moved(world);
    rows.push(["Came from", placed(page, "moving", from)]);
    rows.push(["Moved by", `${lengthOf(from.map((value, axis) => value - world[axis])).toFixed(1)} mm`]);
  }
  if (maps) rows.push(["Growth", growthAt(page, world)], ["Round trip", missedAt(page, world)]);
  if (labels) {
    const said = [["fixed", "fixed"], ["warped", "moving, after"]].filter(([name]) => labels[name])
      .map(([name, text]) => `${labels.values[labels[name].nearest(world) ?? 0]} ${text}`);
    rows.push(["Label", said.join("; ")]);
  }
  byId("cursor").replaceChildren(...rows.map(([name, value]) => {
    const part = made("div");
    part.append(made("dt", { textContent: name }), made("dd", { textContent: value }));
    return part;
  }));
}

/** Where in the world, and which voxel of the file. */
function placed(page, name, world) {
  const voxel = applied(page.facts.places[name].voxel_from_world, world).slice(0, page.dims);
  const place = page.dims === 2 ? world.slice(0, 2).map((value) => value.toFixed(1)).join(", ") : placeInWords(world, 3);
  return `${place} mm\nvoxel ${voxel.map((value) => Math.round(value) + 0).join(", ")}`;
}

/** As exact as 256 levels are; the brightest stand for all that is brighter. */
function intensity(page, name, volume, world) {
  const byte = volume.nearest(world);
  if (byte === null) return "outside";
  const [low, high] = page.facts.windows[name];
  const value = short(Number((low + ((high - low) * byte) / 255).toPrecision(3)));
  return byte === 255 ? `≥ ${value}` : byte === 0 ? `≤ ${value}` : `≈ ${value}`;
}

function growthAt(page, world) {
  const byte = page.maps.jacobian.nearest(world);
  if (byte === null) return "–";
  if (byte === 0) return "folded";
  const { exponent } = page.facts.maps.jacobian;
  const sign = byte === 255 ? "≥ " : byte === 1 ? "≤ " : "";
  return `${sign}×${(2 ** ((exponent * (byte - 128)) / 127)).toFixed(2)}`;
}

function missedAt(page, world) {
  const byte = page.maps.error.nearest(world);
  return byte === null ? "–" : `≤ ${((page.facts.maps.error.top * (byte + 0.5) ** 2) / 255 ** 2).toFixed(2)} mm`;
}
