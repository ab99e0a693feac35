"""Why inverse consistency is measured between the pixels: at the pixels, a swap of two is its own inverse.

After ICON, Fig. 3. Nothing in an image of one grey sees the swap, so only the regularity loss can object.

    python examples/off_grid.py
"""

import torch

import roundtrip as rt

image = torch.full((1, 1, 16, 16), 0.5, dtype=torch.float64)

# The displacement sends pixel (8, 7) to (8, 8), and (8, 8) to (8, 7).
displacement = torch.zeros(1, 2, 16, 16, dtype=torch.float64)
displacement[0, 1, 8, 7] = 1 / 15
displacement[0, 1, 8, 8] = -1 / 15
swap = rt.DisplacementMap(displacement)

generator = torch.Generator().manual_seed(0)
on_grid = rt.inverse_consistency(swap, swap, rt.points_on_grid(image))
off_grid = torch.stack(
    [rt.inverse_consistency(swap, swap, rt.points_off_grid(image, generator)) for _ in range(100)]
)
changed = rt.warp(image, swap) - image
folds = rt.non_diffeomorphic_volume(rt.on_grid_of(swap, image))

print(f"similarity loss of the swap     {changed.square().mean():.1e}   (it does not show)")
print(f"round trip, at the pixels       {on_grid:.1e}   (it does not show)")
print(f"round trip, between the pixels  {off_grid.mean():.1e}   (it costs)")
print(f"folded area                     {folds.percent.item():.2f} % of the image")
print()
print("There and back along row 8, in pixels; pixels come home, points beside the pair do not:")
for start in torch.linspace(6, 9, 7, dtype=torch.float64):
    x = torch.stack([torch.tensor(8.0), start]).view(1, 2, 1) / 15
    there, back = swap(x)[0, 1, 0] * 15, swap(swap(x))[0, 1, 0] * 15
    print(f"  {start:.1f} -> {there:.1f} -> {back:.1f}   misses by {abs(back - start):.1f}")
