"""Which viewer a report should have, our own on a canvas or NiiVue on WebGL2: size, time to the first view.

    npm install @niivue/niivue
    python benchmarks/viewer.py --niivue node_modules/@niivue/niivue/dist/niivue.umd.js

Both pages hold the same pair, 256 x 256 x 256 voxels, in one file without network, and are opened in headless
Chromium, in turns; printed is the median. There is no graphics card in it: WebGL is drawn by the processor.
`report.html` also holds the moving image, maps, grids and labels; NiiVue's page two images and no controls.
"""

import argparse
import base64
import statistics
import sys
import tempfile
from pathlib import Path

import torch

import roundtrip as rt
from roundtrip.data.phantoms import draw_pair
from roundtrip.reports.display import as_bytes, window_of
from roundtrip.reports.page import write_report
from roundtrip.reports.pair import ReportedPair

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "reports"))
import browser

REPEATS = 5

NIIVUE_PAGE = """<!doctype html><meta charset="utf-8"><title>NiiVue</title>
<canvas id="c" width="1200" height="800"></canvas>
<script type="text/plain" id="fixed">{fixed}</script><script type="text/plain" id="warped">{warped}</script>
<script>{niivue}</script>
<script>
const blob = (name) => URL.createObjectURL(new Blob([Uint8Array.from(
  atob(document.getElementById(name).textContent), (c) => c.charCodeAt(0))]));
(async () => {{
  const nv = new niivue.Niivue({{ logLevel: "error" }});
  await nv.attachToCanvas(document.getElementById("c"));
  nv.setSliceType(nv.sliceTypeMultiplanar);
  await nv.loadVolumes([{{ url: blob("fixed"), name: "fixed.nii.gz" }},
    {{ url: blob("warped"), name: "warped.nii.gz", colormap: "red", opacity: 0.5 }}]);
  requestAnimationFrame(() => requestAnimationFrame(() => {{
    performance.mark("first view"); document.documentElement.dataset.ready = "yes"; }}));
}})().catch((error) => {{ document.documentElement.dataset.ready = "yes"; document.title = String(error); }});
</script>
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--niivue", type=Path, help="dist/niivue.umd.js of the npm package")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pair = drawn_pair()
        pages = {"canvas (ours)": folder / "report.html"}
        write_report(pages["canvas (ours)"], pair)
        if arguments.niivue:
            pages["NiiVue"] = folder / "niivue.html"
            pages["NiiVue"].write_text(niivue_page(pair, arguments.niivue, folder), encoding="utf-8")
        viewers = Path(rt.__file__).parent / "reports" / "viewer"
        own = sum(path.stat().st_size for path in viewers.glob("*.js"))
        sizes = {"canvas (ours)": own, "NiiVue": arguments.niivue and arguments.niivue.stat().st_size}
        seconds = {name: [] for name in pages}
        failures = {}
        browser.ARGUMENTS = (*browser.ARGUMENTS, "--enable-unsafe-swiftshader", "--use-angle=swiftshader")
        opened = browser.Browser.start()
        try:
            for _ in range(REPEATS):
                for viewer, page in pages.items():
                    opened.open(page)
                    marks = opened.run(
                        "return performance.getEntriesByName('first view').map((m) => m.startTime)"
                    )
                    if marks:
                        seconds[viewer].append(marks[0] / 1000)
                    else:
                        failures[viewer] = opened.run("return document.title")
        finally:
            opened.close()
        print(f"{'':16}{'scripts, kB':>12}{'page, MB':>10}{'first view, s':>15}")
        for viewer, page in pages.items():
            taken = f"{statistics.median(seconds[viewer]):.2f}" if seconds[viewer] else failures[viewer]
            print(f"{viewer:16}{sizes[viewer] / 1e3:>12.0f}{page.stat().st_size / 1e6:>10.1f}{taken:>15}")


def drawn_pair() -> ReportedPair:
    """Two heads with noise, as scans have it, and no more than a shift between them."""
    phantoms = draw_pair(shape=(256, 256, 256))
    generator = torch.Generator().manual_seed(0)
    noisy = []
    for volume in (phantoms.fixed.image, phantoms.moving.image):
        noise = 0.03 * float(volume.data.max()) * torch.randn(volume.data.shape, generator=generator)
        noisy.append(
            rt.Volume((volume.data + noise * (volume.data > 0)).clamp(min=0), volume.world_from_voxel)
        )
    fixed, moving = noisy
    shift = torch.eye(4, dtype=torch.float64)
    shift[0, 3] = 4.0
    transform = rt.Transform.from_affine(shift, fixed, moving)
    return ReportedPair(
        fixed=fixed,
        moving=moving,
        transform=transform,
        fixed_labels=phantoms.fixed.labels,
        moving_labels=phantoms.moving.labels,
    )


def niivue_page(pair: ReportedPair, bundle: Path, folder: Path) -> str:
    warped = pair.transform.warp(pair.moving)
    texts = {}
    for name, volume in (("fixed", pair.fixed), ("warped", warped)):
        rt.write(as_bytes(volume, window_of(volume)), folder / f"{name}.nii.gz")
        texts[name] = base64.b64encode((folder / f"{name}.nii.gz").read_bytes()).decode()
    script = bundle.read_text(encoding="utf-8").replace("</script", "<\\/script")
    return NIIVUE_PAGE.format(niivue=script, **texts)


if __name__ == "__main__":
    main()
