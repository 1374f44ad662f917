"""Names for the arrays that are handed around."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Bool = NDArray[np.bool_]
Float = NDArray[np.float64]
Int = NDArray[np.int64]
