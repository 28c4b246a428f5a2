"""Two streams of a model in two threads, with an arena for each thread."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from edgefold.export.native.generator import generate
from tests.export.native.c_streams import FLAGS, compiler

TWO_THREADS = """
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "edgefold_model.h"

enum { N_TURNS = 300 };

static struct edgefold_model streams[3];
static double found[3][N_TURNS];

static void *run(void *number)
{
    const size_t k = *(const size_t *)number;
    edgefold_model_init(&streams[k]);
    for (int i = 0; i < N_TURNS; i++) {
        const double x[2] = {-1.0 + i % 20 / 10.0, 0.5}, y[1] = {x[0] * x[0]};
        if (edgefold_model_query(&streams[k], 1, x) || edgefold_model_update(&streams[k], x, y))
            return NULL;
        found[k][i] = streams[k].prediction_mean[0];
    }
    return NULL;
}

int main(void)
{
    static size_t numbers[3] = {0, 1, 2};
    pthread_t threads[2];
    run(&numbers[2]); /* alone */
    for (int k = 0; k < 2; k++)
        if (pthread_create(&threads[k], NULL, run, &numbers[k])) return 2;
    for (int k = 0; k < 2; k++)
        pthread_join(threads[k], NULL);
    for (int k = 0; k < 2; k++)
        if (memcmp(found[k], found[2], sizeof found[2])) return 1;
    return 0;
}
"""


@pytest.mark.long
@pytest.mark.parametrize("name", ["gcc", "clang"])
def test_with_an_arena_for_each_thread_two_threads_get_the_answers_of_one(
    name: str, tiny_bundle: Path, tmp_path: Path
) -> None:
    files = {**generate(tiny_bundle, "model").files, "main.c": TWO_THREADS}
    for file, text in files.items():
        (tmp_path / file).write_text(text)
    sources = [file for file in files if file.endswith(".c")]
    storage = "-DEDGEFOLD_ARENA_STORAGE=_Thread_local"
    options = ["-std=c11", *FLAGS[1:], "-O1", storage, *sources, "-lm", "-pthread", "-o", "two"]
    subprocess.run([compiler(name), *options], cwd=tmp_path, check=True)
    assert subprocess.run([str(tmp_path / "two")]).returncode == 0
