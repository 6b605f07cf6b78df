"""When the package is built: bundle Vega, Vega-Lite and Vega-Embed, which draw the charts of a report, into one script.

vl-convert, the converter of the Vega-Altair project, carries the sources and bundles them. So neither the repository
nor a user's environment holds what only the page needs, and no page waits for a bundler.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

import vl_convert
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SCRIPT = "src/occamap/reports/assets/vega.js"
VEGA_LITE = "6.4"
BANNER = """/*! Vega {vega}, Vega-Lite {lite} and Vega-Embed {embed}, bundled by vl-convert {convert}.
 *  Copyright (c) 2015-2026, University of Washington Interactive Data Lab; BSD-3-Clause license:
 *  Redistribution and use in source and binary forms, with or without modification, are permitted provided that source
 *  redistributions retain, and binary redistributions reproduce, the copyright notice, these conditions and this
 *  disclaimer, and that the names of the copyright holder and contributors are not used to endorse derived products.
 *  THIS SOFTWARE IS PROVIDED "AS IS", WITHOUT ANY EXPRESS OR IMPLIED WARRANTY OR LIABILITY.
 *  It includes D3, copyright (c) 2010-2026 Mike Bostock, ISC license, and other packages under MIT and ISC licenses. */
"""


class VegaHook(BuildHookInterface):  # type: ignore[type-arg]
    """Writes the script before the files of the package are collected."""

    def initialize(self, version_: str, build_data: dict[str, Any]) -> None:
        """Bundle anew: the versions are those of the vl-convert in the build environment."""
        banner = BANNER.format(
            vega=vl_convert.get_vega_version(),
            lite=VEGA_LITE,
            embed=vl_convert.get_vega_embed_version(),
            convert=version("vl-convert-python"),
        )
        script = vl_convert.javascript_bundle(vl_version=VEGA_LITE)
        target = Path(self.root) / SCRIPT
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(banner + script, encoding="utf-8")
