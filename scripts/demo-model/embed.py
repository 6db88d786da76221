#!/usr/bin/python3
"""Writes the embeddings of a picture, as the built-in vision model has them, into a file that a request may name in place of the picture.

  embed.py door.png /tmp/embeddings.pt     needs python3-pil besides
"""

import sys

import torch
from PIL import Image

import drawings
import export_vision
import golden_vision
import tower as towers


def view(path):
    """Red, green and blue planes of the picture as the preparation makes them: the longest side first, then the other."""
    picture, side = Image.open(path).convert("RGB"), towers.CONFIG["image"]
    w, h = picture.size
    long = lambda n: n + n % 2
    first = (side, long(int(side * h / w))) if w >= h else (long(int(side * w / h)), side)
    picture = picture.resize(first, Image.BILINEAR).resize((side, side), Image.BILINEAR)
    return torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8).view(side, side, 3).permute(2, 0, 1)


def main():
    picture, out = sys.argv[1:]
    rows_of = golden_vision.load(export_vision.MODEL)[2]
    with torch.no_grad():
        rows = rows_of([drawings.Picture("", [], [], [], view(picture))])
    torch.save({"mm_embeddings": rows}, out)
    print("%d rows of %d values" % tuple(rows.shape))


if __name__ == "__main__":
    main()
