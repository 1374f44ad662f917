"""A wheel that carries compiled kernels says for which Python and system they are (see wheel.py)."""

import os

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import sys_tags


class Hook(BuildHookInterface):
    PLUGIN_NAME = "custom"

    def initialize(self, version, build_data):
        if os.path.exists(os.path.join(self.root, "src", "kasuri", "_kernels", "compiled", "target.json")):
            build_data["tag"] = str(next(iter(sys_tags())))
            build_data["pure_python"] = False
