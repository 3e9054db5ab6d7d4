"""Image files to pixels: PNG and JPEG, read by Pillow."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from service.errors import Invalid, TooLarge

MEDIA_TYPES = {"image/png": "PNG", "image/jpeg": "JPEG"}


def read_image(data: bytes, kind: str, max_pixels: int) -> NDArray[Any]:
    """Pixels as uint8 [H, W] or [H, W, 3]; dark ink on nothing is laid on white, other on black."""
    try:
        with Image.open(io.BytesIO(data), formats=[kind]) as file:
            width, height = file.size  # known from the header, before any pixel is decoded
            if width * height > max_pixels:
                raise TooLarge(
                    f"the image must have at most {max_pixels} pixels, got {width} x {height}",
                    path="image",
                )
            image = file if file.mode in ("L", "RGB") else _flatten(file)
            return np.array(image, dtype=np.uint8)
    except UnidentifiedImageError:
        raise Invalid(f"the body is not a {kind} image", path="image") from None
    except (TooLarge, Invalid):
        raise
    except (MemoryError, Image.DecompressionBombError):
        raise TooLarge(
            f"the image must have at most {max_pixels} pixels, and has far more", path="image"
        ) from None
    except Exception as error:  # decoders fail in many ways on damaged files
        raise Invalid(
            f"the {kind} image cannot be read: {str(error)[:160]}", path="image"
        ) from None


def _flatten(image: Image.Image) -> Image.Image:
    if image.mode == "1" or image.mode.startswith("I"):
        return image.convert("L") if image.mode == "1" else _sixteen_bit(image)
    layer = image.convert("RGBA")
    ink = np.asarray(layer.convert("L"))[np.asarray(layer.getchannel("A")) > 127]
    shade = 255 if len(ink) and np.median(ink) < 128 else 0
    ground = Image.new("RGBA", layer.size, (shade, shade, shade, 255))
    return Image.alpha_composite(ground, layer).convert("RGB")


def _sixteen_bit(image: Image.Image) -> Image.Image:
    return Image.fromarray((np.asarray(image, dtype=np.int64) >> 8).clip(0, 255).astype(np.uint8))
