"""`optima preview RUN`: what a learned policy does to an image, beside its prior."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table

from optima.cli.output import checked_folder, usage, writing

if TYPE_CHECKING:
    from torch import Tensor

    from optima.augment.augmenter import Augmenter
    from optima.report.preview import Preview

FORMATS = (".html", ".png")
MOST_QUANTILES = 15


def preview(
    run: str = typer.Argument(help="A run's folder, or a policy: what optima.load takes."),
    images: str | None = typer.Option(None, help="An image, or a folder of them; bundled digits unless given."),
    output: str = typer.Option("preview.html", help="What to write: a page, .html, or a picture, .png."),
    count: int = typer.Option(4, help="Number of images to draw the whole policy on; the first is shown in detail."),
    quantiles: int = typer.Option(5, help="Number of pictures in a strip."),
    seed: int = typer.Option(0, help="Decides every draw."),
    force: bool = typer.Option(False, "--force", help="Overwrite the output."),
    as_json: bool = typer.Option(False, "--json", help="Print the numbers as JSON instead of a table."),
) -> None:
    """Show what a policy does to an image: every augmentation at its learned quantiles, beside its prior's."""
    # nothing is lost when a preview fails: what is wrong with its input is wrong usage, whenever it is noticed
    with usage():
        path = _checked(output, count, quantiles, seed, force=force)
        document = _preview(run, images, count, quantiles, seed)
        content = _picture(document) if path.suffix.lower() == ".png" else _page(document)
    with writing(path):
        _write(content, path)
    if as_json:
        from optima.report.preview import as_json as document_of

        print(json.dumps(document_of(document), ensure_ascii=False, allow_nan=False))
    else:
        _show(document, path)


def _checked(output: str, count: int, quantiles: int, seed: int, *, force: bool) -> Path:
    """Where to write, or an error for the first argument that is wrong."""
    if count < 1:
        raise ValueError(f"--count must be at least 1, got {count}")
    if not 1 <= quantiles <= MOST_QUANTILES:
        raise ValueError(f"--quantiles must be from 1 to {MOST_QUANTILES}, got {quantiles}")
    if not 0 <= seed < 2**63:
        raise ValueError(f"--seed must be a whole number from 0 to 2^63 - 1, got {seed}")
    path = Path(output)
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"--output must end in {' or '.join(FORMATS)}, got {output!r}")
    try:
        checked_folder(str(path.parent))
    except NotADirectoryError:
        raise NotADirectoryError(f"--output: {path.parent} is not a folder") from None
    if path.is_dir():
        raise FileExistsError(f"{path} is a folder; choose another --output")
    if path.exists() and not force:
        raise FileExistsError(f"{path} exists; pass --force to overwrite it, or choose another --output")
    return path


def _preview(run: str, images: str | None, count: int, quantiles: int, seed: int) -> Preview:
    import torch

    import optima
    from optima.report.preview import Preview
    from optima.report.strips import at_prior, draws, strips

    folder = Path(run)
    policy = optima.load(folder / "policy" if folder.is_dir() else folder)
    shown, names = _pictures(policy, images, max(count, 2))
    if len(shown) < 2:
        shown = torch.cat([shown, shown.flip(-1)])  # what mixes needs another one: its mirror image
    shown, names = _taken(policy, shown, seed), names[:count]
    options = {"count": quantiles, "seed": seed}
    return Preview(
        policy=run,
        images=names,
        rows=policy.summary().rows,
        originals=shown[: len(names)],
        strips=strips(policy, shown[0], shown[1], **options),
        learned=draws(policy, shown, **options),
        prior=draws(at_prior(policy), shown, **options) if policy.learns() else None,
        seed=seed,
    )


def _pictures(policy: Augmenter, images: str | None, count: int) -> tuple[Tensor, list[str]]:
    """The images, and what they are called."""
    from optima.report.pictures import bundled, read_images

    if images is not None:
        return read_images(Path(images), count)
    _refuse_signals(policy)
    return bundled(count)


def _refuse_signals(policy: Augmenter) -> None:
    """Raise where nothing says that the policy is for images: none of it minds a plain signal, and none of it mixes."""
    import torch

    if any(leaf.mixes for _, leaf in policy.leaves()):
        return
    try:
        policy(torch.zeros(2, 8), generator=torch.Generator())
    except Exception:  # whatever an augmentation of images finds wrong with a signal
        return
    names = ", ".join(type(leaf).__name__ for _, leaf in policy.leaves())
    raise ValueError(
        f"this policy may be for signals, since {names} takes any; pass --images to see what it does to pictures"
    )


def _taken(policy: Augmenter, images: Tensor, seed: int) -> Tensor:
    """The images in a form that the policy takes: grey ones get three equal channels where it wants colours."""
    from optima.report.strips import draws

    problem: Exception | None = None
    for tried in (images, images.expand(-1, 3, -1, -1))[: 2 if images.shape[1] == 1 else 1]:
        try:
            draws(policy, tried, count=1, seed=seed)
        except Exception as error:  # an augmentation of the user's own need not check its input
            problem = problem or error
        else:
            return tried
    raise ValueError(f"a preview shows images, which this policy does not take: {problem}")


def _write(content: str | bytes, path: Path) -> None:
    from optima.files import write_whole

    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, content)


def _page(preview: Preview) -> str:
    from optima.report.preview import preview_page

    return preview_page(preview)


def _picture(preview: Preview) -> bytes:
    try:
        from optima.report.sheet import preview_sheet
    except Exception as error:  # a broken installation raises more than ImportError
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"a .png needs matplotlib ({reason}): pip install matplotlib, or choose an --output that ends in .html"
        ) from error
    return preview_sheet(preview)


def _show(preview: Preview, path: Path) -> None:
    from optima.report.preview import cells

    # where nobody watches there is no width to respect
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False, markup=False)
    table = Table("φ", "unit", "prior mean (90 %)", "posterior mean (90 %)", "verdict")
    for row in cells(preview):
        table.add_row(*row)
    console.print(table)
    print(path)
