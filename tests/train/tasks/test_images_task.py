from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from edgefold.cli.main import main
from edgefold.runtime.errors import DataError
from edgefold.train.models.registry import create_model
from edgefold.train.tasks.contract import N_CALIBRATED
from edgefold.train.tasks.images import image_sources
from edgefold.train.tasks.images.image_sources import crops, load_images, read_idx
from edgefold.train.tasks.images.images import MOST_TARGETS, N_POINTS, ImageOptions, ImageTask
from tests.published import missing_columns


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def task_of(source: str = "digits", **options: Any) -> ImageTask:
    return ImageTask.from_options(ImageOptions(source, **options))


def write_idx(path: Path, values: np.ndarray[Any, Any]) -> None:
    """As NIST and MNIST write them, packed where the name ends in .gz."""
    head = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">u4").tobytes()
    content = head + values.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


@pytest.fixture
def emnist(tmp_path: Path) -> Path:
    """Four images a class of three classes: two that are learned and one letter."""
    random = np.random.default_rng(0)
    (tmp_path / "gzip").mkdir()
    for part in ("train", "test"):
        name = tmp_path / "gzip" / f"emnist-balanced-{part}"
        labels = np.repeat([0, 9, 46], 4)
        images = random.integers(0, 256, (len(labels), 28, 28))
        images[:, 3, 20] = labels
        write_idx(name.with_name(f"{name.name}-images-idx3-ubyte.gz"), images)
        write_idx(name.with_name(f"{name.name}-labels-idx1-ubyte.gz"), labels)
    return tmp_path


@pytest.fixture
def celeba(tmp_path: Path) -> Path:
    """Five images of one colour each, of the true size."""
    (tmp_path / "img_align_celeba").mkdir()
    lines = []
    for number, part in enumerate((0, 0, 1, 2, 2), 1):
        name = f"{number:06d}.jpg"
        Image.new("RGB", (178, 218), (40 * number, 100, 0)).save(
            tmp_path / "img_align_celeba" / name
        )
        lines.append(f"{name} {part}\n")
    (tmp_path / "list_eval_partition.txt").write_text("".join(lines))
    return tmp_path


@pytest.mark.parametrize(
    ("source", "size", "n_channels"), [("digits", 8, 1), ("photographs", 32, 3)]
)
def test_what_comes_with_edgefold_needs_no_file(source: str, size: int, n_channels: int) -> None:
    images = load_images(source, size, None)
    for some in (images.training, *images.held_out.values()):
        assert some.shape[1:] == (size, size, n_channels)
        assert some.dtype == np.uint8
        assert some.max() <= images.brightest
    assert images.training.max() == images.brightest
    assert len(images.training) > 1000


def test_held_out_digits_are_not_learned() -> None:
    images = load_images("digits", 8, None)
    assert len(images.training) + len(images.held_out["held out"]) == 1797
    learned = {image.tobytes() for image in images.training}
    assert not any(image.tobytes() in learned for image in images.held_out["held out"])


def test_held_out_photographs_are_not_learned() -> None:
    images = load_images("photographs", 32, None)
    learned = {image.tobytes() for image in images.training}
    assert not any(image.tobytes() in learned for image in images.held_out["held out"])


def test_crops_are_squares_of_the_image() -> None:
    image = np.arange(6 * 9 * 3, dtype=np.uint8).reshape(6, 9, 3)
    found = crops(image, 4, 2)
    assert found.shape == (2 * 3, 4, 4, 3)
    assert np.array_equal(found[4], image[2:6, 2:6])


def test_emnist_is_read_as_people_write_it(emnist: Path) -> None:
    images = load_images("emnist", 28, emnist)
    assert images.training.shape == (8, 28, 28, 1)
    assert images.training[:, 20, 3, 0].tolist() == [0] * 4 + [9] * 4
    seen, unseen = images.held_out.values()
    assert seen[:, 20, 3, 0].tolist() == [0] * 4 + [9] * 4
    assert unseen[:, 20, 3, 0].tolist() == [46] * 4


def test_emnists_scores_have_the_columns_of_the_papers(emnist: Path) -> None:
    scores, _ = task_of("emnist", folder=emnist).evaluate(
        create_model("cnp", {"n_inputs": 2}), 1, 0, ("", "")
    )
    assert not missing_columns("emnist", scores)


def test_idx_files_are_read_unpacked_too(tmp_path: Path) -> None:
    values = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    write_idx(tmp_path / "a-idx3-ubyte", values)
    assert np.array_equal(read_idx(tmp_path / "a-idx3-ubyte", 3), values)


def test_a_damaged_idx_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    write_idx(path, np.zeros((2, 3, 4)))
    with pytest.raises(DataError, match="1 axes"):
        read_idx(path, 1)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DataError, match="damaged"):
        read_idx(path, 3)
    path.write_bytes(gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 9, 1, 2])))
    with pytest.raises(DataError, match="cut short"):
        read_idx(path, 1)


def test_other_images_than_emnists_are_refused(emnist: Path) -> None:
    write_idx(emnist / "gzip" / "emnist-balanced-train-images-idx3-ubyte.gz", np.zeros((2, 9, 9)))
    with pytest.raises(DataError, match="2 images"):
        load_images("emnist", 28, emnist)


@pytest.mark.parametrize(
    ("source", "said"),
    [("emnist", "gzip.zip (562 MB)"), ("celeba", "img_align_celeba.zip (1.4 GB)")],
)
def test_a_missing_file_is_said_to_be_downloaded(source: str, said: str, tmp_path: Path) -> None:
    for folder in (None, tmp_path):
        with pytest.raises(DataError, match=re.escape(said)) as error:
            load_images(source, image_sources.SIZES[source][0], folder)
        assert "--folder" in str(error.value)


@pytest.mark.parametrize("size", [32, 64])
def test_celeba_is_resized_without_a_crop_and_kept(
    celeba: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = load_images("celeba", size, celeba)
    assert images.training.shape == (3, size, size, 3)
    red = images.training[:, :, :, 0].mean((1, 2))
    assert red == pytest.approx([40, 80, 120], abs=2)  # JPEG rounds colours
    assert images.held_out["held out"][:, 0, 0, 0].tolist() == pytest.approx([160, 200], abs=2)
    (celeba / "img_align_celeba" / "000001.jpg").unlink()
    again = load_images("celeba", size, celeba)
    assert np.array_equal(again.training, images.training)


def test_celebas_scores_have_the_columns_of_the_papers(celeba: Path) -> None:
    task = task_of("celeba", folder=celeba, size=32)
    model = create_model("cnp", {"n_inputs": 2, "n_outputs": 3})
    assert not missing_columns("celeba-32", task.evaluate(model, 1, 0, ("", ""))[0])


def test_a_picture_has_its_corners_after_the_resize(celeba: Path) -> None:
    picture = Image.new("RGB", (178, 218))
    picture.paste((255, 255, 255), (0, 0, 20, 20))
    picture.save(celeba / "img_align_celeba" / "000001.jpg", quality=95)
    first = load_images("celeba", 32, celeba).training[0]
    assert first[0, 0].min() > 240
    assert first[0, -1].max() < 15
    assert first[-1, 0].max() < 15


def test_celebas_missing_or_strange_images_are_refused(celeba: Path) -> None:
    path = celeba / "img_align_celeba" / "000002.jpg"
    Image.new("RGB", (178, 200)).save(path)
    with pytest.raises(DataError, match="178 x 200"):
        load_images("celeba", 32, celeba)
    path.write_bytes(b"no image")
    with pytest.raises(DataError, match="cannot be read"):
        load_images("celeba", 32, celeba)
    path.unlink()
    with pytest.raises(DataError, match=r"000002.jpg is missing"):
        load_images("celeba", 32, celeba)
    (celeba / "list_eval_partition.txt").write_text("000001.jpg 0\n")
    with pytest.raises(DataError, match="1 images for training and 0 for the test"):
        load_images("celeba", 32, celeba)


def test_batches_are_the_papers() -> None:
    task, generator = task_of(), seeded()
    counts = set()
    for _ in range(200):
        batch = task.training_batch(2, generator)
        n, m = batch.x_context.shape[1], batch.x_target.shape[1]
        assert 3 <= n < N_POINTS[8] - 3 and 3 <= m < N_POINTS[8] - n
        assert batch.y_context.shape == (2, n, 1) and batch.x_target.shape == (2, m, 2)
        counts.add(n)
    assert len(counts) > 40


def test_large_images_have_a_bounded_number_of_targets(celeba: Path) -> None:
    task = task_of("celeba", size=128, folder=celeba)
    sizes = [task.training_batch(1, seeded(seed)).x_target.shape[1] for seed in range(30)]
    assert max(sizes) == MOST_TARGETS
    whole = [
        task.batch(task.images.training, 1, seeded(seed)).x_target.shape[1] for seed in range(30)
    ]
    assert max(whole) > MOST_TARGETS


def test_points_of_a_batch_are_distinct_pixels_of_one_image() -> None:
    task = task_of("photographs")
    batch = task.training_batch(3, seeded(3))
    x = torch.cat([batch.x_context, batch.x_target], 1)
    y = torch.cat([batch.y_context, batch.y_target], 1)
    rows, columns = (15.5 * (x + 1)).round().long().unbind(-1)
    flat = (32 * rows + columns).numpy()
    assert all(len(set(row)) == len(row) for row in flat)
    values = (255 * (y + 0.5)).round().to(torch.uint8).numpy()
    for pixels, value in zip(flat, values, strict=True):
        same = (task.images.training.reshape(-1, 1024, 3)[:, pixels] == value).all((1, 2))
        assert same.any()


def test_scaled_values_lie_where_the_papers_have_them() -> None:
    task = task_of()
    x, y = task.points(task.images.training[:50])
    assert (x.min().item(), x.max().item()) == (-1, 1)
    assert x[1].tolist() == pytest.approx([-1, -1 + 2 / 7])  # the second pixel of the first row
    assert (y.min().item(), y.max().item()) == (-0.5, 0.5)


def test_a_bundle_takes_pixels_as_they_are() -> None:
    task = task_of()
    streams = ImageTask.streams(task.describe(), ImageOptions())
    assert len(streams.calibration) == N_CALIBRATED
    for episode in streams.calibration:
        assert np.allclose(episode.x, episode.x.round(), atol=1e-5)  # float32 scaling and back
        assert np.allclose(episode.y, episode.y.round(), atol=1e-5)
        assert episode.x.min() > -1e-5 and 5 < episode.x.max() < 7 + 1e-5
        assert episode.y.max() > 10
    assert list(streams.scored) == ["held out"]


def test_a_resumed_run_keeps_its_source() -> None:
    kept = task_of().describe()
    again = ImageTask.from_options(ImageOptions(), kept)
    assert again.describe() == kept
    other = ImageOptions("photographs")
    with pytest.raises(DataError, match="another --source"):
        ImageTask.from_options(other, kept)


def test_options_that_do_not_fit_the_source_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="64 pixels"):
        task_of("photographs", size=64)
    with pytest.raises(DataError, match="leave --folder out"):
        task_of("digits", folder=tmp_path)


@pytest.mark.long
def test_a_run_of_images_is_scored_and_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, picture = tmp_path / "run", tmp_path / "a.png"
    small = [f"--set={name}" for name in ("width=8", "n_heads=1", "n_blocks=1", "n_latents=4")]
    assert main(["train", "images", *small, "--steps=2", "--batch=2", f"--out={run}"]) == 0
    assert "1,437 training images of 8 x 8 pixels" in capsys.readouterr().err
    words = ["evaluate", str(run), "--batches=2", f"--plot={picture}"]
    assert main(words) == 0
    assert "held out" in capsys.readouterr().out
    with Image.open(picture) as drawn:
        assert drawn.width > drawn.height > 100


def test_another_seed_of_an_evaluation_draws_other_batches(tmp_path: Path) -> None:
    task, model = task_of(), create_model("cmanp", {"n_inputs": 2, "n_outputs": 1, "n_blocks": 1})
    scores = [task.evaluate(model, 1, seed, ("", ""))[0] for seed in (1, 1, 2)]
    assert scores[0]["held out"]["log_likelihood"] == scores[1]["held out"]["log_likelihood"]
    assert scores[0]["held out"]["log_likelihood"] != scores[2]["held out"]["log_likelihood"]


def test_a_task_without_a_picture_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    small = [f"--set={name}" for name in ("width=8", "n_heads=1", "n_blocks=1", "n_latents=4")]
    assert main(["train", "gp", *small, "--steps=1", "--batch=2", f"--out={run}"]) == 0
    assert main(["evaluate", str(run), "--batches=2", f"--plot={tmp_path / 'a.png'}"]) == 1
    assert "has no picture" in capsys.readouterr().err
