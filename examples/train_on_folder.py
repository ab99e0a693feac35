"""Train on a folder of scans in Python, save the model, and register two files with it.

python examples/train_on_folder.py --images scans --pattern "*.nii.gz" --grid 80 96 80 --steps 2000

Without a folder it draws knees and trains on those. `roundtrip train` does all this from a file, in stages.
"""

import argparse
import tempfile
from pathlib import Path

import torch

import roundtrip as rt
from roundtrip.data.config import DataConfig
from roundtrip.data.dataset import open_dataset
from roundtrip.data.knees import write_knees

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--images", type=Path, help="a folder of scans, one to a person")
parser.add_argument("--pattern", default="*_right.nii.gz", help='which files of it, e.g. "*.nii.gz"')
parser.add_argument("--grid", type=int, nargs=3, default=(16, 32, 32))
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--output", type=Path, default=Path(tempfile.mkdtemp()))
options = parser.parse_args()

if __name__ == "__main__":
    folder = options.images or write_knees(options.output / "scans", people=8, spacing=6.0).parent / "images"
    preparation = {
        "orientation": "LPS",
        "intensities": {"unit": "percentiles", "lower": 1, "upper": 99},
        "grid": list(options.grid),
    }
    config = DataConfig.model_validate(
        {
            "source": {"kind": "folder", "path": folder, "images": options.pattern},
            "preparation": preparation,
            "split": {"kind": "fractions", "train": 0.75, "test": 0.25},
        }
    )
    data, generator = open_dataset(config, cache=options.output / "cache"), torch.Generator().manual_seed(0)

    algorithm = rt.DisplacementRegistration(rt.UNet(dims=3, down_features=(8, 16), up_features=(8, 16)))
    objective = rt.InverseConsistent(algorithm, similarity=rt.lncc, weight=50.0)
    batches = iter(lambda: data.train.load(data.train.draw(2, generator), torch.device("cpu")), None)
    pairs = ((batch.moving, batch.fixed) for batch in batches)
    history = rt.fit(objective, pairs, steps=options.steps, learning_rate=5e-4, generator=generator)
    print(f"similarity {history.steps[0].similarity:.3f} -> {history.steps[-1].similarity:.3f}")

    card = rt.Card(preparation=config.preparation, data=str(folder), numbers={}, licence="not stated")
    rt.save(algorithm, options.output / "model", card=card)
    moving, fixed = sorted(folder.glob(options.pattern))[:2]
    result = rt.register(moving, fixed, model=options.output / "model", effort="fast")
    print(
        f"registered {moving.name} to {fixed.name}; reliable: {result.ok}; the model: {options.output}/model"
    )
