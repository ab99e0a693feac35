// One slice of a volume: of its own voxels, or of those of another grid.

// A plane shows axis `across` from left to right and axis `down` from top to bottom; `up` where it is turned, so
// that the head is on top. The patient's right is on the left, as radiologists look at it.
const PLANES = [
  { name: "axial", axis: 2, across: 0, down: 1, up: false, letters: ["R", "L", "A", "P"] },
  { name: "coronal", axis: 1, across: 0, down: 2, up: true, letters: ["R", "L", "S", "I"] },
  { name: "sagittal", axis: 0, across: 1, down: 2, up: true, letters: ["A", "P", "S", "I"] },
];

/** The bytes of slice `index` of a plane, row after row, as they lie in the volume. */
function sliceOf(volume, plane, index) {
  const strides = [1, volume.size[0], volume.size[0] * volume.size[1]];
  const [width, height] = [volume.size[plane.across], volume.size[plane.down]];
  const slice = new volume.values.constructor(width * height);
  const [right, below] = [strides[plane.across], strides[plane.down]];
  for (let row = 0, n = 0; row < height; row++) {
    let from = index * strides[plane.axis] + row * below;
    for (let column = 0; column < width; column++, from += right) slice[n++] = volume.values[from];
  }
  return slice;
}

/** The same slice of the grid of `like`, filled from another volume of the same world; 0 outside of it. */
function sampledSlice(volume, like, plane, index, smooth) {
  const matrix = product(volume.voxelFromWorld, like.worldFromVoxel);
  const [width, height] = [like.size[plane.across], like.size[plane.down]];
  const slice = new volume.values.constructor(width * height);
  const start = [0, 0, 0];
  start[plane.axis] = index;
  const value = smooth ? linearAt : nearestAt;
  for (let row = 0, n = 0; row < height; row++) {
    start[plane.down] = row;
    start[plane.across] = 0;
    const at = applied(matrix, start);
    for (let column = 0; column < width; column++) {
      slice[n++] = value(volume, at[0], at[1], at[2]);
      for (let k = 0; k < 3; k++) at[k] += matrix[k][plane.across];
    }
  }
  return slice;
}

function nearestAt(volume, x, y, z) {
  const [X, Y, Z] = volume.size;
  const [i, j, k] = [Math.round(x), Math.round(y), Math.round(z)];
  if (i < 0 || j < 0 || k < 0 || i >= X || j >= Y || k >= Z) return 0;
  return volume.values[i + X * (j + Y * k)];
}

function linearAt(volume, x, y, z) {
  const [X, Y, Z] = volume.size;
  if (x < -0.5 || y < -0.5 || z < -0.5 || x > X - 0.5 || y > Y - 0.5 || z > Z - 0.5) return 0;
  x = clamp(x, 0, X - 1); y = clamp(y, 0, Y - 1); z = clamp(z, 0, Z - 1);
  const i = Math.floor(x), j = Math.floor(y), k = Math.floor(z);
  const a = x - i, b = y - j, c = z - k;
  const right = i + 1 < X ? 1 : 0, below = j + 1 < Y ? X : 0, deeper = k + 1 < Z ? X * Y : 0;
  const v = volume.values, n = i + X * (j + Y * k), m = n + deeper;
  const near = (1 - b) * ((1 - a) * v[n] + a * v[n + right]) + b * ((1 - a) * v[n + below] + a * v[n + below + right]);
  const far = (1 - b) * ((1 - a) * v[m] + a * v[m + right]) + b * ((1 - a) * v[m + below] + a * v[m + below + right]);
  return (1 - c) * near + c * far;
}

/** A canvas with the pixels of a slice, `colour(n)` for each; upside down where the plane is. */
function painted(width, height, up, colour) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width, height];
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  for (let row = 0; row < height; row++) {
    let to = (up ? height - 1 - row : row) * width;
    for (let n = row * width; n < (row + 1) * width; n++) pixels[to++] = colour(n);
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

/** The borders between labels as line segments in voxels, [across, down, across, down] for each. */
function borders(labels, width, height, only) {
  const segments = [];
  const here = only === null ? (n) => labels[n] : (n) => (labels[n] === only ? 1 : 0);
  for (let row = 0, n = 0; row < height; row++) {
    for (let column = 0; column < width; column++, n++) {
      const label = here(n);
      if (column + 1 < width && here(n + 1) !== label) segments.push(column + 0.5, row - 0.5, column + 0.5, row + 0.5);
      if (row + 1 < height && here(n + width) !== label) segments.push(column - 0.5, row + 0.5, column + 0.5, row + 0.5);
    }
  }
  return segments;
}
