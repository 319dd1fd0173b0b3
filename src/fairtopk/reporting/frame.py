"""The frame that every page shares: one HTML file with its styles, scripts and data inside.

Text from data goes through Jinja's escaping, data for scripts through `safe_json`; a page's own
content policy keeps the browser from asking any network for anything.
"""

import json
import math
from functools import cache
from importlib.metadata import version
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

# JSON inside a script element must not hold what HTML would read as its end.
UNSAFE = {sign: f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def rendered(template: str, data: dict[str, Any], **values: Any) -> str:
    """Return a page: a template of this package filled in, with `data` for its script."""
    page = _environment().get_template(template)
    return page.render(
        data=safe_json(data),
        plotly=Markup(get_plotlyjs()),
        version=version("fairtopk"),
        **values,
    )


def safe_json(data: Any) -> Markup:
    """Return data as JSON that may stand in a script element; NaN becomes null."""
    text = json.dumps(_plain(data), separators=(",", ":"), allow_nan=False)
    for sign, code in UNSAFE.items():
        text = text.replace(sign, code)
    return Markup(text)


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("fairtopk.reporting", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _plain(value: Any) -> Any:
    """Return what JSON can hold, numbers to six figures."""
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
