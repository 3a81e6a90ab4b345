"""Recipes configure their methods with the published settings, each of which has a source."""

import json
import tomllib
from pathlib import Path

import pytest

from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.errors import DataError, InputError
from sentcli.evaluation.known_sets import averaged
from sentcli.evaluation.transfer_data import AVERAGED
from sentcli.methods import configure, get_method
from sentcli.methods.method import changed
from sentcli.methods.recipes import load_recipe, recipe_names
from sentcli.training.batches import Order
from sentcli.training.pooling import choose_pooling
from sentcli.training.request import TrainRequest
from sentcli.training.sweep import request_at
from sentcli.training.sweep_file import read_sweep, sweep_names
from sentcli.zoo import models_folder, zoo

ROOT = Path(__file__).parent.parent.parent
STS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R")
IN_DOMAIN = {f"in-domain recall@{k}" for k in (1, 5, 10)}
BEIR = {f"BEIR {name}" for name in averaged()}
SCORES = {"STS average", "STS-B dev", "transfer average", "BEIR average", *STS, *AVERAGED, *IN_DOMAIN, *BEIR}
WIDTH = {"bert-base": 768, "bert-large": 1024, "roberta-base": 768, "roberta-large": 1024}


def cooked(name):
    recipe = load_recipe(name)
    return configure(get_method(recipe.method, recipe.stage), recipe.assignments)


def raw(name):
    return tomllib.loads((models_folder() / "recipes" / f"{name}.toml").read_text("utf-8"))


@pytest.fixture
def recipe_file(tmp_path):
    def write(text):
        path = tmp_path / "mine.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return write


@pytest.mark.slow
@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_configures_its_method(name):
    recipe, method = load_recipe(name), cooked(name)
    assert recipe.name == name
    assert recipe.title
    assert recipe.title != name
    assert recipe.data
    assert "/" in recipe.model or recipe.model in zoo()
    assert method.name == recipe.method
    if method.fit is None:
        assert {"batch_size", "learning_rate", "max_length"} <= set(recipe.settings)
        assert {"epochs", "max_steps"} & set(recipe.settings)
        method.settings.check(1_000_000)
        method.head.build(WIDTH[recipe.model], method.settings.batch_size)


@pytest.mark.slow
@pytest.mark.parametrize("name", recipe_names())
def test_every_value_has_a_source(name):
    recipe = load_recipe(name)
    for entries in (recipe.settings, recipe.published):
        assert all(entry.source.strip() for entry in entries.values())
    for table in ("settings", "published"):
        assert all(set(entry) == {"value", "source"} for entry in raw(name).get(table, {}).values())


@pytest.mark.slow
@pytest.mark.parametrize("name", recipe_names())
def test_published_scores_are_percentages_whose_average_is_right(name):
    published = {key: score.value for key, score in load_recipe(name).published.items()}
    assert set(published) <= SCORES
    assert all(isinstance(value, float) and 1 < value <= 100 for value in published.values())
    if set(published) >= BEIR:
        assert sum(published[name] for name in BEIR) / 14 == pytest.approx(published["BEIR average"], abs=0.01)
    if set(STS) <= set(published):
        mean, source = sum(published[task] for task in STS) / 7, load_recipe(name).published["STS average"].source
        stated = f"the mean of these tasks is {mean:.2f}" in source
        assert stated or mean == pytest.approx(published["STS average"], abs=0.01)


@pytest.mark.parametrize(
    ("name", "sentences", "steps"),
    [
        ("simcse-bert-base", 1_000_000, 15_625),
        ("micse-bert-base", 1_000_000, 20_000),
        ("micse-bert-base-10pct", 100_000, 15_630),
        ("micse-bert-base-100pct", 1_000_000, 20_000),
        ("micse-bert-base-0.5pct", 5_000, 7_900),
        ("micse-bert-base-1pct", 10_000, 7_850),
        ("micse-bert-base-0.1pct", 1_000, 8_000),
        ("micse-bert-base-0.01pct", 100, 5_000),
        ("mirror-bert-bert-base", 10_000, 50),
        ("ct-bert-base", 1_000_000, 5_000),
        ("esimcse-bert-base", 1_000_000, 15_625),
    ],
)
def test_steps_are_those_of_the_authors(name, sentences, steps):
    settings = cooked(name).settings
    assert settings.total_steps(Order(sentences, settings.batch_size).per_epoch) == steps


def test_settings_that_differ_between_the_recipes_of_a_paper():
    informin = {name: cooked(f"informin-cl-{name}") for name in ("bert-base", "roberta-base", "roberta-large")}
    assert [m.objectives["reconstruction"].weight for m in informin.values()] == [0.4, 4.0, 4.0]
    groups = [cooked(f"whitenedcse-{name}").head.num_groups for name in ("bert-base", "bert-large", "roberta-base")]
    assert groups == [384, 512, 256]
    queues = [cooked(f"micse-bert-base{share}").objectives["contrastive"].queue_size for share in ("", "-10pct")]
    assert queues == [384, 0]
    large = cooked("infocse-bert-large").objectives["auxiliary-mlm"]
    assert (large.rate, large.frozen_dropout) == (0.3, True)
    assert list(cooked("infocse-rtd-bert-base").objectives) == ["contrastive", "auxiliary-mlm", "rtd"]
    assert list(cooked("diffcse-bert-base").objectives) == ["contrastive", "rtd"]
    assert list(cooked("micse-ct-bert-base").objectives) == ["tension", "ami"]
    paper, code = (cooked(f"micse-{name}").objectives["ami"] for name in ("paper", "bert-base"))
    assert (paper.slicing, paper.scale_by_share, paper.real_queries, paper.log) == ("head-pairs", False, True, True)
    assert (code.slicing, code.scale_by_share, code.real_queries, code.log) == ("layer-pairs", True, False, True)
    assert (paper.attention_layers(12), code.attention_layers(12)) == ((8, 9, 10, 11), (7, 8, 9, 10))
    drophead = cooked("mirror-bert-roberta-base-drophead").settings
    assert (drophead.dropout, drophead.drop_heads) == (0.0, 0.05)
    pretrain = cooked("infocse-pretrain-bert-base")
    assert list(pretrain.objectives) == ["condenser-mlm"]
    assert (pretrain.settings.warmup_share, pretrain.settings.weight_decay) == (0.1, 0.01)


@pytest.mark.parametrize(
    ("size", "sentences"),
    [("0.1pct", 1_000), ("0.5pct", 5_000), ("1pct", 10_000), ("10pct", 100_000), ("100pct", None)],
)
def test_low_shot_recipes_pair_subset_and_seed(size, sentences):
    with_queue = "micse-bert-base" if sentences is None else f"micse-bert-base-queue-{size}"
    for name, queue in (f"micse-bert-base-{size}", 0), (with_queue, 384):
        recipe = load_recipe(name)
        assert (recipe.limit, recipe.subset_seed) == (sentences, None if sentences is None else "seed")
        assert cooked(name).objectives["contrastive"].queue_size == queue
    assert cooked(f"micse-bert-base-{size}").settings == cooked(with_queue).settings


def test_the_low_shot_sweeps_of_the_documentation_pair_subset_and_seed():
    page = (ROOT / "docs" / "analyze.md").read_text("utf-8").split("\n## low-shot")[1].split("\n## ")[0]
    files = [tomllib.loads(part.split("```")[0]) for part in page.split("```toml\n")[1:]]
    assert [file["seeds"] for file in files] == [[48, 49, 50, 51, 52]] * 2
    [papers], [other] = (file["grid"] for file in files)
    recipes = [load_recipe(name) for name in papers["recipe"]]
    assert [recipe.limit for recipe in recipes] == [1_000, 5_000, 10_000, 100_000, None]
    assert all(recipe.subset_seed == "seed" for recipe in recipes[:-1])
    assert papers["contrastive.queue_size"] == [0, 384]
    assert other["subset_seed"] == "seed"


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(InputError, match=r"'micse-bert-bas'.*'micse-bert-base'"):
        load_recipe("micse-bert-bas")
    with pytest.raises(InputError, match=r"'xyz'.*\.toml.*simcse-bert-base"):
        load_recipe("xyz")


def test_a_file_by_its_path(recipe_file):
    path = recipe_file(
        'method = "simcse"\nmodel = "minilm"\npooling = "mean"\n[settings]\nbatch_size = 48\n'
        '"contrastive.temperature" = { value = 0.1, source = "tried" }\n[published]\n"STS-B dev" = 86.9\n'
    )
    recipe = load_recipe(path)
    assert (recipe.name, recipe.title, recipe.model, recipe.pooling) == ("mine", "mine", "minilm", "mean")
    assert recipe.assignments == [("batch_size", 48), ("contrastive.temperature", 0.1)]
    assert recipe.settings["batch_size"].source == ""
    assert recipe.settings["contrastive.temperature"].source == "tried"
    method = configure(get_method(recipe.method), recipe.assignments)
    assert (method.settings.batch_size, method.objectives["contrastive"].temperature) == (48, 0.1)


def test_a_copy_of_a_recipe_is_the_same_recipe(recipe_file):
    own = load_recipe("whitenedcse-bert-base")
    copy = load_recipe(recipe_file((models_folder() / "recipes" / "whitenedcse-bert-base.toml").read_bytes()))
    assert (copy.title, copy.settings, copy.published) == (own.title, own.settings, own.published)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('method = "simcse"\nmodle = "minilm"\n', r"mine\.toml: .*'modle'.*'model'"),
        ("method = \n", r"mine\.toml: .*TOML"),
        (b'method = "\xff"\n', r"mine\.toml: .*TOML"),
        ('model = "minilm"\n', r"mine\.toml: method "),
        ('method = "simcse"\n', r"mine\.toml: model "),
        ('method = 5\nmodel = "minilm"\n', r"mine\.toml: method: .*5"),
        ('method = "simcse"\nmodel = "minilm"\nsettings = 3\n', r"mine\.toml: settings: .*3"),
        ('method = "simcse"\nmodel = "minilm"\n[settings]\nami.weight = 1\n', r"mine\.toml: settings.ami: "),
        ('method = "simcse"\nmodel = "minilm"\n[settings]\nepochs = { source = "x" }\n', r"settings.epochs: "),
        ('method = "simcse"\nmodel = "minilm"\n[published]\nSTS = "high"\n', r"published: STS .*'high'"),
    ],
)
def test_a_broken_file_is_one_message(recipe_file, text, message):
    with pytest.raises(DataError, match=message):
        load_recipe(recipe_file(text))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match=r"/absent\.toml"):
        load_recipe(str(tmp_path / "absent.toml"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('method = "simcsee"\nmodel = "minilm"\n', r"'simcsee'.*'simcse'"),
        ('method = "infocse"\nmodel = "minilm"\nstage = "pretrian"\n', r"--stage pretrian: infocse .*'pretrain'"),
        ('method = "simcse"\nmodel = "minilm"\n[settings]\nbatchsize = 3\n', r"--set batchsize: simcse .*'batch_size'"),
        ('method = "simcse"\nmodel = "minilm"\n[settings]\nbatch_size = "x"\n', "--set batch_size=x: "),
    ],
)
def test_wrong_content_is_found_when_the_method_is_made(recipe_file, text, message):
    recipe = load_recipe(recipe_file(text))
    with pytest.raises(InputError, match=message):
        configure(get_method(recipe.method, recipe.stage), recipe.assignments)


RESOLVED = json.loads((Path(__file__).parent / "recipes_resolved.json").read_text("utf-8"))
"""What each recipe and each run of the papers' sweeps came to before ``--pooling`` was ``auto``."""


def resolved(request, start):
    method = request.configured()
    pooling = choose_pooling(method, start, request.pooling).name
    limit = request.data.limit or (request.recipe.limit if request.recipe else None)
    described = method.describe(changed_only=True)
    facts = {"model": request.model, "pooling": pooling, "stage": request.stage, "limit": limit}
    return json.loads(json.dumps({**facts, **described, "settings": changed(method.settings)}))


@pytest.mark.slow
def test_a_finished_encoder_as_start_moves_nothing_of_recipes_and_papers_sweeps(tmp_path, tiny_bert):
    start = str(tmp_path / "finished")
    SentenceEncoder.load(str(tiny_bert), backend="torch", pooling="lasttoken").save(start)
    nothing, points = TrainRequest("", "", [], tmp_path), {name: {"recipe": name} for name in recipe_names()}
    for name in sweep_names():
        sweep = read_sweep(Path(name))
        seed = {"seed": sweep.seeds[0]} if sweep.seeds else {}
        points |= {f"{name} {number}": {**point, **seed} for number, point in enumerate(sweep.points, 1)}
    assert set(points) == set(RESOLVED)
    for name, point in points.items():
        assert resolved(request_at(nothing, point, tmp_path), start) == RESOLVED[name], name
