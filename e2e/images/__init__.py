"""Images for tests and the demo, made on this machine: no registry and no container engine takes part.

from e2e.images import build

image = build("sample-engine")
image.reference   # ebb.local/sample-engine:0f3a…, names the content
image.archive     # a docker-save archive, for `ctr images import` and `kind load image-archive`
"""

from .build import BuiltImage, build
from .errors import ImageError
from .recipes import IMAGES

__all__ = ["IMAGES", "BuiltImage", "ImageError", "build"]
