// Colours that the colour-blind can tell apart: blue against orange, and scales whose lightness is in order.

const FIXED_COLOUR = "#56b4e9";
const MOVING_COLOUR = "#e69f00";
const FOLD_COLOUR = "#f0e442";
const CROSS_COLOUR = "#ffffff";

/** A colour as the canvas stores it: alpha, blue, green, red, from the highest byte down. */
function packedColour(red, green, blue, alpha = 255) {
  return ((alpha << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

/** 256 greys, black up to `black` and white from `white`. */
function greys(black, white) {
  const table = new Uint32Array(256);
  for (let value = 0; value < 256; value++) {
    const grey = clamp(Math.round((255 * (value - black)) / Math.max(1, white - black)), 0, 255);
    table[value] = packedColour(grey, grey, grey);
  }
  return table;
}

function between(stops, position) {
  const at = clamp(position, 0, 1) * (stops.length - 1);
  const first = Math.min(Math.floor(at), stops.length - 2);
  return stops[first].map((value, k) => value + (at - first) * (stops[first + 1][k] - value));
}

// Smaller is purple, larger orange, and nothing changes in between.
const SHRINK_GROW = [[74, 20, 140], [137, 92, 204], [228, 224, 240], [236, 150, 40], [150, 66, 0]];
// From night blue over green-grey to yellow, lighter all the way.
const FAR = [[0, 32, 76], [60, 77, 110], [124, 123, 120], [188, 175, 111], [255, 233, 69]];

/** For bytes of the Jacobian: 0 is folded, 128 unchanged; the more a volume changes the less shines through. */
function growthTable() {
  const table = new Uint32Array(256);
  for (let value = 1; value < 256; value++) {
    const change = (value - 128) / 127;
    const opacity = 0.15 + 0.75 * Math.min(1, 2 * Math.abs(change));
    table[value] = packedColour(...between(SHRINK_GROW, (change + 1) / 2).map(Math.round), Math.round(255 * opacity));
  }
  table[0] = packedColour(240, 228, 66, 255);
  return table;
}

/** For bytes of the round-trip error, which are square roots. */
function errorTable() {
  const table = new Uint32Array(256);
  for (let value = 0; value < 256; value++) {
    const opacity = value === 0 ? 0 : 0.25 + 0.6 * (value / 255);
    table[value] = packedColour(...between(FAR, value / 255).map(Math.round), Math.round(255 * opacity));
  }
  return table;
}

function cssColour([red, green, blue]) {
  return `rgb(${Math.round(red)}, ${Math.round(green)}, ${Math.round(blue)})`;
}

function cssGradient(stops) {
  return `linear-gradient(to right, ${stops.map(cssColour).join(", ")})`;
}
