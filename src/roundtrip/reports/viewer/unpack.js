// Blocks of text become arrays again; what `packing.py` wrote.

const TYPES = { uint8: Uint8Array, int16: Int16Array };

function bytesOf(name) {
  const element = document.getElementById(`block-${name}`);
  const text = element.textContent;
  element.remove();
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const characters = atob(text);
  const bytes = new Uint8Array(characters.length);
  for (let n = 0; n < bytes.length; n++) bytes[n] = characters.charCodeAt(n);
  return bytes;
}

async function inflated(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

/** The values of an array, the last axis fastest. */
async function unpacked(packed) {
  if (packed.kind === "jpeg") return unpackedSheets(packed);
  const values = new TYPES[packed.kind](await inflated(bytesOf(packed.blocks[0])));
  if (packed.differences) summed(values, packed.shape[packed.shape.length - 1]);
  return values;
}

function summed(values, width) {
  for (let row = 0; row < values.length; row += width) {
    for (let n = row + 1; n < row + width; n++) values[n] += values[n - 1];
  }
}

/** Slices that came as pictures: each sheet holds several, one below the other, padded to `rows` rows. */
async function unpackedSheets({ blocks, shape: [depth, height, width], rows }) {
  const values = new Uint8Array(depth * height * width);
  const pictures = blocks.map((name) => createImageBitmap(new Blob([bytesOf(name)], { type: "image/jpeg" })));
  let z = 0;
  for (const waiting of pictures) {
    const picture = await waiting;
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [picture.width, picture.height];
    const context = canvas.getContext("2d", { willReadFrequently: true });
    context.drawImage(picture, 0, 0);
    picture.close();
    const pixels = context.getImageData(0, 0, canvas.width, canvas.height).data;
    for (let top = 0; top < canvas.height; top += rows, z++) {
      const from = top * width, to = z * height * width;
      for (let n = 0; n < height * width; n++) values[to + n] = pixels[4 * (from + n)];
    }
  }
  return values;
}
