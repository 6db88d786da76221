"""Writes what Pillow makes of image files and of resizing, which internal/media/picture
is compared with.

    apt-get install -y --no-install-recommends python3-pil python3-numpy libjpeg-turbo-progs
    /usr/bin/python3 scripts/reference/pictures.py internal/media/picture/testdata
"""

import hashlib
import io
import json
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import PIL
from PIL import Image, ImageOps


def sample(w, h, seed=1):
    """Noise over gradients: the same bytes as sample in the Go test."""
    i = np.arange(w * h * 3, dtype=np.uint64)
    x, y, c = (i // 3) % w, i // (3 * w), i % 3
    noise = ((i * 2654435761 + seed * 40503) % 2**32) >> 26
    return ((x * (5 + c) + y * 3 * (c + 1) + noise) % 256).astype(np.uint8).reshape(h, w, 3)


def sha(pixels):
    return hashlib.sha256(np.ascontiguousarray(pixels).tobytes()).hexdigest()


def over_white(im):
    """As the processors of Idefics3 and SmolVLM convert."""
    if im.mode == "RGB":
        return im
    im = im.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", im.size, (255, 255, 255)), im).convert("RGB")


# Writers of what Pillow cannot write.

def png(samples, depth, kind, interlace=False, palette=None, trns=None, exif=None):
    """samples: rows × columns × channels of the given bit depth."""
    h, w, _ = samples.shape

    def scan(part):
        out = b""
        for row in part:
            if depth == 16:
                line = row.astype(">u2").tobytes()
            elif depth == 8:
                line = row.astype(np.uint8).tobytes()
            else:
                bits = ((row.reshape(-1, 1) >> np.arange(depth - 1, -1, -1)) & 1).astype(np.uint8)
                line = np.packbits(bits.reshape(-1)).tobytes()
            out += b"\0" + line
        return out

    if interlace:
        passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
        raw = b"".join(scan(samples[y::dy, x::dx]) for x, y, dx, dy in passes if samples[y::dy, x::dx].size)
    else:
        raw = scan(samples)

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    out = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, depth, kind, 0, 0, int(interlace)))
    if palette is not None:
        out += chunk(b"PLTE", palette)
    if trns is not None:
        out += chunk(b"tRNS", trns)
    if exif is not None:
        out += chunk(b"eXIf", exif)
    return out + chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b"")


def gif(screen, frame, at, palette, transparent=None, interlace=False):
    """One frame of 4-bit indices without compression."""
    h, w = frame.shape
    rows = list(range(h))
    if interlace:
        rows = [*range(0, h, 8), *range(4, h, 8), *range(2, h, 4), *range(1, h, 2)]
    codes = []
    for n, v in enumerate(frame[rows].reshape(-1)):
        if n % 14 == 0:
            codes.append(16)
        codes.append(int(v))
    codes.append(17)
    bits, n = 0, 0
    for c in codes:
        bits |= c << n
        n += 5
    data = bits.to_bytes((n + 7) // 8, "little")
    out = b"GIF89a" + struct.pack("<HHBBB", *screen, 0x80 | 3, 2, 0) + palette
    if transparent is not None:
        out += b"\x21\xf9\x04" + struct.pack("<BHB", 1, 0, transparent) + b"\0"
    out += b"," + struct.pack("<HHHHB", *at, w, h, 0x40 if interlace else 0) + b"\x04"
    for i in range(0, len(data), 255):
        out += bytes([len(data[i:i + 255])]) + data[i:i + 255]
    return out + b"\0;"


def riff(chunks):
    body = b"WEBP" + b"".join(n + struct.pack("<I", len(d)) + d + b"\0" * (len(d) % 2) for n, d in chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def exif(orientation, order="<"):
    head = b"II*\0" if order == "<" else b"MM\0*"
    width = (0x100, 4, 1, 45)  # another entry before
    return head + struct.pack(order + "IHHHIIHHIHHI", 8, 2, *width, 0x112, 3, 1, orientation, 0, 0)


def saved(im, kind, **options):
    out = io.BytesIO()
    im.save(out, kind, **options)
    return out.getvalue()


def u24(n):
    return struct.pack("<I", n)[:3]


def files():
    rng = np.random.RandomState(7)
    rgb = sample(45, 31)
    im = Image.fromarray(rgb)
    rgba = np.dstack([rgb, rng.randint(0, 256, (31, 45))]).astype(np.uint8)
    rgba[3:9, 4:20, 3], rgba[12:20, 4:30, 3] = 0, 255
    withalpha = Image.fromarray(rgba)
    for depth in 1, 2, 4, 8, 16:
        yield f"gray{depth}.png", png(rng.randint(0, 2**depth, (31, 45, 1)), depth, 0)
    yield "gray4-clear.png", png(rng.randint(0, 16, (31, 45, 1)), 4, 0, trns=struct.pack(">H", 7))
    yield "gray8-interlaced.png", png(rgb[:, :, :1], 8, 0, interlace=True)
    yield "gray1-interlaced.png", png(rng.randint(0, 2, (5, 3, 1)), 1, 0, interlace=True)
    yield "rgb8.png", png(rgb, 8, 2)
    yield "rgb8-clear.png", png(rgb, 8, 2, trns=struct.pack(">HHH", *map(int, rgb[2, 2])))
    yield "rgb8-interlaced.png", png(rgb, 8, 2, interlace=True)
    yield "rgb16.png", png(rng.randint(0, 65536, (31, 45, 3)), 16, 2)
    yield "graya8.png", png(rgba[:, :, 2:], 8, 4)
    yield "graya16.png", png(rng.randint(0, 65536, (31, 45, 2)), 16, 4)
    yield "rgba8.png", png(rgba, 8, 6)
    yield "rgba8-interlaced.png", png(rgba, 8, 6, interlace=True)
    yield "rgba16.png", png(rng.randint(0, 65536, (31, 45, 4)), 16, 6)
    for depth in 1, 2, 4, 8:
        colors = rng.randint(0, 256, 3 * 2**depth).astype(np.uint8).tobytes()
        indices = rng.randint(0, 2**depth, (31, 45, 1))
        yield f"palette{depth}.png", png(indices, depth, 3, palette=colors)
        yield f"palette{depth}-clear.png", png(indices, depth, 3, palette=colors, trns=bytes(77 * i % 256 for i in range(2**depth - 1)))
    yield "animated.png", saved(im, "PNG", save_all=True, append_images=[Image.fromarray(sample(45, 31, 9))])
    for n in range(1, 9):
        yield f"turned{n}.png", png(sample(9, 5), 8, 2, exif=exif(n, "<>"[n % 2]))

    colors = rng.randint(0, 256, 48).astype(np.uint8).tobytes()
    frame = rng.randint(0, 16, (11, 13)).astype(np.uint8)
    yield "whole.gif", gif((13, 11), frame, (0, 0), colors)
    yield "interlaced.gif", gif((13, 11), frame, (0, 0), colors, interlace=True)
    yield "part.gif", gif((29, 17), frame, (6, 3), colors)
    yield "part-clear.gif", gif((29, 17), frame, (6, 3), colors, transparent=5)
    yield "clear-outside.gif", gif((29, 17), frame, (6, 3), colors, transparent=200)
    yield "animated.gif", saved(im, "GIF", save_all=True, append_images=[Image.fromarray(sample(45, 31, 9))])

    yield "rgb24.bmp", saved(im, "BMP")
    yield "gray8.bmp", saved(im.convert("L"), "BMP")
    yield "palette8.bmp", saved(im.quantize(200), "BMP")
    yield "bit1.bmp", saved(im.convert("1"), "BMP")
    yield "rgba32.bmp", saved(withalpha, "BMP")

    yield "lossless.webp", saved(im, "WEBP", lossless=True)
    yield "lossless-alpha.webp", saved(withalpha, "WEBP", lossless=True, exact=True)
    yield "lossy.webp", saved(im, "WEBP", quality=80)
    yield "lossy-odd.webp", saved(Image.fromarray(sample(1, 1)), "WEBP", quality=80)
    yield "lossy-even.webp", saved(Image.fromarray(sample(32, 18)), "WEBP", quality=95)
    yield "lossy-alpha.webp", saved(withalpha, "WEBP", quality=90)
    yield "animated.webp", saved(im, "WEBP", save_all=True, append_images=[Image.fromarray(sample(45, 31, 9))], lossless=True)
    yield "turned8.webp", saved(im, "WEBP", quality=80, exif=b"Exif\0\0" + exif(8))
    still = saved(Image.fromarray(sample(10, 8)), "WEBP", quality=90)
    anmf = u24(3) + u24(2) + u24(9) + u24(7) + u24(40) + b"\0" + still[12:]
    for name, flags in ("animated-part", 2), ("animated-part-alpha", 2 | 16):
        yield f"{name}.webp", riff([
            (b"VP8X", bytes([flags, 0, 0, 0]) + u24(39) + u24(19)), (b"ANIM", b"\xff\xff\xff\xff\0\0"),
            (b"ANMF", anmf), (b"ANMF", anmf)])

    for name, sub in ("444", 0), ("422", 1), ("420", 2):
        yield f"{name}.jpg", saved(im, "JPEG", quality=90, subsampling=sub)
    ppm = saved(im, "PPM")
    for name, ratio in ("440", "1x2"), ("411", "4x1"), ("410", "4x2"):
        yield f"{name}.jpg", subprocess.run(["cjpeg", "-quality", "90", "-sample", ratio + ",1x1,1x1"], input=ppm, capture_output=True, check=True).stdout
    for w, h in (1, 1), (3, 5), (4, 4), (5, 2), (6, 1), (32, 32), (33, 17):
        yield f"420-{w}x{h}.jpg", saved(Image.fromarray(sample(w, h)), "JPEG", quality=90, subsampling=2)
    yield "422-3x3.jpg", saved(Image.fromarray(sample(3, 3)), "JPEG", quality=90, subsampling=1)
    yield "gray.jpg", saved(im.convert("L"), "JPEG", quality=90)
    yield "progressive.jpg", saved(im, "JPEG", quality=90, progressive=True)
    yield "noise.jpg", saved(Image.fromarray(rng.randint(0, 256, (48, 64, 3)).astype(np.uint8)), "JPEG", quality=75)
    yield "restarts.jpg", subprocess.run(["cjpeg", "-quality", "90", "-restart", "1"], input=ppm, capture_output=True, check=True).stdout
    yield "rgb.jpg", subprocess.run(["cjpeg", "-quality", "90", "-rgb"], input=ppm, capture_output=True, check=True).stdout
    cmyk = np.dstack([rgb, sample(45, 31, 3)[:, :, 0] // 2])
    yield "cmyk.jpg", saved(Image.fromarray(cmyk, "CMYK"), "JPEG", quality=95)
    yield "turned6.jpg", saved(Image.fromarray(sample(21, 13)), "JPEG", quality=90, exif=b"Exif\0\0" + exif(6, ">"))


def record(name, data, folder):
    im = Image.open(io.BytesIO(data))
    if name == "gray4-clear.png":  # Pillow compares the value of 4 bits with samples of 8
        im.info["transparency"] *= 17
    turned = ImageOps.exif_transpose(im)
    want = np.array(im.convert("RGB"))
    white = np.array(over_white(im))
    if im.mode == "I":  # Pillow would clip 16 bits at 255
        want = white = np.repeat((np.array(im) >> 8).astype(np.uint8)[:, :, None], 3, 2)
    entry = {"file": name, "w": im.width, "h": im.height, "mode": im.mode, "rgb": sha(want), "white": sha(white)}
    if turned.size != im.size or turned.tobytes() != im.tobytes():
        entry |= {"turned_w": turned.width, "turned_h": turned.height, "turned": sha(turned.convert("RGB"))}
    if name.endswith(".jpg"):  # not equal: compared by distance
        turned.convert("RGB").save(folder / (name + ".want.png"), optimize=True)
    return entry


FILTERS = {1: "Lanczos", 2: "bilinear", 3: "bicubic"}


def resizes():
    sizes = [
        ((64, 48), (32, 24)), ((64, 48), (17, 31)), ((64, 48), (200, 150)), ((64, 48), (64, 10)), ((64, 48), (9, 48)),
        ((64, 48), (1, 1)), ((64, 48), (65, 47)), ((1, 1), (7, 5)), ((1, 500), (3, 2)), ((2000, 1), (1, 1)),
        ((2000, 3), (11, 900)), ((3, 2000), (700, 2)), ((2, 2), (300, 1)), ((333, 217), (97, 211)),
        ((640, 480), (512, 384)), ((500, 375), (336, 336)), ((1031, 773), (56, 42)),
    ]
    for (sw, sh), (dw, dh) in sizes:
        im = Image.fromarray(sample(sw, sh, sw + sh))
        # Black and white only: kernels with negative lobes leave 0 to 255.
        harsh = Image.fromarray(((np.array(im) > 127) * 255).astype(np.uint8))
        for f in FILTERS:
            yield {
                "from": [sw, sh], "to": [dw, dh], "filter": f,
                "sha256": sha(im.resize((dw, dh), f)), "harsh": sha(harsh.resize((dw, dh), f)),
            }


def main(folder):
    decode = folder / "decode"
    decode.mkdir(parents=True, exist_ok=True)
    for old in decode.iterdir():
        old.unlink()
    entries = []
    for name, data in files():
        (decode / name).write_bytes(data)
        entries.append(record(name, data, decode))
    c, a = np.meshgrid(np.arange(256, dtype=np.uint8), np.arange(256, dtype=np.uint8))
    table = over_white(Image.fromarray(np.dstack([c, c, c, a])))
    c, k = c, a
    ink = Image.fromarray(np.dstack([c, c, c, k]), "CMYK").convert("RGB")
    golden = {
        "pillow": PIL.__version__, "files": entries, "resizes": list(resizes()),
        "over_white": sha(np.array(table)[:, :, 0]), "ink": sha(np.array(ink)[:, :, 0]),
    }
    (folder / "pillow.json").write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
