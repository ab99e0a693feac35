"""Two NumPy arrays, registered both ways: what to say about them, and what comes back as arrays.

python examples/register_arrays.py
"""

import numpy as np
import torch

import roundtrip as rt

# Your arrays: any two, of any sizes. Here a blob with a bright core, and the same one moved and stretched.
places = np.moveaxis(np.indices((40, 44, 30)), 0, -1).astype(np.float32)


def blob(middle: tuple[float, ...], radii: tuple[float, ...]) -> np.ndarray:
    distance = np.linalg.norm((places - middle) / radii, axis=-1)
    return 1 / (1 + np.exp(8 * (distance - 1))) + np.exp(-8 * distance**2)


fixed_array = blob((19, 22, 15), (10, 10, 8))
moving_array = blob((23, 20, 14), (8, 12, 9))

# An array does not know how large its voxels are. One channel in front, and the matrix to millimetres.
spacing = (1.0, 1.0, 1.5)
world_from_voxel = torch.diag(torch.tensor([*spacing, 1.0]))
fixed = rt.Volume(torch.from_numpy(fixed_array)[None].float(), world_from_voxel)
moving = rt.Volume(torch.from_numpy(moving_array)[None].float(), world_from_voxel)

result = rt.register(moving, fixed, effort="fast")
warped_array = result.warped.data[0].numpy()

before, after = (np.abs(array - fixed_array).mean() for array in (moving_array, warped_array))
print(f"mean difference {before:.4f} before, {after:.4f} after; reliable: {result.ok}")

# The displacement in millimetres at every voxel of the fixed array, (3, *shape), for other programs.
displacement = result.transform.displacement().data.numpy()
print(f"displacement {displacement.shape}, at most {np.linalg.norm(displacement, axis=0).max():.1f} mm")

# The same in voxels, as scipy.ndimage.map_coordinates wants it: where to look in the moving array.
where = np.indices(fixed_array.shape) + displacement / np.array(spacing).reshape(3, 1, 1, 1)
print(f"the middle of the fixed array comes from voxel {where[:, 20, 22, 15].round(1).tolist()}")
