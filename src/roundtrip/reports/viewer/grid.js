// The deformed grid: lines of one image's grid, carried into the world of the other and seen in a slice.

const GRID_LINES = 26;

/** Lines in voxels of `like`, each a list of [across, down]; what leaves the plane is seen from above. */
function deformedGrid(like, plane, index, displacement, before, after) {
  const start = product(before, like.worldFromVoxel);
  const back = product(like.voxelFromWorld, after);
  const lengths = [plane.across, plane.down].map((axis) => (like.size[axis] - 1) * like.spacing[axis]);
  const apart = Math.max(...lengths) / GRID_LINES || 1;
  const seen = (across, down) => {
    const voxel = [0, 0, 0];
    voxel[plane.axis] = index; voxel[plane.across] = across; voxel[plane.down] = down;
    const to = applied(back, displacement.moved(applied(start, voxel)));
    return [to[plane.across], to[plane.down]];
  };
  const [width, height] = [like.size[plane.across] - 1, like.size[plane.down] - 1];
  const [right, below] = [apart / like.spacing[plane.across], apart / like.spacing[plane.down]];
  const lines = [];
  for (const down of evenly(height, below)) lines.push(evenly(width, right / 6).map((across) => seen(across, down)));
  for (const across of evenly(width, right)) lines.push(evenly(height, below / 6).map((down) => seen(across, down)));
  return lines;
}

/** From 0 to `length` in equal steps of about `step`. */
function evenly(length, step) {
  const count = Math.max(1, Math.round(length / step));
  return Array.from({ length: count + 1 }, (_, n) => (length * n) / count);
}
