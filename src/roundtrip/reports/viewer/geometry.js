// Homogeneous matrices of the world (LPS mm: left, back and head count up), and volumes in it.

function applied(matrix, [x, y, z]) {
  return [0, 1, 2].map((row) => matrix[row][0] * x + matrix[row][1] * y + matrix[row][2] * z + matrix[row][3]);
}

function product(outer, inner) {
  return outer.map((row) => [0, 1, 2, 3].map((column) => row.reduce((sum, value, k) => sum + value * inner[k][column], 0)));
}

/** The inverse of a homogeneous matrix, by its cofactors. */
function inverted(matrix) {
  const [[a, b, c, p], [d, e, f, q], [g, h, i, r]] = matrix;
  const volume = a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g);
  const linear = [
    [e * i - f * h, c * h - b * i, b * f - c * e],
    [f * g - d * i, a * i - c * g, c * d - a * f],
    [d * h - e * g, b * g - a * h, a * e - b * d],
  ].map((row) => row.map((value) => value / volume));
  const rows = linear.map(([x, y, z]) => [x, y, z, -(x * p + y * q + z * r)]);
  return [...rows, [0, 0, 0, 1]];
}

function lengthOf(vector) {
  return Math.hypot(...vector);
}

/** Values on a grid of voxels: `values` with x fastest, `size` [X, Y, Z]. */
class Volume {
  constructor(values, size, worldFromVoxel) {
    this.values = values;
    this.size = size;
    this.worldFromVoxel = worldFromVoxel;
    this.voxelFromWorld = inverted(worldFromVoxel);
    this.spacing = [0, 1, 2].map((axis) => lengthOf([0, 1, 2].map((row) => worldFromVoxel[row][axis])));
  }

  static async from(packed) {
    const [depth, height, width] = packed.shape.slice(-3);
    return new Volume(await unpacked(packed), [width, height, depth], packed.world_from_voxel);
  }

  /** The value of the voxel whose box holds a point of the world, or null outside. */
  nearest(world) {
    const [x, y, z] = applied(this.voxelFromWorld, world).map(Math.round);
    const [X, Y, Z] = this.size;
    if (!(x >= 0 && y >= 0 && z >= 0 && x < X && y < Y && z < Z)) return null;
    return this.values[x + X * (y + Y * z)];
  }
}

/** x -> x + u(x), from displacements on the nodes of a grid; outside them the nearest counts. */
class Displacement {
  constructor(values, packed) {
    const [, depth, height, width] = packed.shape;
    this.size = [width, height, depth];
    this.values = values;
    this.step = packed.step;
    this.nodeFromWorld = inverted(packed.world_from_voxel);
  }

  static async from(packed) {
    return new Displacement(await unpacked(packed), packed);
  }

  moved(world) {
    const [X, Y, Z] = this.size;
    const node = applied(this.nodeFromWorld, world);
    const [x, y, z] = node.map((value, axis) => clamp(value, 0, this.size[axis] - 1));
    const [x0, y0, z0] = [Math.floor(x), Math.floor(y), Math.floor(z)];
    const [x1, y1, z1] = [Math.min(x0 + 1, X - 1), Math.min(y0 + 1, Y - 1), Math.min(z0 + 1, Z - 1)];
    const [a, b, c] = [x - x0, y - y0, z - z0];
    const result = [...world];
    const components = this.values.length / (X * Y * Z);
    for (let k = 0; k < components; k++) {
      const start = k * X * Y * Z;
      const at = (i, j, l) => this.values[start + i + X * (j + Y * l)];
      const low = (1 - b) * ((1 - a) * at(x0, y0, z0) + a * at(x1, y0, z0)) + b * ((1 - a) * at(x0, y1, z0) + a * at(x1, y1, z0));
      const high = (1 - b) * ((1 - a) * at(x0, y0, z1) + a * at(x1, y0, z1)) + b * ((1 - a) * at(x0, y1, z1) + a * at(x1, y1, z1));
      result[k] += this.step * ((1 - c) * low + c * high);
    }
    return result;
  }
}

/** "12.3 L, 4.0 P, 33.1 S": every reader knows the letters, few agree on the signs. */
function placeInWords(world, dims) {
  const letters = [["L", "R"], ["P", "A"], ["S", "I"]];
  return world.slice(0, dims)
    .map((value, axis) => `${Math.abs(value).toFixed(1)} ${letters[axis][value < 0 ? 1 : 0]}`)
    .join(", ");
}
