"""The schema of a saved ranker, which is input like any other: checked before it is used."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from torch import Tensor

from fairtopk.errors import InputError
from fairtopk.rankers.fitting import MOST_WIDTH
from fairtopk.storage import Saved, load_tensors
from fairtopk.terminal import shown

KIND = "fairtopk ranker 1"

Width = Annotated[int, Field(ge=1, le=MOST_WIDTH)]
Ids = Annotated[list[int] | list[str] | list[float], Field(min_length=1)]


class Described(BaseModel, strict=True, extra="forbid"):
    """What every saved ranker says of itself."""

    ranker: Literal["fairtopk ranker 1"]
    params: dict[str, Any]
    group_names: list[str]
    notes: list[str]


class Robust(BaseModel, strict=True, extra="forbid"):
    """What a robust ranker adds to that."""

    settings: dict[str, Any]
    share: Annotated[float, Field(ge=0, le=1)]
    seed: Annotated[int, Field(ge=0)]


class OfFeatures(Described):
    """What a ranker of features says of itself."""

    kind: Literal["features"]
    scorer: None
    model: Literal["linear", "mlp", "attention"]
    hidden: Annotated[list[Width], Field(min_length=1)]
    names: Annotated[list[str], Field(min_length=1)]
    by_name: bool
    robust: Robust | None = None


class OfIds(Described):
    """What a ranker of users and items says of itself."""

    kind: Literal["ids"]
    config: dict[str, Any]
    user_ids: Ids
    item_ids: Ids


_ABOUT: TypeAdapter[OfFeatures | OfIds] = TypeAdapter(
    Annotated[OfFeatures | OfIds, Field(discriminator="kind")]
)


def read_ranker(path: Path) -> Saved:
    """Return what a file holds, refusing one that describes no ranker."""
    saved = load_tensors(path)
    if saved.about.get("ranker") != KIND:
        raise InputError(f"{path} holds no ranker; give a file that FairRanker.save wrote")
    try:
        _ABOUT.validate_python(saved.about)
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(map(str, fault["loc"][1:])) or "its description"
        said = fault["msg"].removeprefix("Input ")
        raise InputError(f"{path} is damaged: {shown(place)} {said}") from None
    for name, value in saved.tensors.items():
        if value.is_floating_point() and not bool(value.isfinite().all()):
            raise InputError(f"{path} is damaged: {name} is not finite")
    return saved


def check_weights(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    """Refuse tensors that are not those wanted, by name, type and shape."""
    for name in sorted(found.keys() | wanted.keys()):
        got, expected = (
            f"{of[name].dtype} of shape {list(of[name].shape)}" if name in of else "missing"
            for of in (found, wanted)
        )
        if got != expected:
            raise InputError(f"its {shown(name)} is {got}, expected {expected}")


def check_rated(tensors: Mapping[str, Tensor], n_users: int, n_items: int) -> None:
    """Refuse ratings and popularity of a catalogue that do not go together."""
    item = tensors.get("rated.item", torch.empty(0, dtype=torch.int32))
    rating = tensors.get("rated.rating", torch.empty(0))
    kind = rating.dtype if rating.dtype == torch.float64 else torch.float32
    wanted = {
        "rated.offsets": torch.empty(n_users + 1, dtype=torch.int64),
        "rated.item": torch.empty(item.numel(), dtype=torch.int32),
        "rated.rating": torch.empty(item.numel(), dtype=kind),
        "popularity": torch.empty(n_items, dtype=torch.int64),
    }
    check_weights(tensors, wanted)
    offsets = tensors["rated.offsets"]
    rising = bool((offsets.diff() >= 0).all()) and int(offsets[0]) == 0
    inside = bool(((item >= 0) & (item < n_items)).all())
    if not rising or int(offsets[-1]) != item.numel() or not inside:
        raise InputError("its ratings do not fit its users and items")
