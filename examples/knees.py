"""From files to pairs: a folder of drawn knees, prepared as the paper prepares those of the OAI.

python examples/knees.py --people 8 --folder knees
"""

import argparse
import tempfile
from pathlib import Path

import torch

from roundtrip.data.config import DataConfig
from roundtrip.data.dataset import open_dataset
from roundtrip.data.knees import preparation_of_knees, write_knees
from roundtrip.evaluation.overlap import dice

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--people", type=int, default=8)
parser.add_argument("--spacing", type=float, default=2.5, help="millimetres from voxel to voxel")
parser.add_argument("--folder", type=Path, help="where files go, to be used again; nowhere unless given")
options = parser.parse_args()

if __name__ == "__main__":
    # Scanners differ in spacing, orientation and brightness; every person has a left knee and a right one.
    folder = options.folder or Path(tempfile.mkdtemp())
    manifest = write_knees(folder, people=options.people, spacing=options.spacing)
    config = DataConfig.model_validate(
        {
            "source": {"kind": "manifest", "path": manifest},
            # The paper's grid is 80 x 192 x 192.
            "preparation": preparation_of_knees((20, 48, 48)),
            "split": {"kind": "fractions", "train": 0.75, "test": 0.25},
        }
    )
    data = open_dataset(config, cache=folder / "cache")
    train, generator = data.train, torch.Generator().manual_seed(0)
    print(f"{len(train.names)} knees of {len(data.split['train'])} people to train on: {manifest}")
    print(
        f"{train.pairing.count} pairs, none of them of one person; {len(data.test.names)} knees are held out"
    )

    batch = train.load(train.draw(16, generator), torch.device("cpu"))
    print(f"a batch {tuple(batch.moving.shape)} from {batch.moving.min():.0f} to {batch.moving.max():.0f}")
    overlap = dice(batch.moving_labels, batch.fixed_labels).mean.mean()
    flipped = dice(batch.moving_labels.flip(2), batch.fixed_labels).mean.mean()
    print(f"cartilages overlap by a Dice of {overlap:.2f}; were all moving knees mirrored, by {flipped:.2f}")
